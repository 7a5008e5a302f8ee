"""Triggers and evictors: when a window gives out what it holds, and what of it."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from .api.functions import Window
from .api.window import milliseconds
from .errors import ConfigError
from .planning.spec import TriggerWhen

T = TypeVar("T")


class TriggerResult(Enum):
    """What becomes of a window: whether its result goes out, and whether its records are forgotten."""

    CONTINUE = (False, False)
    """Nothing."""
    FIRE = (True, False)
    """The result goes out."""
    PURGE = (False, True)
    """The records are forgotten. The window fires again only for records that come afterwards."""
    FIRE_AND_PURGE = (True, True)
    """Both."""


class TriggerContext(Protocol):
    """What a `Trigger` sees beside the record: the clocks, and what it keeps for the window."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """Values kept for the current key and window, by name."""

    def current_watermark(self) -> int:
        """Return how far event time has come, in milliseconds; the least 64-bit integer before the first watermark."""

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def register_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_event_time`` for this window once the watermark has come to that time."""

    def register_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_processing_time`` for this window once that time has come."""

    def delete_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Forget a timer of this window. Unknown times are ignored."""

    def delete_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Forget a timer of this window. Unknown times are ignored."""


class Trigger(Generic[T]):
    """Decides when a window gives out its result. Subclass it to write one's own.

    Every method returns a `TriggerResult`; None stands for ``CONTINUE``. One instance serves all windows of a subtask,
    so what belongs to a window goes into ``ctx.state``.

    Examples
    --------
    Give out a window as soon as it holds 100 in all, and at its end:

    >>> import flownet as fn
    >>> class Hundred(fn.triggers.Trigger):
    ...     def on_element(self, value, timestamp_ms, window, ctx):
    ...         ctx.register_event_time_timer(window.end_ms - 1)
    ...         ctx.state["sum"] = ctx.state.get("sum", 0) + value
    ...         if ctx.state["sum"] < 100:
    ...             return fn.triggers.TriggerResult.CONTINUE
    ...         ctx.state["sum"] = 0
    ...         return fn.triggers.TriggerResult.FIRE
    ...
    ...     def on_event_time(self, time_ms, window, ctx):
    ...         return fn.triggers.TriggerResult.FIRE
    """

    def on_element(self, value: T, timestamp_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Take a record of the window, with its event time, or its time of arrival in windows of processing time.

        In windows of all of time, `Global` and `EndOfInput`, ``timestamp_ms`` is the event time if the record has one.
        """
        raise NotImplementedError(f"{type(self).__name__} must define on_element(value, timestamp_ms, window, ctx)")

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Take a timer of event time that was registered for the window."""

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Take a timer of processing time that was registered for the window."""

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """Take note that sessions have become one; ``ctx.state`` is what `merge_state` made of theirs."""

    def merge_state(self, state: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
        """Make one state of those of two sessions. Default: numbers are added, else the first session's values stay."""
        merged = dict(state or {})
        for name, value in (other or {}).items():
            both = name in merged and isinstance(value, int | float) and isinstance(merged[name], int | float)
            merged[name] = merged[name] + value if both else merged.get(name, value)
        return merged or None

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Take note that the window is forgotten."""


@dataclass(frozen=True, slots=True)
class BuiltInTrigger:
    """A trigger that comes with flownet, as the planner takes it."""

    when: TriggerWhen
    purges: bool = False


class EventTimeTrigger(BuiltInTrigger):
    """Fires when the watermark passes the window's end, and for each record after it within the allowed lateness."""

    def __init__(self) -> None:
        super().__init__("at_end")


class ProcessingTimeTrigger(BuiltInTrigger):
    """Fires when the wall clock passes the window's end."""

    def __init__(self) -> None:
        super().__init__("at_end")


class CountTrigger(BuiltInTrigger):
    """Fires after every ``count`` records of a window.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.triggers.CountTrigger(100).when
    {'count': 100}
    """

    def __init__(self, count: int) -> None:
        super().__init__({"count": _positive("CountTrigger", count)})


class ContinuousEventTimeTrigger(BuiltInTrigger):
    """Fires whenever event time passes a multiple of ``interval``, and at the window's end."""

    def __init__(self, interval: str | timedelta) -> None:
        super().__init__({"every": milliseconds("ContinuousEventTimeTrigger", "interval", interval)})


class ContinuousProcessingTimeTrigger(BuiltInTrigger):
    """Fires whenever the wall clock passes a multiple of ``interval``, and at the window's end."""

    def __init__(self, interval: str | timedelta) -> None:
        super().__init__({"every": milliseconds("ContinuousProcessingTimeTrigger", "interval", interval)})


class PurgingTrigger(Trigger[Any]):
    """Fires when another trigger does, and then forgets the window's records.

    Parameters
    ----------
    trigger
        The other.
    """

    def __init__(self, trigger: Trigger[Any] | BuiltInTrigger) -> None:
        self.trigger = trigger

    def on_element(self, value: Any, timestamp_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Ask the other trigger."""
        return _purged(self._own.on_element(value, timestamp_ms, window, ctx))

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Ask the other trigger."""
        return _purged(self._own.on_event_time(time_ms, window, ctx))

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Ask the other trigger."""
        return _purged(self._own.on_processing_time(time_ms, window, ctx))

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """Tell the other trigger."""
        self._own.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Tell the other trigger."""
        self._own.clear(window, ctx)

    @property
    def _own(self) -> Trigger[Any]:
        assert isinstance(self.trigger, Trigger)
        return self.trigger


class DeltaTrigger(Trigger[T]):
    """Fires when a record differs by more than ``threshold`` from the one that it fired for last.

    Parameters
    ----------
    threshold
        How far apart two records may be.
    delta
        Called with the record that it fired for last, at first the window's first, and the new one; returns how far
        apart they are.
    """

    def __init__(self, threshold: float, delta: Callable[[T, T], float]) -> None:
        self.threshold = threshold
        self.delta = delta

    def on_element(self, value: T, timestamp_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Compare the record with the last one."""
        if "last" not in ctx.state:
            ctx.state["last"] = value
            return TriggerResult.CONTINUE
        if self.delta(ctx.state["last"], value) <= self.threshold:
            return TriggerResult.CONTINUE
        ctx.state["last"] = value
        return TriggerResult.FIRE


class Evictor(Protocol):
    """Takes records out of a window; those are forgotten."""

    after: bool

    def _kept(self, timestamps: list[int], values: list[Any], window_end_ms: int) -> list[int]:
        """Say which records stay, by their index."""


class CountEvictor:
    """Keeps the last ``count`` records of a window.

    Parameters
    ----------
    count
        Records that stay, at least 1.
    after
        Whether the others are taken out once the function has seen them, and not before. Default: False.
    """

    def __init__(self, count: int, *, after: bool = False) -> None:
        self.count = _positive("CountEvictor", count)
        self.after = after

    def _kept(self, timestamps: list[int], values: list[Any], window_end_ms: int) -> list[int]:
        return list(range(max(0, len(values) - self.count), len(values)))


class TimeEvictor:
    """Keeps the records that are less than ``span`` older than the newest, by event time if records have one.

    Parameters
    ----------
    span
        How much older a record may be; a whole number of milliseconds.
    after
        As of `CountEvictor`.
    """

    def __init__(self, span: str | timedelta, *, after: bool = False) -> None:
        self.span_ms = milliseconds("TimeEvictor", "span", span)
        self.after = after

    def _kept(self, timestamps: list[int], values: list[Any], window_end_ms: int) -> list[int]:
        oldest = max(timestamps, default=0) - self.span_ms
        return [at for at, timestamp_ms in enumerate(timestamps) if timestamp_ms > oldest]


class DeltaEvictor(Generic[T]):
    """Keeps the records that differ by less than ``threshold`` from the last.

    Parameters
    ----------
    threshold
        How far apart two records may be.
    delta
        Called with a record and the window's last; returns how far apart they are.
    after
        As of `CountEvictor`.
    """

    def __init__(self, threshold: float, delta: Callable[[T, T], float], *, after: bool = False) -> None:
        self.threshold = threshold
        self.delta = delta
        self.after = after

    def _kept(self, timestamps: list[int], values: list[T], window_end_ms: int) -> list[int]:
        return [at for at, value in enumerate(values) if self.delta(value, values[-1]) < self.threshold]


def purging(trigger: Trigger[Any] | BuiltInTrigger) -> Trigger[Any] | BuiltInTrigger:
    """Take a purging trigger around a built-in one for a built-in one that purges."""
    if isinstance(trigger, PurgingTrigger) and isinstance(trigger.trigger, BuiltInTrigger):
        return BuiltInTrigger(trigger.trigger.when, purges=True)
    return trigger


def _purged(result: TriggerResult | None) -> TriggerResult | None:
    return TriggerResult.FIRE_AND_PURGE if result is not None and result.value[0] else result


def _positive(what: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"{what}({count!r}): must be a number of records, at least 1", setting="count", value=count)
    return count
