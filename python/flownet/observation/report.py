"""What a job did, task by task, and what people are told of it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..internal.config import format_size
from ..internal.tables import text_table
from ..internal.units import event_time, format_value
from ..metrics import UserMetric
from .task_reports import OperatorReport as OperatorReport, TaskReport as TaskReport


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """What the subtasks of one task kept in a checkpoint; those that had finished before have no part in it."""

    task: int
    """Position of the task among the job's, upstream first."""
    subtasks: int
    """Subtasks that took part."""
    bytes: int
    """Bytes of their state."""
    written_bytes: int
    """Bytes of the files that were written for it."""
    seconds: float
    """From its trigger until the last of them was written."""
    aligned_seconds: float
    """The longest that one waited from its first barrier to its last."""
    stood_still_seconds: float
    """The longest that one stood still to take its snapshot, or to write some of it, at once."""


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A checkpoint that counts."""

    number: int
    """Its number; they grow over all attempts and runs."""
    at_seconds: float
    """When it came to count, in seconds since the job was submitted."""
    bytes: int
    """Bytes of state."""
    written_bytes: int
    """Of these, the bytes that were written for it: the others are those of earlier checkpoints that it builds on."""
    seconds: float
    """From its trigger until it counted."""
    aligned_seconds: float
    """The longest that a subtask waited from its first barrier to its last."""
    stood_still_seconds: float
    """The longest that a subtask stood still to take its snapshot, or to write some of it, at once."""
    parts: tuple[CheckpointPart, ...] = ()
    """What it is made of, task by task: of the last ten."""


@dataclass(frozen=True, slots=True)
class UnansweredTask:
    """A task whose subtasks have not all answered a checkpoint."""

    name: str
    """Name of the task."""
    count: int
    """Subtasks that have not answered."""
    subtasks: tuple[int, ...]
    """The first ten of these, by index."""


@dataclass(frozen=True, slots=True)
class CheckpointUnderWay:
    """A checkpoint that was triggered and neither counts nor has failed."""

    number: int
    """Its number."""
    seconds: float
    """Time since its trigger, in seconds."""
    unanswered: tuple[UnansweredTask, ...] = ()
    """Tasks with subtasks that have not answered, upstream first. Empty while the checkpoint is published."""

    def __str__(self) -> str:
        if not self.unanswered:
            return f"{self.number}, for {self.seconds:.1f} s: all have answered"
        waits_for = ", ".join(map(_unanswered, self.unanswered))
        return f"{self.number}, for {self.seconds:.1f} s: waits for {waits_for}"


@dataclass(frozen=True, slots=True)
class RestartSummary:
    """An attempt to run the job that failed and was followed by another."""

    at_seconds: float
    """When it failed, in seconds since the job was submitted."""
    cause: str
    """Why."""
    resumed_from: int | None
    """Number of the checkpoint that the next attempt went on from; None: it began anew."""
    traceback: str | None = None
    """Python's traceback, if a function failed: of the last five restarts, the last 8,000 letters of each."""
    tasks: tuple[str, ...] = ()
    """Names of the tasks that began anew, where others ran on: those that failed, and all that share an exchange with
    them. Empty: the whole job."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    name: str
    """Name of the job."""
    state: str
    """``created``, ``launching``, ``deploying``, ``running``, ``stopping``, ``finishing``, ``failing``, ``cancelling``,
    ``restarting``, ``ended``."""
    workers: int
    """Number of worker processes; 0 when all runs in the process of the caller."""
    seconds: float
    """Time since the job was submitted, in seconds."""
    tasks: tuple[TaskReport, ...]
    """The tasks, upstream first. While the job runs, rates and shares are those of the last seconds."""
    bottleneck: str | None
    """A sentence that names the task which holds up the others, if one does."""
    stalled: str | None = None
    """For how long nothing has moved although records wait, and what for; None while the job moves. Of a job that has
    ended: how often it stood still like that, if ever. See `StalledWarning`."""
    checkpoint_under_way: CheckpointUnderWay | None = None
    """The checkpoint that was triggered and neither counts nor has failed, with the subtasks that it waits for."""
    resumed_from: int | None = None
    """Number of the checkpoint of an earlier run that this one went on from."""
    checkpoints_made: int = 0
    """Checkpoints that count, of all attempts of this run."""
    checkpoints_failed: int = 0
    """Checkpoints that failed: a task declined, not all answered within the timeout, or the storage failed."""
    last_failed_checkpoint: str | None = None
    """Why the last of these did."""
    checkpoints: tuple[CheckpointSummary, ...] = ()
    """The last 100 that count, the oldest first."""
    restarted: int = 0
    """Attempts that failed and were followed by another. Counters of tasks are those of the last attempt."""
    restarts: tuple[RestartSummary, ...] = ()
    """The last 100 of these, the oldest first."""
    metrics: tuple[UserMetric, ...] = ()
    """What functions count by ``ctx.metrics``, over all subtasks; without gauges (see `Job.sample`)."""
    network_memory_bytes: int = 0
    """Bytes of buffers that a worker may use at most; where workers differ, of the one that has most."""

    def __str__(self) -> str:
        return "\n".join([self._headline(), *text_table(_table(self)), *_remarks(self)])

    def _headline(self) -> str:
        return f"{self.name}: {self._said()}"

    def _said(self) -> str:
        where = f"{self.workers} workers" if self.workers else "no workers"
        return f"{self.state}, {where}; {_summary(self)}"

    def _repr_html_(self) -> str:
        head, *rows = _table(self)
        parts = [f"<p><b>{html.escape(self.name)}</b>: {html.escape(self._said())}</p><table><tr>"]
        parts += [f"<th>{html.escape(cell)}</th>" for cell in head]
        parts.append("</tr>")
        for row in rows:
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
        parts += [f"<p>{html.escape(remark)}</p>" for remark in _remarks(self)]
        return "".join(parts)

    @property
    def bytes_local(self) -> int:
        """Bytes exchanged between tasks of one process."""
        return sum(task.bytes_local for task in self.tasks)

    @property
    def bytes_tcp(self) -> int:
        """Bytes exchanged over TCP."""
        return sum(task.bytes_tcp for task in self.tasks)

    @property
    def records(self) -> int:
        """Records that went into the task which took most of them, since it began anew after a failure, if it did."""
        return max((task.records_in for task in self.tasks), default=0)

    @property
    def records_per_second(self) -> float:
        """``records`` per second since that task began, at the submission of the job or after a failure."""
        most = max(self.tasks, key=lambda task: task.records_in, default=None)
        seconds = 0.0 if most is None else self.seconds - most.began_seconds
        return self.records / seconds if seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class JobResult(JobStatus):
    """A job that has ended well: what moved, how fast, and where the time went.

    ``str(result)`` is a table for terminals; notebooks show it as HTML.
    """

    def _headline(self) -> str:
        return self._said()

    def _said(self) -> str:
        return _summary(self)


def fields(report: Mapping[str, Any]) -> dict[str, Any]:
    """Take those of a `JobStatus` or `JobResult` as a job tells them."""
    return {
        **report,
        "tasks": tuple(TaskReport(**{**task, "operators": told_operators(task)}) for task in report["tasks"]),
        "checkpoints": tuple(_checkpoint(checkpoint) for checkpoint in report["checkpoints"]),
        "restarts": tuple(RestartSummary(**{**one, "tasks": tuple(one["tasks"])}) for one in report["restarts"]),
        "checkpoint_under_way": _under_way(report.get("checkpoint_under_way")),
        "metrics": told_metrics(report),
    }


def _under_way(told: Mapping[str, Any] | None) -> CheckpointUnderWay | None:
    if told is None:
        return None
    unanswered = (UnansweredTask(**{**task, "subtasks": tuple(task["subtasks"])}) for task in told["unanswered"])
    return CheckpointUnderWay(**{**told, "unanswered": tuple(unanswered)})


def _unanswered(task: UnansweredTask) -> str:
    more = ", ..." if task.count > len(task.subtasks) else ""
    noun = "subtask" if task.count == 1 else "subtasks"
    return f"{task.count} {noun} of '{task.name}' ({', '.join(map(str, task.subtasks))}{more})"


def _checkpoint(told: Mapping[str, Any]) -> CheckpointSummary:
    parts = tuple(CheckpointPart(**part) for part in told["parts"])
    return CheckpointSummary(**{**told, "parts": parts})


def told_operators(told: Mapping[str, Any]) -> tuple[OperatorReport, ...]:
    """Take what went through the operators of a task as a job tells it."""
    return tuple(OperatorReport(**operator) for operator in told["operators"])


def told_metrics(told: Mapping[str, Any]) -> tuple[UserMetric, ...]:
    """Take what functions count as a job tells it."""
    return tuple(UserMetric.of(metric) for metric in told["metrics"])


def _summary(result: JobStatus) -> str:
    return (
        f"{result.records:,} records in {result.seconds:.2f} s, {result.records_per_second:,.0f} a second; "
        f"{format_size(result.bytes_local)} moved locally, {format_size(result.bytes_tcp)} over TCP"
    )


def _late_advice(task: TaskReport, status: JobStatus) -> str:
    """Name the bound for clocks that run ahead, if many records are late and none is in use that has found any."""
    is_many = task.late_records > _NOTICEABLE_LATE * max(task.rows_in, task.records_in)
    if not is_many or any(other.records_ahead for other in status.tasks):
        return ""
    return "; if one record's clock runs ahead of the others, max_ahead keeps event time from following it"


def _remarks(status: JobStatus) -> list[str]:
    dropped = [
        f"dropped: {task.dropped_records:,} records, {format_size(task.dropped_bytes)}, before {task.name}"
        for task in status.tasks
        if task.dropped_records
    ]
    late = [*(f"late: {said}" for said in out_of_order(status))]
    late += [
        f"late: {task.late_records:,} records came after their windows were given up and were dropped by {task.name}"
        f"{_late_advice(task, status)}"
        for task in status.tasks
        if task.late_records
    ]
    ahead = [
        f"ahead: {task.records_ahead:,} records were more than max_ahead ahead of the others of their split; they did "
        f"not move event time of {task.name}"
        for task in status.tasks
        if task.records_ahead
    ]
    time = [
        f"event time of {task.name}: {event_time(task.watermark_ms, task.watermark_lag_seconds)}"
        for task in status.tasks
        if task.watermark_ms is not None and task.watermark_lag_seconds is not None
    ]
    in_flight = [
        f"in flight to {task.name}: {task.in_flight_seconds:.1f} s at most, in buffers filled up to "
        f"{format_size(task.fill_limit)}"
        for task in status.tasks
        if task.fill_limit is not None and task.in_flight_seconds >= _NOTICEABLE_WAIT
    ]
    latency = [
        f"latency to {task.name}: {format_value(task.latency_p50_seconds, 's')} median, "
        f"{format_value(task.latency_p99_seconds, 's')} for 99 %, {format_value(task.latency_max_seconds, 's')} at most"
        for task in status.tasks
        if task.latency_max_seconds is not None
    ]
    sentences = {"bottleneck": status.bottleneck, "stalled": status.stalled}
    return [
        *dropped,
        *late,
        *ahead,
        *_counted(status.metrics),
        *time,
        *aligning(status, "waited"),
        *in_flight,
        *latency,
        *_history(status),
        *(f"{name}: {sentence}" for name, sentence in sentences.items() if sentence),
    ]


def out_of_order(status: JobStatus) -> list[str]:
    """Say of which sources too many records come late, if windows drop late records."""
    dropped = sum(task.late_records for task in status.tasks)
    return [
        f"{task.out_of_order_records:,} of {task.timed_records:,} records of {task.name} "
        f"({task.out_of_order_records / task.timed_records:.1%}) came later than its delay allows, up to "
        f"{format_value(task.out_of_order_ms / 1000, 's')} behind earlier ones of {_split_of(task)}; {dropped:,} "
        f'records were dropped. Give delay="{task.out_of_order_ms}ms", or use allowed_lateness() or '
        "side_output_late_data()"
        for task in status.tasks
        if dropped and task.out_of_order_records > _NOTICEABLE_LATE * task.timed_records
    ]


def _split_of(task: TaskReport) -> str:
    return "their split" if task.out_of_order_split is None else f"their split ({task.out_of_order_split})"


def _counted(metrics: tuple[UserMetric, ...]) -> list[str]:
    lines = [f"{metric.name} of {metric.operator}: {metric}" for metric in metrics[:_MOST_COUNTED]]
    left = len(metrics) - len(lines)
    return [*lines, f"and {left} more that functions count"] if left else lines


def aligning(status: JobStatus, waits: str) -> list[str]:
    """Say of which sources others are behind; ``waits`` is the verb."""
    return [
        f"{task.name} {waits} for the sources it is aligned with, {task.aligning:.0%} of the time"
        for task in status.tasks
        if task.aligning >= NOTICEABLE_SHARE
    ]


def _history(status: JobStatus) -> list[str]:
    lines = []
    if status.resumed_from is not None:
        lines.append(f"went on from checkpoint {status.resumed_from}")
    if status.checkpoints:
        last = status.checkpoints[-1]
        longest = max(checkpoint.seconds for checkpoint in status.checkpoints)
        lines.append(
            f"checkpoints: {status.checkpoints_made}, {longest:.2f} s at most; the last, {last.number}, "
            f"{format_size(last.bytes)} in {last.seconds:.2f} s"
        )
    if status.checkpoint_under_way is not None:
        lines.append(f"checkpoint under way: {status.checkpoint_under_way}")
    if status.checkpoints_failed:
        lines.append(f"checkpoints failed: {status.checkpoints_failed}; the last: {status.last_failed_checkpoint}")
    if status.restarts:
        lines.append(
            f"restarts: {status.restarted}; the last, at {status.restarts[-1].at_seconds:.1f} s"
            f"{restarted_part(status.restarts[-1])}: {status.restarts[-1].cause}"
        )
    return lines


def restarted_part(restart: RestartSummary) -> str:
    """Say which tasks began anew, if others ran on."""
    if not restart.tasks:
        return ""
    more = f" and {len(restart.tasks) - 1} more" if len(restart.tasks) > 1 else ""
    return f", of '{restart.tasks[0]}'{more}"


def _table(status: JobStatus) -> list[list[str]]:
    rows = [["task", "subtasks", "in", "out", "busy", "back-pressured", "idle", "interpreter"]]
    for task in status.tasks:
        shares = (f"{share:.0%}" for share in (task.busy, task.back_pressured, task.idle, task.interpreter))
        rows.append([task.name, f"{task.parallelism}", f"{task.records_in:,}", f"{task.records_out:,}", *shares])
    if any(task.rows_in > task.records_in or task.rows_out > task.records_out for task in status.tasks):
        counts = [["rows in", "rows out"], *([f"{task.rows_in:,}", f"{task.rows_out:,}"] for task in status.tasks)]
        rows = [[*row[:4], *count, *row[4:]] for row, count in zip(rows, counts, strict=True)]
    return rows


NOTICEABLE_SHARE = 0.05
"""Of the time: what takes less is no news."""

_NOTICEABLE_LATE = 0.01
"""Of the records of a source: fewer late ones are no mistake in its delay."""

_NOTICEABLE_WAIT = 0.1
"""Seconds: records that wait for less are no news."""

_MOST_COUNTED = 20
"""Metrics of functions that a table tells of."""
