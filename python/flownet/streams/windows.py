"""Settings of windows and the base of windowed streams, which makes an operator of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from ..api.aggregate import AggregateFunction, FoldAggregate, merges
from ..api.functions import OutputTag, ProcessWindowFunction, Window
from ..api.rich_functions import ReduceFunction
from ..api.window import (
    EndOfInput,
    Global,
    Session,
    Sliding,
    TimeDomain,
    Tumbling,
    WindowAssigner,
    assign,
    milliseconds,
)
from ..errors import PlanError
from ..planning import spec
from ..planning.dataflow import Origin, has_timestamps
from ..triggers import (
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
from .checks import (
    FieldFold,
    called_of,
    field_of,
    function_of,
    key_of,
    kind_of,
    method_of,
    number_of,
    refuse_async_methods,
    told_of,
)
from .stream import Stream

Handle = TypeVar("Handle", bound="WindowedBase")


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Settings of windows of records or rows."""

    assigner: WindowAssigner
    time: TimeDomain
    trigger: Trigger[Any] | BuiltInTrigger | None = None
    evictor: Any = None
    lateness_ms: int = 0
    late_tag: str | None = None
    with_window: bool = False

    @classmethod
    def of(cls, assigner: WindowAssigner, origins: tuple[Origin, ...]) -> WindowSettings:
        """Create settings with defaults for these inputs."""
        return cls(assigner, assigner.time or ("event" if has_timestamps(origins) else "processing"))

    def with_trigger(self, trigger: Trigger[Any] | BuiltInTrigger) -> WindowSettings:
        """Set the trigger.

        Raises
        ------
        PlanError
            It is not a trigger, or it uses the other clock.
        """
        if not isinstance(trigger, Trigger | BuiltInTrigger):
            raise PlanError(
                f"trigger() needs a trigger such as flownet.triggers.CountTrigger(100), not {kind_of(trigger)}"
            )
        inner = getattr(trigger, "trigger", trigger)
        wanted: TimeDomain | None = None
        if isinstance(inner, EventTimeTrigger | ContinuousEventTimeTrigger):
            wanted = "event"
        if isinstance(inner, ProcessingTimeTrigger | ContinuousProcessingTimeTrigger):
            wanted = "processing"
        if wanted is not None and wanted != self.time:
            if not isinstance(self.assigner, Global):
                raise PlanError(
                    f"{type(inner).__name__} goes by {wanted} time, and these windows by {self.time} time: use "
                    f"the other trigger, or time={wanted!r} for the window"
                )
            return replace(self, trigger=purging(trigger), time=wanted)
        return replace(self, trigger=purging(trigger))

    def with_lateness(self, lateness: str | timedelta) -> WindowSettings:
        """Set the allowed lateness.

        Raises
        ------
        ConfigError
            It is not a whole number of milliseconds.
        PlanError
            The windows use processing time.
        """
        lateness_ms = milliseconds("allowed_lateness", "lateness", lateness, least=0)
        if self.time != "event":
            raise PlanError("allowed_lateness() is for windows of event time: in processing time nothing is late")
        return replace(self, lateness_ms=lateness_ms)

    def with_late_tag(self, tag: OutputTag) -> WindowSettings:
        """Set the side output of late records.

        Raises
        ------
        PlanError
            It is not a tag.
        """
        if not isinstance(tag, OutputTag):
            raise PlanError(f"side_output_late_data() needs a flownet.OutputTag, not {kind_of(tag)}")
        return replace(self, late_tag=tag.name)

    def planned(self) -> spec.WindowSpec:
        """Convert the settings to the form of a plan."""
        trigger: spec.TriggerSpec | None = None
        if isinstance(self.trigger, BuiltInTrigger):
            trigger = {"when": self.trigger.when, "purges": self.trigger.purges}
        elif self.trigger is not None:
            trigger = {"when": "own"}
        elif isinstance(self.assigner, Global):
            trigger = {"when": "never"}
        return {
            "assign": assign(self.assigner),
            "clock": self.time,
            "trigger": trigger,
            "lateness_ms": self.lateness_ms,
            "late_tag": self.late_tag,
        }


