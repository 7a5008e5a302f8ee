"""Streams cut into windows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ..aggregate import AggregateFunction, Folded, merges
from ..config import duration_us
from ..dataflow import has_timestamps
from ..errors import ConfigError, PlanError
from ..functions import OutputTag, ProcessWindowFunction, Window
from ..trigger import (
    BuiltInTrigger,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    DeltaEvictor,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    TimeEvictor,
    Trigger,
    purging,
)
from ..window import EndOfInput, Global, Session, Sliding, TimeDomain, Tumbling, WindowAssigner, assign
from .checks import field_of, function_of, kind_of, refuse_async_methods
from .stream import Stream

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
Windows = TypeVar("Windows", bound="_Windowed")


@dataclass(frozen=True, slots=True)
class _Cut:
    """What has been said of the windows so far."""

    assigner: WindowAssigner
    time: TimeDomain
    trigger: Trigger[Any] | BuiltInTrigger | None = None
    evictor: Any = None
    lateness_ms: int = 0
    late_tag: str | None = None
    with_window: bool = False


class _Windowed:
    """What windows have in common, by key or not."""

    _with_key = True

    def __init__(self, keyed: Stream[Any], cut: _Cut) -> None:
        self._keyed = keyed
        self._cut = cut

    @classmethod
    def _of(cls: type[Windows], keyed: Stream[Any], assigner: WindowAssigner) -> Windows:
        """Cut a stream by key."""
        if not isinstance(assigner, Tumbling | Sliding | Session | Global | EndOfInput):
            raise PlanError(
                "window() needs a window such as flownet.Tumbling('5s'), flownet.Session('30s') or "
                f"flownet.EndOfInput(), not {kind_of(assigner)}"
            )
        time: TimeDomain = assigner.time or ("event" if has_timestamps(keyed._origins) else "processing")
        return cls(keyed, _Cut(assigner, time))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._keyed!r}, {self._cut.assigner}>"

    def trigger(self: Windows, trigger: Trigger[Any] | BuiltInTrigger) -> Windows:
        """Say when windows give out what they hold, in place of once at their end.

        Parameters
        ----------
        trigger
            One of flownet's, such as ``CountTrigger(100)``, or a `Trigger` of one's own.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> early = words.window(fn.Tumbling("1h")).trigger(fn.ContinuousProcessingTimeTrigger("10s")).count()
        """
        if not isinstance(trigger, Trigger | BuiltInTrigger):
            raise PlanError(f"trigger() needs a trigger such as flownet.CountTrigger(100), not {kind_of(trigger)}")
        inner = getattr(trigger, "trigger", trigger)
        wanted: TimeDomain | None = None
        if isinstance(inner, EventTimeTrigger | ContinuousEventTimeTrigger):
            wanted = "event"
        if isinstance(inner, ProcessingTimeTrigger | ContinuousProcessingTimeTrigger):
            wanted = "processing"
        if wanted is not None and wanted != self._cut.time:
            if not isinstance(self._cut.assigner, Global):
                raise PlanError(
                    f"{type(inner).__name__} goes by {wanted} time, and these windows by {self._cut.time} time: use "
                    f"the other trigger, or time={wanted!r} for the window"
                )
            return type(self)(self._keyed, replace(self._cut, trigger=purging(trigger), time=wanted))
        return type(self)(self._keyed, replace(self._cut, trigger=purging(trigger)))

    def evictor(self: Windows, evictor: CountEvictor | TimeEvictor | DeltaEvictor[Any]) -> Windows:
        """Take records out of a window before its function sees them; the window then keeps all others until it ends.

        Parameters
        ----------
        evictor
            Which records stay, such as ``CountEvictor(10)``.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> last = words.window(fn.EndOfInput()).evictor(fn.CountEvictor(1)).process(lambda key, window, words: words)
        """
        if not hasattr(evictor, "_kept"):
            raise PlanError(f"evictor() needs an evictor such as flownet.CountEvictor(10), not {kind_of(evictor)}")
        return type(self)(self._keyed, replace(self._cut, evictor=evictor))

    def allowed_lateness(self: Windows, lateness: str | timedelta) -> Windows:
        """Take records for so long after the watermark has passed a window's end: each gives its windows out again.

        Parameters
        ----------
        lateness
            A whole number of milliseconds. Default: none, who comes after the watermark is late.

        Examples
        --------
        >>> words = env.from_collection(["to"]).key_by(str).window(fn.Tumbling("5s", time="event"))
        >>> counts = words.allowed_lateness("1min")
        """
        microseconds = duration_us("lateness", lateness)
        if microseconds % 1000:
            raise ConfigError(
                f"allowed_lateness({lateness!r}): must be a whole number of milliseconds",
                setting="lateness",
                value=lateness,
            )
        if self._cut.time != "event":
            raise PlanError("allowed_lateness() is for windows of event time: in processing time nothing is late")
        return type(self)(self._keyed, replace(self._cut, lateness_ms=microseconds // 1000))

    def side_output_late_data(self: Windows, tag: OutputTag) -> Windows:
        """Send records that are too late for all of their windows to a side output, instead of dropping them.

        Parameters
        ----------
        tag
            For `Stream.side_output` of the result.

        Examples
        --------
        >>> late = fn.OutputTag("late")
        >>> words = env.from_collection(["to"]).key_by(str).window(fn.Tumbling("5s", time="event"))
        >>> counts = words.side_output_late_data(late).count()
        >>> too_late = counts.side_output(late)
        """
        if not isinstance(tag, OutputTag):
            raise PlanError(f"side_output_late_data() needs a flownet.OutputTag, not {kind_of(tag)}")
        return type(self)(self._keyed, replace(self._cut, late_tag=tag.name))

    def with_window(self) -> Any:
        """Have results carry their window, in front of the value: ``(key, window, value)``.

        Examples
        --------
        >>> words = env.from_collection(["to", "to"]).key_by(str).window(fn.Tumbling("1h")).with_window()
        >>> starts = words.count().map(lambda result: (result[1].start_ms, result[2]))
        """
        return type(self)(self._keyed, replace(self._cut, with_window=True))

    def _fold(
        self, name: str, fold: object, functions: dict[str, Any] | None = None, process: Any = None
    ) -> Stream[Any]:
        functions = {**(functions or {}), **self._process_of(process)}
        return self._add(name, fold, functions)

    def _process_of(self, process: Any) -> dict[str, Any]:
        if process is None:
            return {}
        if isinstance(process, ProcessWindowFunction):
            refuse_async_methods(process, "open", "process", "clear", "close")
            return {"process_object": process}
        return {"process": function_of("process", process)}

    def _add(self, name: str, fold: object, functions: dict[str, Any], *, is_whole: bool = False) -> Stream[Any]:
        cut = self._cut
        if isinstance(cut.assigner, Session) and cut.assigner.gap_of is not None:
            functions["gap"] = function_of("Session", cut.assigner.gap_of)
        trigger: dict[str, object] | None = None
        if isinstance(cut.trigger, BuiltInTrigger):
            trigger = {"when": cut.trigger.when, "purges": cut.trigger.purges}
        elif cut.trigger is not None:
            trigger = {"when": "own"}
            functions["trigger"] = cut.trigger
        elif isinstance(cut.assigner, Global):
            trigger = {"when": "never"}
        if cut.evictor is not None:
            functions["evictor"] = cut.evictor
        window: dict[str, object] = {
            "assign": assign(cut.assigner),
            "clock": cut.time,
            "trigger": trigger,
            "lateness_ms": cut.lateness_ms,
            "late_tag": cut.late_tag,
            "with_key": self._with_key,
            "with_window": cut.with_window,
            # State of a window, and what is taken out of it, belong to it alone.
            "is_whole": is_whole or cut.evictor is not None or "process_object" in functions,
        }
        settings: dict[str, object] = {"fold": fold, "window": window}
        stream: Stream[Any] = self._keyed._then(
            "window", functions or None, name=f"window({cut.assigner}) {name}", settings=settings
        )
        return stream

    def _reduce(self, function: Callable[[Any, Any], Any], process: Any) -> Stream[Any]:
        function_of("reduce", function)
        if self._cut.evictor is not None:
            reduced = functools.partial(_reduced, function, self._with_key, self._cut.with_window, process)
            return self._add("reduce", "collect", {"process": reduced})
        return self._fold("reduce", "reduce", {"fold": function}, process)

    def _aggregate(self, init: Any, add: Any, merge: Any, result: Any, process: Any) -> Stream[Any]:
        if isinstance(init, AggregateFunction):
            if add is not None or merge is not None or result is not None:
                raise PlanError("aggregate() takes an AggregateFunction alone, or init and add with merge= and result=")
            function: AggregateFunction[Any, Any, Any] = init
        else:
            for name, each in (("add", add), ("merge", merge), ("result", result)):
                if each is not None or name == "add":
                    function_of(f"aggregate({name}=)", each)
            function = Folded(init, add, merge, result)
        can_merge = merges(function)
        if isinstance(self._cut.assigner, Session) and not can_merge:
            raise PlanError(
                "aggregate() over sessions needs merge=, or a merge() of the AggregateFunction: sessions merge"
            )
        if self._cut.evictor is not None:
            aggregated = functools.partial(_aggregated, function, self._with_key, self._cut.with_window, process)
            return self._add("aggregate", "collect", {"process": aggregated})
        functions = {"fold": function, **self._process_of(process)}
        is_whole = not can_merge and not (
            isinstance(self._cut.assigner, Tumbling | EndOfInput) and not self._cut.lateness_ms
        )
        return self._add("aggregate", "aggregate", functions, is_whole=is_whole)

    def _of_field(self, name: str, field: int | str | None) -> Stream[Any]:
        fold = field_of(name, field)
        if self._cut.evictor is not None:
            raise PlanError(
                f"{name}() keeps no records for an evictor to take out: use reduce(), aggregate() or process()"
            )
        return self._fold(name, fold)

    def _count(self) -> Stream[Any]:
        if self._cut.evictor is not None:
            return self._aggregate(0, lambda count, _: count + 1, None, None, None)
        return self._fold("count", "count")

    def _process(self, function: Any) -> Stream[Any]:
        return self._fold("process", "collect", None, function)


class WindowedStream(_Windowed, Generic[K, V]):
    """Records of type ``V`` by key and window.

    Each method emits one result for each key and window, when the window's end has passed or the input has ended, or
    when the trigger says. Results are ``(key, value)``, and ``(key, window, value)`` behind `with_window`. Their own
    time is the window's last millisecond.
    """

    def reduce(self, function: Callable[[V, V], V], process: Any = None) -> Stream[tuple[K, V]]:
        """Combine the records, two at a time, and emit ``(key, value)``; `KeyedStream.reduce` emits the value alone.

        Parameters
        ----------
        function
            Called with the value so far and the next record, as records arrive: only the value is kept.
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

    def process(
        self, function: Callable[[K, Window, list[V]], Iterable[R] | None] | ProcessWindowFunction[K, V, R]
    ) -> Stream[R]:
        """Work on all records of a window at once.

        Parameters
        ----------
        function
            Called with the key, the window (``start_ms``, ``end_ms``) and its records in the order of their arrival,
            which are kept in memory until then. What it returns or yields is emitted. Or a `ProcessWindowFunction`.

        Examples
        --------
        >>> by_word = env.from_collection(["to", "be"]).key_by(str)
        >>> ends = by_word.window(Tumbling("5s")).process(lambda key, window, values: [(key, window.end_ms)])
        """
        return self._process(function)


class AllWindowedStream(_Windowed, Generic[V]):
    """All records of type ``V`` by window, in one subtask.

    Methods are those of `WindowedStream`; results are values alone, and ``(window, value)`` behind `with_window`.
    """

    _with_key = False

    def reduce(self, function: Callable[[V, V], V], process: Any = None) -> Stream[V]:
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


def _shaped(with_key: bool, with_window: bool, process: Any, key: Any, window: Window, value: Any) -> Any:
    if process is not None:
        return process(key, window, [value])
    parts = ([key] if with_key else []) + ([window] if with_window else [])
    return [(*parts, value) if parts else value]


def _reduced(
    function: Any, with_key: bool, with_window: bool, process: Any, key: Any, window: Window, records: list[Any]
) -> Any:
    if not records:
        return None
    return _shaped(with_key, with_window, process, key, window, functools.reduce(function, records))


def _aggregated(
    function: AggregateFunction[Any, Any, Any],
    with_key: bool,
    with_window: bool,
    process: Any,
    key: Any,
    window: Window,
    records: list[Any],
) -> Any:
    accumulator = function.create_accumulator()
    for record in records:
        accumulator = function.add(record, accumulator)
    return _shaped(with_key, with_window, process, key, window, function.get_result(accumulator))
