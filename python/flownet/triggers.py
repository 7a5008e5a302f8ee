"""Triggers, which decide when a window emits its result, and evictors, which remove records from windows."""

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
    """Decision of a trigger: whether the window emits its result, and whether it drops its records."""

    CONTINUE = (False, False)
    """Do nothing."""
    FIRE = (True, False)
    """Emit the result."""
    PURGE = (False, True)
    """Drop the records. The window fires again only for later records."""
    FIRE_AND_PURGE = (True, True)
    """Emit the result and drop the records."""


class TriggerContext(Protocol):
    """Context of a `Trigger`: clocks, timers and state of the window."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """State of the current key and window, by name."""

    def current_watermark(self) -> int:
        """Return the watermark in milliseconds; the minimum 64-bit integer before the first one."""

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def register_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_event_time`` for this window when the watermark reaches that time."""

    def register_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_processing_time`` for this window when the wall clock reaches that time."""

    def delete_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Delete an event-time timer of this window. Unknown times are ignored."""

    def delete_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Delete a processing-time timer of this window. Unknown times are ignored."""


class Trigger(Generic[T]):
    """Decides when a window emits its result. Subclass it for a custom trigger.

    `on_element`, `on_event_time` and `on_processing_time` return a `TriggerResult`. None means ``CONTINUE``. One
    instance serves all windows of a subtask, so store the state of a window in ``ctx.state``.

    Examples
    --------
    Fire when the sum of a window reaches 100, and at its end:

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
        """Handle a record of the window.

        Parameters
        ----------
        value
            The record.
        timestamp_ms
            Its event time, or its time of arrival in processing-time windows, in milliseconds. In `Global` and
            `EndOfInput` windows it is the event time if the record has one.
        window
            The window.
        ctx
            Clocks, timers and state of the window.
        """
        raise NotImplementedError(f"{type(self).__name__} must define on_element(value, timestamp_ms, window, ctx)")

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Handle an event-time timer of the window."""

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Handle a processing-time timer of the window."""

    def on_merge(self, window: Window, ctx: TriggerContext) -> None:
        """Handle the merge of sessions. ``ctx.state`` is the result of `merge_state`."""

    def merge_state(self, state: dict[str, Any] | None, other: dict[str, Any] | None) -> dict[str, Any] | None:
        """Merge the states of two sessions.

        The default adds numbers. For other values, those of the first session stay.

        Parameters
        ----------
        state, other
            The states of the first and of the second session. None means empty.
        """
        merged = dict(state or {})
        for name, value in (other or {}).items():
            both = name in merged and isinstance(value, int | float) and isinstance(merged[name], int | float)
            merged[name] = merged[name] + value if both else merged.get(name, value)
        return merged or None

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Clean up when the window is removed."""


@dataclass(frozen=True, slots=True)
class BuiltInTrigger:
    """A built-in trigger, in the form of a plan."""

    when: TriggerWhen
    purges: bool = False


class EventTimeTrigger(BuiltInTrigger):
    """Fires when the watermark passes the window's end.

    It also fires for each late record within the allowed lateness.
    """

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
    """Fires when event time passes a multiple of ``interval``, and at the window's end.

    Parameters
    ----------
    interval
        A duration such as ``"10s"``, in whole milliseconds.
    """

    def __init__(self, interval: str | timedelta) -> None:
        super().__init__({"every": milliseconds("ContinuousEventTimeTrigger", "interval", interval)})


class ContinuousProcessingTimeTrigger(BuiltInTrigger):
    """Fires when the wall clock passes a multiple of ``interval``, and at the window's end.

    Parameters
    ----------
    interval
        A duration such as ``"10s"``, in whole milliseconds.
    """

    def __init__(self, interval: str | timedelta) -> None:
        super().__init__({"every": milliseconds("ContinuousProcessingTimeTrigger", "interval", interval)})


class PurgingTrigger(Trigger[Any]):
    """Fires when another trigger fires, and then drops the window's records.

    Parameters
    ----------
    trigger
        The other trigger.
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
    """Fires when a record differs by more than ``threshold`` from the last one that fired.

    Parameters
    ----------
    threshold
        The greatest difference that does not fire.
    delta
        Called with the last record that fired and the new record. Returns their difference. Before the trigger fires,
        it is called with the window's first record.
    """

    def __init__(self, threshold: float, delta: Callable[[T, T], float]) -> None:
        self.threshold = threshold
        self.delta = delta

    def on_element(self, value: T, timestamp_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult | None:
        """Compare the record with the last one that fired."""
        if "last" not in ctx.state:
            ctx.state["last"] = value
            return TriggerResult.CONTINUE
        if self.delta(ctx.state["last"], value) <= self.threshold:
            return TriggerResult.CONTINUE
        ctx.state["last"] = value
        return TriggerResult.FIRE


class Evictor(Protocol):
    """Removes records from a window. They are dropped."""

    after: bool

    def _kept(self, timestamps: list[int], values: list[Any], window_end_ms: int) -> list[int]:
        """Return the indexes of the records that stay."""


class CountEvictor:
    """Keeps the last ``count`` records of a window.

    Parameters
    ----------
    count
        Number of records that stay, at least 1.
    after
        True removes the others after the function has seen them, False before. Default: False.
    """

    def __init__(self, count: int, *, after: bool = False) -> None:
        self.count = _positive("CountEvictor", count)
        self.after = after

    def _kept(self, timestamps: list[int], values: list[Any], window_end_ms: int) -> list[int]:
        return list(range(max(0, len(values) - self.count), len(values)))


class TimeEvictor:
    """Keeps records that are less than ``span`` older than the newest record.

    It uses event time if records have one.

    Parameters
    ----------
    span
        The age limit, in whole milliseconds.
    after
        As for `CountEvictor`.
    """

    def __init__(self, span: str | timedelta, *, after: bool = False) -> None:
        self.span_ms = milliseconds("TimeEvictor", "span", span)
        self.after = after

    def _kept(self, timestamps: list[int], values: list[Any], window_end_ms: int) -> list[int]:
        oldest = max(timestamps, default=0) - self.span_ms
        return [at for at, timestamp_ms in enumerate(timestamps) if timestamp_ms > oldest]


class DeltaEvictor(Generic[T]):
    """Keeps records that differ by less than ``threshold`` from the window's last record.

    Parameters
    ----------
    threshold
        Records with this difference or a greater one are removed.
    delta
        Called with a record and the window's last record. Returns their difference.
    after
        As for `CountEvictor`.
    """

    def __init__(self, threshold: float, delta: Callable[[T, T], float], *, after: bool = False) -> None:
        self.threshold = threshold
        self.delta = delta
        self.after = after

    def _kept(self, timestamps: list[int], values: list[T], window_end_ms: int) -> list[int]:
        return [at for at, value in enumerate(values) if self.delta(value, values[-1]) < self.threshold]


def purging(trigger: Trigger[Any] | BuiltInTrigger) -> Trigger[Any] | BuiltInTrigger:
    """Replace a `PurgingTrigger` of a built-in trigger with a built-in trigger that purges."""
    if isinstance(trigger, PurgingTrigger) and isinstance(trigger.trigger, BuiltInTrigger):
        return BuiltInTrigger(trigger.trigger.when, purges=True)
    return trigger


def _purged(result: TriggerResult | None) -> TriggerResult | None:
    return TriggerResult.FIRE_AND_PURGE if result is not None and result.value[0] else result


def _positive(what: str, count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ConfigError(f"{what}({count!r}): must be a number of records, at least 1", setting="count", value=count)
    return count
