"""`KeyedStream`, a stream partitioned by key, with state for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .. import codec
from ..api.functions import KeyedProcessFunction
from ..api.rich_functions import ReduceFunction
from ..api.window import Global, WindowAssigner
from ..errors import PlanError
from ..planning import spec
from ..state import OpenContext, ValueStateDescriptor
from ..triggers import CountEvictor, CountTrigger, PurgingTrigger
from .checks import called_of, field_of, function_of, kind_of, method_of, refuse_async_methods, told_of
from .handle import same_environment
from .iteration import Results, iterate_delta
from .joined import AsOfJoin, IntervalJoin, JoinKind
from .stream import Stream
from .windowed import WindowedStream

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
U = TypeVar("U")
S = TypeVar("S")


class KeyedStream(Stream[V], Generic[K, V]):
    """A stream of records of type ``V``, partitioned by a key of type ``K``.

    Methods such as `count`, `sum` and `process` work on each key separately and emit a result for each record. `window`
    emits one result for each key and window instead.

    A keyed stream is a `Stream`, too. ``map``, ``flat_map``, ``filter`` and the sinks see records without their key, in
    the subtask of the key. They return a plain stream. To work by key downstream of them, call `key_by` again. Another
    partitioning, such as `rebalance` or `key_by`, replaces this one.
    """

    def reduce(self, function: Callable[[V, V], V] | ReduceFunction[V]) -> Stream[V]:
        """Reduce the records of each key and emit each intermediate value.

        The result is the value without the key. It has the type of the records. `WindowedStream.reduce` emits ``(key,
        value)``, as `count`, `sum`, `min` and `max` do.

        Parameters
        ----------
        function
            Called with the value so far and the next record, or a `ReduceFunction`. The first record of a key is its
            first value.

        Examples
        --------
        >>> longest = env.from_collection(["to", "too"]).key_by(lambda w: w[0]).reduce(lambda a, b: max(a, b, key=len))
        """
        told = told_of(called_of("reduce", function, ReduceFunction))
        functions = {"fold": method_of(function, "reduce"), **told}
        return self._then({"fold": "reduce"}, functions, name="reduce")

    def count(self) -> Stream[tuple[K, int]]:
        """Count the records of each key and emit ``(key, count so far)`` for each record.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).count().collect()
        >>> result = env.execute()
        >>> sorted(counts)
        [('be', 1), ('to', 1), ('to', 2)]
        """
        return self._fold("count", "count")

    def sum(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Sum the records of each key and emit ``(key, sum so far)``.

        Each record emits a result.

        Parameters
        ----------
        field
            The field to sum: an index for tuples and lists, a key for dicts. Default: None, the record itself.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).sum(1)
        """
        return self._fold("sum", field_of("sum", field))

    def min(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, minimum so far)`` for each record; ``field`` as for `sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).min(1)
        """
        return self._fold("min", field_of("min", field))

    def max(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, maximum so far)`` for each record; ``field`` as for `sum`.

        Examples
        --------
        >>> maxima = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).max(1)
        """
        return self._fold("max", field_of("max", field))

    def process(self, function: KeyedProcessFunction[K, V, R]) -> Stream[R]:  # type: ignore[override]
        """Process records with state and timers for each key.

        Parameters
        ----------
        function
            An instance of a subclass of `KeyedProcessFunction`. Each subtask gets a copy.

        Raises
        ------
        PlanError
            ``function`` is not such an instance.

        Examples
        --------
        >>> class Changes(fn.KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
        ...     def process(self, value, ctx):
        ...         if ctx.state.get("last") != value[1]:
        ...             ctx.state["last"] = value[1]
        ...             yield value
        >>> readings = env.from_collection([("a", 1), ("a", 1), ("a", 2)])
        >>> changes = readings.key_by(lambda pair: pair[0]).process(Changes()).collect()
        >>> result = env.execute()
        >>> list(changes)
        [('a', 1), ('a', 2)]
        """
        if not isinstance(function, KeyedProcessFunction):
            raise PlanError(
                f"process() needs an instance of a subclass of flownet.KeyedProcessFunction, not {kind_of(function)}"
            )
        refuse_async_methods(function, "open", "process", "on_timer", "finish", "close")
        return self._then({"process": {}}, function, name=type(function).__name__)

    def map_with_state(self, function: Callable[[Any, V], tuple[Any, R]]) -> Stream[R]:
        """Map each record with state for its key.

        Parameters
        ----------
        function
            Called with the state of the key and the record. The state is None for the first record of a key. Returns a
            tuple of the new state and the record to emit. Return None as state to clear it.

        Examples
        --------
        Number the records of each key:

        >>> words = env.from_collection(["to", "be", "to"]).key_by(str)
        >>> numbered = words.map_with_state(lambda seen, word: ((seen or 0) + 1, (word, (seen or 0) + 1))).collect()
        >>> result = env.execute()
        >>> sorted(numbered)
        [('be', 1), ('to', 1), ('to', 2)]
        """
        return self.process(_WithState(function_of("map_with_state", function))).name("map_with_state")

    def deduplicate(self, ttl: str | timedelta | None = None) -> Stream[V]:
        """Drop duplicate records: only the first record of each key passes.

        With ``ttl`` and timestamps the result depends only on the records. Each record waits until the watermark
        reaches its time. It passes if no record of its key passed within ``ttl`` before it. If records have the same
        key and time, the one whose encoded bytes sort first passes. Late records are dropped and counted.

        In all other cases records pass at once. If the records of a key come from several subtasks, timing decides
        which one is first.

        Parameters
        ----------
        ttl
            How long a key is remembered after a record passed. Later records of the key count as new. Measured by event
            time if records have timestamps, otherwise by the wall clock. In whole milliseconds. Default: None, for
            ever. Each key then needs memory.

        Examples
        --------
        >>> words = env.from_collection(["to", "be", "to"]).key_by(str).deduplicate().collect()
        >>> result = env.execute()
        >>> sorted(words)
        ['be', 'to']
        """
        return self.process(_FirstOfKey(ttl)).name("deduplicate")

    def iterate_delta(
        self,
        update: Callable[[S | None, V], tuple[S, Iterable[V]] | None],
        *,
        results: Results = "last",
        memory: str | int = "64MiB",
        disk: str | int = "1GiB",
    ) -> Stream[tuple[K, S]]:
        """Run a delta iteration, which updates a value for each key.

        The values are the solution set. The records in the loop are the workset. A record may change the value of its
        key, and a change may emit records for any key into the loop. The iteration ends when the input has ended and no
        record is left. Records of a key arrive in no particular order. To get the same result in each run, ``update``
        must not depend on that order. A minimum or a maximum does not.

        Parameters
        ----------
        update
            Called with the value of the record's key and the record. The value is None before the first update. Returns
            None if nothing changes. Otherwise it returns a tuple of the new value and the records to send into the
            loop. If it changes its argument in place, it must return it.
        results
            ``"last"`` emits the value of each key once, at the end. ``"changes"`` emits each new value. Default:
            ``"last"``.
        memory, disk
            As for `Stream.iterate`.

        Returns
        -------
        Stream[tuple[K, S]]
            Keys and their values.

        Raises
        ------
        PlanError
            ``update`` is not a function, or as for `Stream.iterate`.
        ConfigError
            ``results``, ``memory`` or ``disk`` is invalid.

        Examples
        --------
        From each start, go to a half or a third of a number. For each number, find the smallest start that reaches it:

        >>> def reach(least, record):
        ...     number, start = record
        ...     if least is not None and least <= start:
        ...         return None
        ...     return start, [(number // d, start) for d in (2, 3) if number % d == 0]
        >>> least = env.from_collection([(12, 12), (18, 18)]).key_by(0).iterate_delta(reach).collect()
        >>> result = env.execute()
        >>> sorted(least)
        [(1, 12), (2, 12), (3, 12), (4, 12), (6, 12), (9, 18), (12, 12), (18, 18)]
        """
        return iterate_delta(self, update, results, (memory, disk))

    def interval_join(self, other: KeyedStream[K, U]) -> IntervalJoin[V, U]:
        """Join with records of the same key whose event times are near.

        Set the bounds with ``between``.

        Parameters
        ----------
        other
            Another keyed stream of the same environment.

        Examples
        --------
        >>> strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
        >>> views = env.from_collection([("ann", 1_000)]).assign_timestamps_and_watermarks(strategy)
        >>> sales = env.from_collection([("ann", 61_000)]).assign_timestamps_and_watermarks(strategy)
        >>> joined = views.key_by(0).interval_join(sales.key_by(0)).between("0s", "10min")
        >>> bought = joined.process(lambda view, sale: (view[0], sale[1] - view[1])).collect()
        >>> result = env.execute()
        >>> list(bought)
        [('ann', 60000)]
        """
        self._check_other("interval_join", other)
        return IntervalJoin(self, other)

    def as_of_join(self, other: KeyedStream[K, U], how: JoinKind = "inner") -> AsOfJoin[V, U]:
        """Join each record with the newest earlier version of its key.

        A record waits until the watermark reaches its time. After that, no version of that time or before can arrive.
        State has, for each key, the newest version before the watermark and all versions after it. The newest version
        never expires.

        Parameters
        ----------
        other
            The versions: another keyed stream of the same environment. A version is valid from its time until the time
            of the next one. If several versions have the same time, the one that arrived last is valid.
        how
            ``"inner"`` drops records without a version. ``"left"`` pairs them with None. Default: ``"inner"``.

        Examples
        --------
        >>> strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
        >>> orders = env.from_collection([("usd", 5), ("usd", 9)]).assign_timestamps_and_watermarks(strategy)
        >>> rates = env.from_collection([("usd", 1, 1.1), ("usd", 7, 1.2)]).assign_timestamps_and_watermarks(strategy)
        >>> priced = orders.key_by(0).as_of_join(rates.key_by(0)).process(lambda order, rate: (order[1], rate[2]))
        >>> found = priced.collect()
        >>> result = env.execute()
        >>> list(found)
        [(5, 1.1), (9, 1.2)]
        """
        self._check_other("as_of_join", other)
        return AsOfJoin(self, other, how)

    def window(self, window: WindowAssigner) -> WindowedStream[K, V]:
        """Group the records of each key by window.

        Parameters
        ----------
        window
            ``Tumbling("5s")``, ``Sliding("60s", "1s")``, ``Session("30s")``, ``Global()``, or ``EndOfInput()`` for one
            window that fires when the input ends.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be"]).key_by(str).window(Tumbling("5s")).count()
        """
        return WindowedStream._of(self, window)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[K, V]:
        """Group the records of each key into windows of ``size`` records.

        Records are counted in order of arrival. Evictors and triggers see the same times as in `Global` windows.

        Parameters
        ----------
        size
            Records of a window. An incomplete window is emitted when the input ends.
        slide
            Records from one result to the next. Each result is over the last ``size`` records. Default: None, ``size``.

        Examples
        --------
        >>> pairs = env.from_collection([1, 2, 3]).key_by(lambda number: 0).count_window(2).sum().collect()
        >>> result = env.execute()
        >>> list(pairs)
        [(0, 3), (0, 3)]
        """
        if slide is None:
            return self.window(Global()).trigger(PurgingTrigger(CountTrigger(size)))
        return self.window(Global()).trigger(CountTrigger(slide)).evictor(CountEvictor(size))

    def _check_other(self, method: str, other: object) -> None:
        if not isinstance(other, KeyedStream):
            raise PlanError(f"{method}() takes another stream by key, not {kind_of(other)}: call key_by() on it")
        same_environment(method, self, other)

    def _fold(self, name: str, fold: spec.Fold) -> Stream[Any]:
        return self._then({"fold": fold}, name=name)


class _WithState(KeyedProcessFunction[Any, Any, Any]):
    """Calls a function with the state that it returned last for a key."""

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._function = function

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        state, result = self._function(ctx.state.get("state"), value)
        if state is None:
            ctx.state.clear()
        else:
            ctx.state["state"] = state
        return [result]


class _FirstOfKey(KeyedProcessFunction[Any, Any, Any]):
    """Emits the first record of each key."""

    def __init__(self, ttl: str | timedelta | None) -> None:
        self._descriptor = ValueStateDescriptor("seen", ttl)

    def open(self, ctx: OpenContext) -> None:
        self._seen = ctx.get_state(self._descriptor)
        if self._descriptor.ttl_ms is not None:
            # Older checkpoints have a map of this name, with keys that this class would forget: they are refused.
            ctx.get_state(ValueStateDescriptor("seen_times"))

    def process(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        time_ms = ctx.timestamp
        if self._descriptor.ttl_ms is None or time_ms is None:
            return self._first(value)
        if time_ms <= ctx.current_watermark():
            ctx._drop_late()
        elif not self._seen.value():
            waiting = ctx.state.setdefault(_WAITING, {})
            if time_ms in waiting:
                waiting[time_ms] = min(waiting[time_ms], value, key=_encoded)
            else:
                waiting[time_ms] = value
                ctx.register_event_time_timer(time_ms)
        return None

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterable[Any] | None:
        waiting = ctx.state[_WAITING]
        value = waiting.pop(timestamp_ms)
        if not waiting:
            del ctx.state[_WAITING]
        return self._first(value)

    def _first(self, value: Any) -> Iterable[Any] | None:
        if self._seen.value():
            return None
        self._seen.update(True)
        return [value]


_WAITING = "waiting"


def _encoded(value: Any) -> bytes:
    return codec.encode(value, pickle=True)
