"""Streams by key: records of one key together, with state for each."""

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
    """Records of type ``V`` brought together by their key of type ``K``.

    `count`, `sum`, `process` and the like work on each key by itself and emit a result for each record as it arrives;
    `window` gives one result for each key and stretch of time instead.

    It is a `Stream` too. ``map``, ``flat_map``, ``filter`` and the sinks see the records alone, each record in the
    subtask of its key, and give a plain stream: to work by key behind them, call `key_by` again. A partitioning that
    follows, such as `rebalance` or another `key_by`, takes the place of this one.
    """

    def reduce(self, function: Callable[[V, V], V] | ReduceFunction[V]) -> Stream[V]:
        """Combine the records of each key, two at a time, and emit the value so far for each record.

        The value alone: it is of the records' own type, and has the key in it if they have. `WindowedStream.reduce`
        emits ``(key, value)``, as `count`, `sum`, `min` and `max` do.

        Parameters
        ----------
        function
            Called with the value so far and the next record. The first record of a key is its first value. Or a
            `ReduceFunction`.

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
        """Add up the records of each key and emit ``(key, sum so far)`` for each record.

        Parameters
        ----------
        field
            What to add: an index for tuples and lists, a key for dicts. Default: the record itself.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).sum(1)
        """
        return self._fold("sum", field_of("sum", field))

    def min(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, least value so far)`` for each record; ``field`` as for `sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).min(1)
        """
        return self._fold("min", field_of("min", field))

    def max(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, greatest value so far)`` for each record; ``field`` as for `sum`.

        Examples
        --------
        >>> maxima = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).max(1)
        """
        return self._fold("max", field_of("max", field))

    def process(self, function: KeyedProcessFunction[K, V, R]) -> Stream[R]:  # type: ignore[override]
        """Work on the records with state and timers for each key.

        Parameters
        ----------
        function
            An instance of a subclass of `KeyedProcessFunction`; each subtask gets a copy.

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
        """Turn each record into another, with what is known of its key.

        Parameters
        ----------
        function
            Called with the state of the key, None for its first record, and the record; returns the state and what is
            emitted. A state of None forgets the key.

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
        """Let the first record of each key pass, and no other.

        With ``ttl`` and timestamps the answer depends on the records alone: a record waits until the watermark reaches
        its time, and passes if no record of its key passed within ``ttl`` before. Of records of one key and time the
        one with the least encoded bytes passes. Late records are dropped and counted. Else records pass at once, and if
        records of a key come from several subtasks, which of them is first depends on timing.

        Parameters
        ----------
        ttl
            How long a key is remembered after the record that passed; then it counts as new. By event time if records
            have timestamps, otherwise by the wall clock. A whole number of milliseconds. Default: for ever, which costs
            memory for each key.

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
        """Keep a value for each key that changes as long as records make others: a delta iteration.

        The values are the solution set, the records that go round are the workset: a record may change the value of its
        key, and a change makes records for other keys, or for the same. When the input has ended and no record is left,
        the iteration is over. Records of a key come in no particular order: the result is the same for all of them if
        ``update`` comes to the same value in any order, as with the least or the greatest.

        Parameters
        ----------
        update
            Called with the value of the record's key, None before the first, and the record. Returns None if nothing
            changes, or the new value and the records that go round because of it. It must not change the value that it
            is given without returning it.
        results
            ``"last"`` emits the value of each key once, when the iteration is over; ``"changes"`` each value as it is
            set.
        memory, disk
            As of `Stream.iterate`.

        Returns
        -------
        Stream[tuple[K, S]]
            Keys and their values.

        Raises
        ------
        PlanError
            ``update`` is no function, or as for `Stream.iterate`.
        ConfigError
            ``results``, ``memory`` or ``disk`` cannot be used.

        Examples
        --------
        The least number that can be reached from each one, going to its half or a third:

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
        """Bring together records of two streams of one key that are near enough in event time.

        Parameters
        ----------
        other
            Another stream by key, of the same environment.

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
        """Bring each record together with the newest version of another stream that is not after it in event time.

        A record waits until the watermark has come to its time, when no other version can come. Of each key the newest
        version before the watermark is kept, for ever, and all after it.

        Parameters
        ----------
        other
            The versions: another stream by key, of the same environment. Each is valid from its time to that of the
            next; of several at one time the last that came is.
        how
            ``"inner"``: records without a version are dropped; ``"left"``: they are paired with None.

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
        """Cut the records of each key into windows.

        Parameters
        ----------
        window
            How to cut: ``Tumbling("5s")``, ``Sliding("60s", "1s")``, ``Session("30s")``, ``Global()``, or
            ``EndOfInput()`` for one window that fires when the input has ended.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be"]).key_by(str).window(Tumbling("5s")).count()
        """
        return WindowedStream._of(self, window)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[K, V]:
        """Cut the records of each key into windows of so many, as they arrive.

        Evictors and triggers see the times that those of `Global` see.

        Parameters
        ----------
        size
            Records of a window. What is left of fewer goes out when the input ends.
        slide
            Records from one result to the next, which is over the last ``size`` records. Default: ``size``.

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
    """Hands a function what it said last about a key."""

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
