"""Streams cut into windows by key."""

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
    """Records of type ``V`` by key and window.

    Each method emits one result for each key and window, when the window's end has passed or the input has ended, or
    when the trigger says. Results are ``(key, value)``, and ``(key, window, value)`` behind `with_window`. Their own
    time is the window's last millisecond.
    """

    def reduce(self, function: Callable[[V, V], V] | ReduceFunction[V], process: Any = None) -> Stream[tuple[K, V]]:
        """Combine the records, two at a time, and emit ``(key, value)``; `KeyedStream.reduce` emits the value alone.

        Parameters
        ----------
        function
            Called with the value so far and the next record, as records arrive: only the value is kept. Or a
            `ReduceFunction`.
        process
            Called with the key, the window and a list of the one value, when the window is over; what it returns or
            yields is emitted. Or a `ProcessWindowFunction`. Default: none.

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
        """Fold the records into an accumulator and emit ``(key, result)``.

        Parameters
        ----------
        init
            What stands before the first record, or a function that makes it. Or an `AggregateFunction`, alone.
        add
            Called with the accumulator and a record; returns the accumulator.
        merge
            Called with two accumulators, that of later records last; returns one. Sessions need it; windows that
            overlap share their work where it is there.
        result
            Called with the accumulator; returns the result. Default: the accumulator itself.
        process
            As of `reduce`.

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
        """Emit ``(key, least value)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).min(1)
        """
        return self._of_field("min", field)

    def max(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, greatest value)``; ``field`` as for `KeyedStream.sum`.

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
        """Emit ``(key, the record with the least value)``, the first of equal ones; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> cheapest = env.from_collection([("a", 1, "x")]).key_by(0).window(fn.EndOfInput()).min_by(1)
        """
        return self._of_field("min_by", field)

    def max_by(self, field: int | str | None = None) -> Stream[tuple[K, V]]:
        """Emit ``(key, the record with the greatest value)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> dearest = env.from_collection([("a", 1, "x")]).key_by(0).window(fn.EndOfInput()).max_by(1)
        """
        return self._of_field("max_by", field)

    def top_n(self, count: int, by: Callable[[V], Any] | int | str | None = None) -> Stream[tuple[K, list[V]]]:
        """Emit ``(key, list of the records with the greatest values)``, the greatest first.

        Of equal ones the earliest: by event time if the stream has timestamps, otherwise as they arrive. Behind an
        `evictor` as they arrive.

        Parameters
        ----------
        count
            How many records.
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
        """Work on all records of a window at once.

        Parameters
        ----------
        function
            Called with the key, the window (``start_ms``, ``end_ms``) and its records in the order of their arrival (of
            windows that overlap, by slice), which are kept in memory until then. What it returns or yields is emitted.
            Or a `ProcessWindowFunction`.

        Examples
        --------
        >>> by_word = env.from_collection(["to", "be"]).key_by(str)
        >>> ends = by_word.window(Tumbling("5s")).process(lambda key, window, values: [(key, window.end_ms)])
        """
        return self._process(function)
