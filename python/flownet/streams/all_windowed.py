"""Streams cut into windows, all records together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from ..api.functions import Window
from ..api.rich_functions import ReduceFunction
from .checks import function_of
from .stream import Stream
from .windows import WindowedBase

V = TypeVar("V")
R = TypeVar("R")


class AllWindowedStream(WindowedBase, Generic[V]):
    """All records of type ``V`` by window, in one subtask.

    Methods are those of `WindowedStream`; results are values alone, and ``(window, value)`` behind `with_window`.
    """

    _with_key = False

    def reduce(self, function: Callable[[V, V], V] | ReduceFunction[V], process: Any = None) -> Stream[V]:
        """Combine the records, two at a time; as `WindowedStream.reduce`.

        Examples
        --------
        >>> longest = env.from_collection(["to", "too"]).window_all(Tumbling("5s")).reduce(max)
        """
        return self._once(self._reduce(function, process))

    def aggregate(
        self,
        init: Any,
        add: Callable[[Any, V], Any] | None = None,
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        result: Callable[[Any], Any] | None = None,
        process: Any = None,
    ) -> Stream[Any]:
        """Fold the records into an accumulator; as `WindowedStream.aggregate`.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).window_all(Tumbling("5s"))
        >>> letters = words.aggregate(0, lambda sum, word: sum + len(word))
        """
        return self._once(self._aggregate(init, add, merge, result, process))

    def count(self) -> Stream[int]:
        """Emit the number of records.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be", "to"]).window_all(Tumbling("5s")).count()
        """
        return self._once(self._count())

    def sum(self, field: int | str | None = None) -> Stream[Any]:
        """Emit the sum; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).sum(1)
        """
        return self._once(self._of_field("sum", field))

    def min(self, field: int | str | None = None) -> Stream[Any]:
        """Emit the least value; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).min(1)
        """
        return self._once(self._of_field("min", field))

    def max(self, field: int | str | None = None) -> Stream[Any]:
        """Emit the greatest value; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> maxima = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).max(1)
        """
        return self._once(self._of_field("max", field))

    def mean(self, field: int | str | None = None) -> Stream[float]:
        """Emit the mean; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> means = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).mean(1)
        """
        return self._once(self._of_field("mean", field))

    def min_by(self, field: int | str | None = None) -> Stream[V]:
        """Emit the record with the least value, the first of equal ones; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> cheapest = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).min_by(1)
        """
        return self._once(self._of_field("min_by", field))

    def max_by(self, field: int | str | None = None) -> Stream[V]:
        """Emit the record with the greatest value, the first of equal ones; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> dearest = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).max_by(1)
        """
        return self._once(self._of_field("max_by", field))

    def top_n(self, count: int, by: Callable[[V], Any] | int | str | None = None) -> Stream[list[V]]:
        """Emit a list of the records with the greatest values, the greatest first.

        Of equal ones, those that came first.

        Parameters
        ----------
        count
            How many records.
        by
            A function of a record, or the index or key of a field. Default: the record itself.

        Examples
        --------
        >>> best = env.from_collection([3, 9, 5]).window_all(fn.EndOfInput()).top_n(2).collect()
        >>> result = env.execute()
        >>> list(best)
        [[9, 5]]
        """
        return self._once(self._top_n(count, by))

    def process(self, function: Callable[[Window, list[V]], Iterable[R] | None]) -> Stream[R]:
        """Work on all records of a window at once.

        Parameters
        ----------
        function
            Called with the window and its records in the order of their arrival. What it returns or yields is emitted.

        Examples
        --------
        >>> ends = env.from_collection(["to"]).window_all(Tumbling("5s")).process(lambda window, words: words)
        """
        return self._once(self._process(functools.partial(_without_key, function_of("process", function))))

    def _once(self, stream: Stream[Any]) -> Stream[Any]:
        node = stream._node("window_all")
        node.parallelism, node.is_parallel = 1, False
        return stream


def _without_key(function: Callable[[Window, list[Any]], Any], _: None, window: Window, records: list[Any]) -> Any:
    return function(window, records)
