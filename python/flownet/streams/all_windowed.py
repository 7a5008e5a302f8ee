"""`AllWindowedStream`, a stream grouped by window without a key."""

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
    """A stream of records of type ``V``, grouped by window without a key, in one subtask.

    Methods are those of `WindowedStream`. Results are values, and ``(window, value)`` after `with_window`.
    """

    _with_key = False

    def reduce(self, function: Callable[[V, V], V] | ReduceFunction[V], process: Any = None) -> Stream[V]:
        """Reduce the records of each window, as `WindowedStream.reduce`.

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
        """Aggregate the records of each window, as `WindowedStream.aggregate`.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).window_all(Tumbling("5s"))
        >>> letters = words.aggregate(0, lambda sum, word: sum + len(word))
        """
        return self._once(self._aggregate(init, add, merge, result, process))

    def count(self) -> Stream[int]:
        """Emit the number of records of each window.

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
        """Emit the minimum; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).min(1)
        """
        return self._once(self._of_field("min", field))

    def max(self, field: int | str | None = None) -> Stream[Any]:
        """Emit the maximum; ``field`` as for `KeyedStream.sum`.

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
        """Emit the record with the minimum; ``field`` as for `KeyedStream.sum`.

        If values are equal, the first record is emitted.

        Examples
        --------
        >>> cheapest = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).min_by(1)
        """
        return self._once(self._of_field("min_by", field))

    def max_by(self, field: int | str | None = None) -> Stream[V]:
        """Emit the record with the maximum; ``field`` as for `KeyedStream.sum`.

        If values are equal, the first record is emitted.

        Examples
        --------
        >>> dearest = env.from_collection([("a", 1)]).window_all(Tumbling("5s")).max_by(1)
        """
        return self._once(self._of_field("max_by", field))

    def top_n(self, count: int, by: Callable[[V], Any] | int | str | None = None) -> Stream[list[V]]:
        """Emit a list of the ``count`` greatest records, the greatest first.

        Ties are resolved as for `WindowedStream.top_n`.

        Parameters
        ----------
        count
            Maximum number of records.
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
        """Process all records of a window in one call.

        Parameters
        ----------
        function
            Called with the window and its records, in order of arrival. It returns or yields the records to emit.

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
