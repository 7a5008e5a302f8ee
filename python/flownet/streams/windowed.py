"""`WindowedStream`, a stream grouped by key and window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from ..api.functions import ProcessWindowFunction, Window
from ..api.rich_functions import ReduceFunction
from .stream import Stream
from .windows import WindowedBase

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class WindowedStream(WindowedBase, Generic[K, V]):
    """A stream of records of type ``V``, grouped by key and window.

    Each method emits one result for each key and window. It emits it after the window's end, at the end of the input,
    or when the trigger fires. Results are ``(key, value)``, and ``(key, window, value)`` after `with_window`. The
    timestamp of a result is the window's last millisecond.
    """

    def reduce(self, function: Callable[[V, V], V] | ReduceFunction[V], process: Any = None) -> Stream[tuple[K, V]]:
        """Reduce the records of each window and emit ``(key, value)``.

        `KeyedStream.reduce` emits the value without the key.

        Parameters
        ----------
        function
            Called with the value so far and the next record, or a `ReduceFunction`. It is called as records arrive, so
            state has only the value.
        process
            Called with the key, the window and a list of the one value, when the window fires. It returns or yields the
            records to emit. Or a `ProcessWindowFunction`. Default: None.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> longest = words.window(Tumbling("5s")).reduce(lambda a, b: max(a, b, key=len)).collect()
        >>> result = env.execute()
        >>> list(longest)
        [('t', 'too')]
        """
        return self._reduce(function, process)

    def aggregate(
        self,
        init: Any,
        add: Callable[[Any, V], Any] | None = None,
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        result: Callable[[Any], Any] | None = None,
        process: Any = None,
    ) -> Stream[tuple[K, Any]]:
        """Aggregate the records of each window and emit ``(key, result)``.

        Parameters
        ----------
        init
            The initial accumulator, or a function that creates it. Or an `AggregateFunction` without other arguments.
        add
            Called with the accumulator and a record. Returns the accumulator.
        merge
            Called with two accumulators, the one of later records last. Returns one accumulator. Sessions need it. With
            it, overlapping windows share their work. Default: None.
        result
            Called with the accumulator. Returns the result. Default: None, the result is the accumulator.
        process
            As for `reduce`.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> letters = words.window(fn.EndOfInput()).aggregate(0, lambda sum, word: sum + len(word)).collect()
        >>> result = env.execute()
        >>> list(letters)
        [('t', 5)]
        """
        return self._aggregate(init, add, merge, result, process)

    def count(self) -> Stream[tuple[K, int]]:
        """Emit ``(key, number of records)``.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).window(Tumbling("5s")).count()
        """
        return self._count()

    def sum(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, sum)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).sum(1)
        """
        return self._of_field("sum", field)

    def min(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, minimum)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).min(1)
        """
        return self._of_field("min", field)

    def max(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, maximum)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> maxima = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).max(1)
        """
        return self._of_field("max", field)

    def mean(self, field: int | str | None = None) -> Stream[tuple[K, float]]:
        """Emit ``(key, mean)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> means = env.from_collection([("a", 1), ("a", 2)]).key_by(0).window(fn.EndOfInput()).mean(1).collect()
        >>> result = env.execute()
        >>> list(means)
        [('a', 1.5)]
        """
        return self._of_field("mean", field)

    def min_by(self, field: int | str | None = None) -> Stream[tuple[K, V]]:
        """Emit ``(key, record with the minimum)``; ``field`` as for `KeyedStream.sum`.

        If values are equal, the first record is emitted.

        Examples
        --------
        >>> cheapest = env.from_collection([("a", 1, "x")]).key_by(0).window(fn.EndOfInput()).min_by(1)
        """
        return self._of_field("min_by", field)

    def max_by(self, field: int | str | None = None) -> Stream[tuple[K, V]]:
        """Emit ``(key, record with the maximum)``; ``field`` as for `KeyedStream.sum`.

        If values are equal, the first record is emitted.

        Examples
        --------
        >>> dearest = env.from_collection([("a", 1, "x")]).key_by(0).window(fn.EndOfInput()).max_by(1)
        """
        return self._of_field("max_by", field)

    def top_n(self, count: int, by: Callable[[V], Any] | int | str | None = None) -> Stream[tuple[K, list[V]]]:
        """Emit the key and a list of the ``count`` greatest records.

        The result is ``(key, list)``, the greatest record first. If values are equal, the earliest record wins, by
        event time if the stream has timestamps. Without timestamps, or with an `evictor`, the order of arrival counts.

        Parameters
        ----------
        count
            Maximum number of records.
        by
            A function of a record, or the index or key of a field. Default: the record itself.

        Examples
        --------
        >>> bids = env.from_collection([("a", 3), ("a", 9), ("a", 5)]).key_by(0).window(fn.EndOfInput())
        >>> best = bids.top_n(2, by=1).collect()
        >>> result = env.execute()
        >>> list(best)
        [('a', [('a', 9), ('a', 5)])]
        """
        return self._top_n(count, by)

    def process(
        self, function: Callable[[K, Window, list[V]], Iterable[R] | None] | ProcessWindowFunction[K, V, R]
    ) -> Stream[R]:
        """Process all records of a window in one call.

        All records of the window stay in state until it fires.

        Parameters
        ----------
        function
            Called with the key, the window (``start_ms``, ``end_ms``) and its records. Or a `ProcessWindowFunction`. It
            returns or yields the records to emit. The window's records are in order of arrival. In overlapping windows
            they are ordered by slice.

        Examples
        --------
        >>> by_word = env.from_collection(["to", "be"]).key_by(str)
        >>> ends = by_word.window(Tumbling("5s")).process(lambda key, window, values: [(key, window.end_ms)])
        """
        return self._process(function)
