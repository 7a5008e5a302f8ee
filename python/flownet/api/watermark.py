"""Event time: strategies that assign timestamps and generate watermarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from ..errors import PlanError
from ..planning import spec
from .window import milliseconds

T = TypeVar("T")


class WatermarkOutput:
    """Emit the watermarks of a `WatermarkGenerator`."""

    def __init__(self) -> None:
        self._said: list[int | bool] = []

    def emit_watermark(self, timestamp_ms: int) -> None:
        """Emit a watermark: expect no more records with this timestamp or an earlier one.

        Watermarks that go back are ignored.

        Parameters
        ----------
        timestamp_ms
            Milliseconds since 1970-01-01 UTC.
        """
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
            raise TypeError(f"a watermark is an int of milliseconds since 1970-01-01 UTC, not {timestamp_ms!r}")
        self._said.append(max(-(2**63) + 1, min(timestamp_ms, 2**63 - 2)))

    def mark_idle(self) -> None:
        """Mark the input as idle until its next record or watermark.

        An idle input does not delay the watermark.
        """
        self._said.append(True)

    def mark_active(self) -> None:
        """Mark the input as active again."""
        self._said.append(False)


class WatermarkGenerator(Generic[T]):
    """Generate custom watermarks. Subclass it and pass it to `WatermarkStrategy.for_generator`.

    Examples
    --------
    Emit a watermark after each record that is marked as the last of its time:

    >>> import flownet as fn
    >>> class Marked(fn.WatermarkGenerator):
    ...     def on_event(self, value, timestamp_ms, output):
    ...         if value["last"]:
    ...             output.emit_watermark(timestamp_ms)
    >>> strategy = fn.WatermarkStrategy.for_generator(Marked)
    """

    def on_event(self, value: T, timestamp_ms: int, output: WatermarkOutput) -> None:
        """Handle a record after it was emitted. Watermarks emitted here follow it directly."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit periodic watermarks. flownet calls this method every 200 ms."""