class WindowedBase:
    """Base of windowed streams, with or without a key."""

    _with_key = True

    def __init__(self, keyed: Stream[Any], cut: WindowSettings) -> None:
        self._keyed = keyed
        self._cut = cut

    @classmethod
    def _of(cls: type[Handle], keyed: Stream[Any], assigner: WindowAssigner) -> Handle:
        """Create windows of a keyed stream."""
        if not isinstance(assigner, Tumbling | Sliding | Session | Global | EndOfInput):
            raise PlanError(
                "window() needs a window such as flownet.Tumbling('5s'), flownet.Session('30s') or "
                f"flownet.EndOfInput(), not {kind_of(assigner)}"
            )
        return cls(keyed, WindowSettings.of(assigner, keyed._origins))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._keyed!r}, {self._cut.assigner}>"

    def trigger(self: Handle, trigger: Trigger[Any] | BuiltInTrigger) -> Handle:
        """Set a trigger that decides when windows emit results.

        Without a trigger, windows emit once, at their end.

        Parameters
        ----------
        trigger
            A built-in trigger such as ``CountTrigger(100)``, or a custom `Trigger`.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> early = words.window(fn.Tumbling("1h")).trigger(fn.triggers.ContinuousProcessingTimeTrigger("10s")).count()
        """
        return type(self)(self._keyed, self._cut.with_trigger(trigger))

    def evictor(self: Handle, evictor: CountEvictor | TimeEvictor | DeltaEvictor[Any]) -> Handle:
        """Set an evictor that removes records from windows.

        It removes records before or after the function sees them. All others stay in state until the window ends. If no
        record stays, the function is not called.

        Parameters
        ----------
        evictor
            A rule that decides which records stay, such as ``CountEvictor(10)``.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> newest = words.window(fn.EndOfInput()).evictor(fn.triggers.CountEvictor(1))
        >>> last = newest.process(lambda key, window, words: words)
        """
        if not hasattr(evictor, "_kept"):
            raise PlanError(
                f"evictor() needs an evictor such as flownet.triggers.CountEvictor(10), not {kind_of(evictor)}"
            )
        return type(self)(self._keyed, replace(self._cut, evictor=evictor))

    def allowed_lateness(self: Handle, lateness: str | timedelta) -> Handle:
        """Accept late records for this long after a window's end.

        The time after the end is measured by the watermark. Each accepted late record emits the results of its windows
        again.

        Parameters
        ----------
        lateness
            A duration such as ``"10s"``, in whole milliseconds. If you do not call this, all records that arrive after
            the watermark passed the end of their windows are late.

        Examples
        --------
        >>> words = env.from_collection(["to"]).key_by(str).window(fn.Tumbling("5s", time="event"))
        >>> counts = words.allowed_lateness("1min")
        """
        return type(self)(self._keyed, self._cut.with_lateness(lateness))

    def side_output_late_data(self: Handle, tag: OutputTag) -> Handle:
        """Send late records to a side output instead of dropping them.

        A record is late if it is too late for all of its windows.

        Parameters
        ----------
        tag
            The tag by which you read the records, with `Stream.side_output` of the result.

        Examples
        --------
        >>> late = fn.OutputTag("late")
        >>> words = env.from_collection(["to"]).key_by(str).window(fn.Tumbling("5s", time="event"))
        >>> counts = words.side_output_late_data(late).count()
        >>> too_late = counts.side_output(late)
        """
        return type(self)(self._keyed, self._cut.with_late_tag(tag))

    def with_window(self) -> Any:
        """Add the window to results: ``(key, window, value)``.

        Examples
        --------
        >>> words = env.from_collection(["to", "to"]).key_by(str).window(fn.Tumbling("1h")).with_window()
        >>> starts = words.count().map(lambda result: (result[1].start_ms, result[2]))
        """
        return type(self)(self._keyed, replace(self._cut, with_window=True))

    def _fold(
        self, name: str, fold: spec.Fold, functions: dict[str, Any] | None = None, process: Any = None
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

    def _add(self, name: str, fold: spec.Fold, functions: dict[str, Any], *, is_whole: bool = False) -> Stream[Any]:
        cut = self._cut
        if isinstance(cut.assigner, Session) and cut.assigner.gap_of is not None:
            functions["gap"] = function_of("Session", cut.assigner.gap_of)
        if isinstance(cut.trigger, Trigger):
            functions["trigger"] = cut.trigger
        if cut.evictor is not None:
            functions["evictor"] = cut.evictor
        window: spec.WindowSpec = {
            **cut.planned(),
            "with_key": self._with_key,
            "with_window": cut.with_window,
            # State of a window, and what is taken out of it, belong to it alone.
            "is_whole": is_whole or cut.evictor is not None or "process_object" in functions,
        }
        settings: spec.Window = {"fold": fold, "window": window}
        shown = f"window({cut.assigner}) {name}"
        stream: Stream[Any] = self._keyed._then({"window": settings}, functions or None, name=shown)
        return stream

    def _reduce(self, function: Any, process: Any) -> Stream[Any]:
        told = told_of(called_of("reduce", function, ReduceFunction))
        function = method_of(function, "reduce")
        if self._cut.evictor is not None:
            _refuse_object("reduce", process)
            reduced = functools.partial(_reduced, function, self._with_key, self._cut.with_window, process)
            return self._add("reduce", "collect", {"process": reduced, **told})
        return self._fold("reduce", "reduce", {"fold": function, **told}, process)

    def _aggregate(
        self, init: Any, add: Any, merge: Any, result: Any, process: Any, *, is_whole: bool = False
    ) -> Stream[Any]:
        if isinstance(init, AggregateFunction):
            if add is not None or merge is not None or result is not None:
                raise PlanError("aggregate() takes an AggregateFunction alone, or init and add with merge= and result=")
            function: AggregateFunction[Any, Any, Any] = init
        else:
            for name, each in (("add", add), ("merge", merge), ("result", result)):
                if each is not None or name == "add":
                    function_of(f"aggregate({name}=)", each)
            function = FoldAggregate(init, add, merge, result)
        can_merge = merges(function)
        if isinstance(self._cut.assigner, Session) and not can_merge:
            raise PlanError(
                "aggregate() over sessions needs merge=, or a merge() of the AggregateFunction: sessions merge"
            )
        if self._cut.evictor is not None:
            _refuse_object("aggregate", process)
            aggregated = functools.partial(_aggregated, function, self._with_key, self._cut.with_window, process)
            return self._add("aggregate", "collect", {"process": aggregated, **told_of(function)})
        functions = {"fold": function, **told_of(function), **self._process_of(process)}
        is_whole |= not can_merge and not (
            isinstance(self._cut.assigner, Tumbling | EndOfInput) and not self._cut.lateness_ms
        )
        return self._add("aggregate", "aggregate", functions, is_whole=is_whole)

    def _of_field(self, name: FieldFold, field: int | str | None) -> Stream[Any]:
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

    def _top_n(self, count: int, by: Any) -> Stream[Any]:
        best = _TopRecords(number_of("top_n", count), (lambda record: record) if by is None else key_of("top_n", by))
        spans_all_time = isinstance(self._cut.assigner, EndOfInput | Global)
        # Windows of all of time are kept by key, record by record, if records of one rank are to be in order of time.
        is_whole = spans_all_time and has_timestamps(self._keyed._origins)
        return self._aggregate(best, None, None, None, None, is_whole=is_whole).name(f"top_n({count})")

    def _process(self, function: Any) -> Stream[Any]:
        return self._fold("process", "collect", None, function)


class _TimedRecord(NamedTuple):
    """A record and its time, which orders records of equal rank."""

    record: Any
    time_ms: int


class _TopRecords(AggregateFunction[Any, list[_TimedRecord], list[Any]]):
    """Keeps the records with the greatest values. Of equal ones the earliest stay. All others are dropped."""

    _takes_time = True
    """Tells the runtime to pass the time of the record to `add`."""

    def __init__(self, count: int, by: Callable[[Any], Any]) -> None:
        self._count = count
        self._by = by

    def create_accumulator(self) -> list[_TimedRecord]:
        return []

    def add(self, value: Any, accumulator: list[_TimedRecord], time_ms: int = 0) -> list[_TimedRecord]:
        return self.merge(accumulator, [_TimedRecord(value, time_ms)])

    def merge(self, accumulator: list[_TimedRecord], later: list[_TimedRecord]) -> list[_TimedRecord]:
        in_time = sorted([*accumulator, *later], key=_time_ms)
        # The sort is stable, so equal values stay in order of time, and equal times in order of arrival.
        return sorted(in_time, key=lambda timed: self._by(timed.record), reverse=True)[: self._count]

    def get_result(self, accumulator: list[_TimedRecord]) -> list[Any]:
        return [timed.record for timed in accumulator]


def _time_ms(timed: _TimedRecord) -> int:
    return timed.time_ms


def _refuse_object(method: str, process: object) -> None:
    """Refuse a `ProcessWindowFunction` with an evictor, whose records are folded when the window fires."""
    if isinstance(process, ProcessWindowFunction):
        raise PlanError(
            f"{method}() behind evictor() takes a function for process=, not the ProcessWindowFunction "
            f"{type(process).__name__}: use process() alone, which gets the records that stay"
        )


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
