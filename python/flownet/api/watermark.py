"""Event time: where timestamps and watermarks come from."""

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
    """What a `WatermarkGenerator` says event time with."""

    def __init__(self) -> None:
        self._said: list[int | bool] = []

    def emit_watermark(self, timestamp_ms: int) -> None:
        """Say that no record of that time or an earlier one is expected. Steps back are ignored."""
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
            raise TypeError(f"a watermark is an int of milliseconds since 1970-01-01 UTC, not {timestamp_ms!r}")
        self._said.append(max(-(2**63) + 1, min(timestamp_ms, 2**63 - 2)))

    def mark_idle(self) -> None:
        """Say that nothing comes for now and nobody should wait for it, until the next record or watermark."""
        self._said.append(True)

    def mark_active(self) -> None:
        """Say that records come again."""
        self._said.append(False)


class WatermarkGenerator(Generic[T]):
    """Makes watermarks of one's own. Subclass it and pass it to `WatermarkStrategy.for_generator`.

    Examples
    --------
    A watermark behind each record that is marked as the last of its time:

    >>> import flownet as fn
    >>> class Marked(fn.WatermarkGenerator):
    ...     def on_event(self, value, timestamp_ms, output):
    ...         if value["last"]:
    ...             output.emit_watermark(timestamp_ms)
    >>> strategy = fn.WatermarkStrategy.for_generator(Marked)
    """

    def on_event(self, value: T, timestamp_ms: int, output: WatermarkOutput) -> None:
        """Take a record, which has been sent on; what is said comes right behind it."""

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Take note that 200 ms have passed."""


@dataclass(frozen=True, slots=True)
class WatermarkStrategy(Generic[T]):
    """How a stream gets its timestamps, and how far behind them event time is.

    Make one with `for_bounded_out_of_orderness` and the like; each ``with_...`` returns a changed copy.

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
    """Where watermarks come from, as the planner takes it."""
    generator: Any = None
    assigner: Any = None
    idle_after_ms: int | None = None
    alignment: spec.Alignment | None = None
    max_ahead_ms: int | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy[Any]:
        """Expect timestamps that never go back: each is as far as event time has come."""
        return WatermarkStrategy({"bounded": {"delay_ms": 0}})

    @staticmethod
    def for_bounded_out_of_orderness(delay: str | timedelta) -> WatermarkStrategy[Any]:
        """Expect that records come at most ``delay`` after later ones; who comes later than that is late.

        Watermarks are the latest timestamp less the delay and one millisecond. They follow the number of records, and
        the clock, every 200 ms, if there are few.
        """
        delay_ms = milliseconds("for_bounded_out_of_orderness", "delay", delay, least=0)
        return WatermarkStrategy({"bounded": {"delay_ms": delay_ms}})

    @staticmethod
    def for_generator(
        generator: WatermarkGenerator[T] | Callable[[], WatermarkGenerator[T]],
    ) -> WatermarkStrategy[T]:
        """Have watermarks made by a `WatermarkGenerator`, or by those that a function or class makes.

        Each subtask has its own, and each file where the task reads them; of one that was given they get copies.
        """
        if not isinstance(generator, WatermarkGenerator) and not callable(generator):
            raise PlanError(f"for_generator() needs a flownet.WatermarkGenerator or what makes one, not {generator!r}")
        return WatermarkStrategy("own", generator=generator)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy[Any]:
        """Have timestamps and no watermarks: event time passes when the input ends, all at once."""
        return WatermarkStrategy("never")

    def with_timestamp_assigner(self, assigner: Callable[[T], int | datetime] | int | str) -> WatermarkStrategy[T]:
        """Find a record's timestamp in it.

        Parameters
        ----------
        assigner
            A function of a record, or the index or key of a field. The timestamp is an ``int`` of milliseconds since
            1970-01-01 UTC, or a ``datetime`` with a time zone. Default: the timestamp that the record has already.
        """
        if isinstance(assigner, bool) or not (callable(assigner) or isinstance(assigner, int | str)):
            raise PlanError(
                f"with_timestamp_assigner() needs a function, an index or a key, not {type(assigner).__name__} "
                f"{assigner!r}"
            )
        return replace(self, assigner=assigner)

    def with_idleness(self, timeout: str | timedelta) -> WatermarkStrategy[T]:
        """Leave a split out of the watermark when no record of it has come for that long, in processing time.

        If all splits of all inputs are idle, event time stays where it is until records come again.
        """
        return replace(self, idle_after_ms=milliseconds("with_idleness", "timeout", timeout))

    def with_max_ahead(self, max_ahead: str | timedelta) -> WatermarkStrategy[T]:
        """Keep event time from moving at records whose clocks run ahead.

        A record is compared with the others of its split (file, partition, subtask), never with the wall clock. One
        that is further ahead does not move the watermark. It goes on to its window all the same, and counts as
        ``records_ahead`` of the task. A jump of all records, such as after a night without any, counts as soon as
        eight records in a row are beyond the bound. The first eight records of a split decide together, too.

        Parameters
        ----------
        max_ahead
            Most that a record is ahead of the latest before it, at least a millisecond. Choose more than usual gaps:
            if all records are further apart, event time stays eight records behind. Default: no bound.

        Raises
        ------
        PlanError
            Watermarks are not made of timestamps: `for_generator`, `no_watermarks`.

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
        """Hold the source back while its watermark is too far ahead of those of other sources.

        Sources of one group wait for each other, all their subtasks: none goes on while its watermark is ahead of the
        least one by more than it may drift. So what is behind them, such as a join, need not keep what a fast source
        brings long before the slow one. Who is idle or has ended is not waited for; who has had no record yet is.

        The stream has to be right behind its source, or behind operators that are called once a record, such as `map`,
        in the same subtasks; they all share the source's task, whatever is said of chaining.

        Parameters
        ----------
        watermark_group
            Name of the group. All sources of it have the same settings.
        max_allowed_watermark_drift
            Most that a watermark may be ahead of the least one, at least a millisecond. A source stops with the first
            record beyond it; where it reads several files, one of them may be ahead by what is read at once, which is
            1,024 lines or 64 KiB.
        update_interval
            Longest time until sources are told how far they may go, at least a millisecond. When the least watermark
            has moved by a quarter of the drift, they are told at once. Default: a second.

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
        """Name the user's functions, as the operator finds them."""
        assigner = {} if self.assigner is None else {"assigner" if callable(self.assigner) else "field": self.assigner}
        return assigner if self.generator is None else {**assigner, "generator": self.generator}


def at_end_of_input(strategy: WatermarkStrategy[T]) -> WatermarkStrategy[T]:
    """Let event time pass when the input ends, whatever was promised of its order; own watermarks stay."""
    if strategy.watermarks == "own":
        return strategy
    return replace(strategy, watermarks="never", idle_after_ms=None, alignment=None, max_ahead_ms=None)