@dataclass(frozen=True, slots=True)
class WatermarkStrategy(Generic[T]):
    """Describe how to assign timestamps and generate watermarks.

    Create a strategy with a ``for_...`` method, such as `for_bounded_out_of_orderness`. Each ``with_...`` method
    returns a changed copy.

    Examples
    --------
    >>> import flownet as fn
    >>> clicks = [("ann", 1_000), ("bob", 4_000), ("ann", 3_000), ("ann", 65_000)]
    >>> env = fn.Environment()
    >>> strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("5s").with_timestamp_assigner(1)
    >>> stream = env.from_collection(clicks).assign_timestamps_and_watermarks(strategy)
    >>> minutes = stream.key_by(lambda click: click[0]).window(fn.Tumbling("60s")).count().collect()
    >>> result = env.execute()
    >>> sorted(minutes)
    [('ann', 1), ('ann', 2), ('bob', 1)]
    """

    watermarks: spec.Watermarks
    """Origin of the watermarks, in the form of the plan."""
    generator: Any = None
    assigner: Any = None
    idle_after_ms: int | None = None
    alignment: spec.Alignment | None = None
    max_ahead_ms: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy[Any]:
        """Expect ascending timestamps: the watermark follows the latest one without a delay."""
        return WatermarkStrategy({"bounded": {"delay_ms": 0}})

    @staticmethod
    def for_bounded_out_of_orderness(delay: str | timedelta) -> WatermarkStrategy[Any]:
        """Expect out-of-order records, at most ``delay`` behind the latest timestamp.

        A record that arrives later than that is late. The watermark is the latest timestamp minus the delay and one
        millisecond. It is emitted after a number of records, and every 200 ms if there are few.

        Parameters
        ----------
        delay
            Largest delay of a record, at least 0: ``"5s"`` or a ``timedelta``.
        """
        delay_ms = milliseconds("for_bounded_out_of_orderness", "delay", delay, least=0)
        return WatermarkStrategy({"bounded": {"delay_ms": delay_ms}})

    @staticmethod
    def for_generator(
        generator: WatermarkGenerator[T] | Callable[[], WatermarkGenerator[T]],
    ) -> WatermarkStrategy[T]:
        """Generate watermarks with a custom `WatermarkGenerator`.

        Each subtask has its own generator. If the task reads files, each file has its own.

        Parameters
        ----------
        generator
            A generator, which is copied, or a function or class that makes one.
        """
        if not isinstance(generator, WatermarkGenerator) and not callable(generator):
            raise PlanError(f"for_generator() needs a flownet.WatermarkGenerator or what makes one, not {generator!r}")
        return WatermarkStrategy("own", generator=generator)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy[Any]:
        """Emit no watermarks: event time advances only when the input ends."""
        return WatermarkStrategy("never")

    def with_timestamp_assigner(self, assigner: Callable[[T], int | datetime] | int | str) -> WatermarkStrategy[T]:
        """Assign timestamps from a field or a function of the record.

        Parameters
        ----------
        assigner
            A function of a record, or the index or key of a field. The timestamp is an ``int`` of milliseconds since
            1970-01-01 UTC, or a ``datetime`` with a time zone. Without an assigner, a record keeps its timestamp.
        """
        if isinstance(assigner, bool) or not (callable(assigner) or isinstance(assigner, int | str)):
            raise PlanError(
                f"with_timestamp_assigner() needs a function, an index or a key, not {type(assigner).__name__} "
                f"{assigner!r}"
            )
        return replace(self, assigner=assigner)

    def with_idleness(self, timeout: str | timedelta) -> WatermarkStrategy[T]:
        """Mark a split as idle if it has no record for a timeout.

        An idle split does not delay the watermark. If all splits of all inputs are idle, the watermark stops until
        records arrive again.

        Parameters
        ----------
        timeout
            Processing time without a record, at least a millisecond: ``"30s"`` or a ``timedelta``.
        """
        return replace(self, idle_after_ms=milliseconds("with_idleness", "timeout", timeout))

    def with_max_ahead(self, max_ahead: str | timedelta) -> WatermarkStrategy[T]:
        """Ignore timestamps too far ahead when computing the watermark.

        A record is compared with the other records of its split (file, partition, subtask), never with the wall clock.
        A record beyond the bound does not advance the watermark. It still reaches its window, and counts as
        ``records_ahead`` of the task.

        If eight records in a row are beyond the bound, such as after a night without records, the watermark follows
        them. The first eight records of a split are judged together, too.

        Parameters
        ----------
        max_ahead
            Largest lead of a record over the latest record before it, at least a millisecond. Choose more than the
            usual gap. If all gaps are larger, the watermark lags eight records. Default: no bound.

        Raises
        ------
        PlanError
            The watermarks do not come from timestamps: `for_generator`, `no_watermarks`.

        Examples
        --------
        >>> strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("5s").with_max_ahead("1h")
        """
        if isinstance(self.watermarks, str):
            raise PlanError(
                "max_ahead bounds watermarks that are made of timestamps: use for_bounded_out_of_orderness() or "
                "for_monotonous_timestamps(), or delay= of rows; a generator of your own compares times itself"
            )
        return replace(self, max_ahead_ms=milliseconds("with_max_ahead", "max_ahead", max_ahead))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: str | timedelta,
        update_interval: str | timedelta = "1s",
    ) -> WatermarkStrategy[T]:
        """Align watermarks: pause a source that is ahead of its group.

        All subtasks of the sources of a group wait for each other. A subtask pauses while its watermark leads the
        smallest one by more than the allowed drift. A downstream join then needs less state, because a fast source
        does not run far ahead of a slow one. Subtasks that are idle or have ended do not delay the others. A subtask
        that has had no record yet does.

        Call it on a source, or after operators that are called once a record, such as `map`, in the same subtasks.
        These operators always share the source's task, whatever their chaining settings.

        Parameters
        ----------
        watermark_group
            Name of the group. All its sources need the same settings.
        max_allowed_watermark_drift
            Largest lead of a watermark over the smallest one, at least a millisecond. A source pauses at the first
            record beyond it. If a source reads several files, one file may exceed the drift by one read: 1,024 lines or
            64 KiB.
        update_interval
            Longest time between updates of the limit at the sources, at least a millisecond. When the smallest
            watermark has moved by a quarter of the drift, the update is immediate. Default: ``"1s"``.

        Examples
        --------
        >>> import flownet as fn
        >>> strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("joined", "1min")
        """
        group: object = watermark_group
        if not isinstance(group, str) or not group:
            raise PlanError(f"with_watermark_alignment() needs the name of a group, not {watermark_group!r}")
        what = "with_watermark_alignment"
        alignment: spec.Alignment = {
            "group": watermark_group,
            "max_drift_ms": milliseconds(what, "max_allowed_watermark_drift", max_allowed_watermark_drift),
            "update_interval_ms": milliseconds(what, "update_interval", update_interval),
        }
        return replace(self, alignment=alignment)

    def functions(self) -> dict[str, Any]:
        """Return the user's functions by the names that the operator expects."""
        assigner = {} if self.assigner is None else {"assigner" if callable(self.assigner) else "field": self.assigner}
        return assigner if self.generator is None else {**assigner, "generator": self.generator}


def at_end_of_input(strategy: WatermarkStrategy[T]) -> WatermarkStrategy[T]:
    """Advance event time only when the input ends. Custom watermark generators stay."""
    if strategy.watermarks == "own":
        return strategy
    return replace(strategy, watermarks="never", idle_after_ms=None, alignment=None, max_ahead_ms=None)
