"""Shows a running job on a terminal: which task is busy, which is held up, and by whom.

On a terminal the lines are rewritten in place; elsewhere a line is added now and then.
"""

from __future__ import annotations

from typing import TextIO

from ..internal.config import format_size
from ..internal.terminal import Lines
from ..internal.units import event_time, format_value
from .report import NOTICEABLE_SHARE, JobStatus, TaskReport, aligning


class Progress:
    """Prints the status of one job as it changes.

    Parameters
    ----------
    stream
        Where to write; in place if it is a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._lines = Lines(stream)
        self._last_line_at = 0.0

    def show(self, status: JobStatus) -> None:
        """Show ``status``."""
        if self._lines.in_place:
            self._lines.rewrite(status_lines(status))
        elif status.seconds - self._last_line_at >= _SECONDS_BETWEEN_LINES:
            self._last_line_at = status.seconds
            self._lines.add(_one_line(status))

    def tell(self, text: str) -> None:
        """Print what is to stay, above the lines that are shown in place."""
        self._lines.clear()
        self._lines.add(text)

    def clear(self) -> None:
        """Take away what was shown in place, so that other text can be printed."""
        self._lines.clear()


def status_lines(status: JobStatus) -> list[str]:
    """Lines that show ``status``: the job, a line for each task, the bottleneck, and what a stalled job waits for."""
    workers = "in this process" if status.workers == 0 else _count(status.workers, "worker")
    subtasks = _count(sum(task.parallelism for task in status.tasks), "subtask")
    bound = f"memory bound {format_size(status.network_memory_bytes)}{'/worker' if status.workers else ''}"
    lines = [f"{status.name}  {status.state.upper()}  {workers}  {subtasks}  {bound}  {status.seconds:.1f} s"]
    width = max((len(task.name) for task in status.tasks), default=0)
    lines += [_task_line(task, width) for task in status.tasks]
    lines += [f"  event time of {task.name}: {said}" for task in status.tasks if (said := _event_time(task))]
    lines += [f"  {said}" for said in aligning(status, "waits")]
    if status.bottleneck:
        lines.append(f"  bottleneck: {status.bottleneck}")
    if status.stalled:
        lines.append(f"  stalled: {status.stalled}")
    return lines


def _task_line(task: TaskReport, width: int) -> str:
    busy, pressured, idle = (f"{share:4.0%}" for share in (task.busy, task.back_pressured, task.idle))
    interpreter = f"  interpreter {task.interpreter:.0%}" if task.interpreter >= NOTICEABLE_SHARE else ""
    rate = format_value(task.records_per_second, "/s")
    dropped = f"  dropped {task.dropped_records:,}" if task.dropped_records else ""
    shares = f"busy {busy}  pressured {pressured}  idle {idle}{interpreter}"
    return f"  {task.name:{width}}  {task.parallelism}x  {rate:>9}  {shares}{dropped}"


def _event_time(task: TaskReport) -> str:
    late = f"late {task.late_records:,}" if task.late_records else ""
    if task.watermark_ms is None or task.watermark_lag_seconds is None:
        return late
    return ", ".join(filter(None, (event_time(task.watermark_ms, task.watermark_lag_seconds), late)))


def _one_line(status: JobStatus) -> str:
    tasks = ", ".join(f"{task.name} {task.records_in:,}" for task in status.tasks)
    stalled = f"  stalled: {status.stalled}" if status.stalled else ""
    return f"{status.name}  {status.state.upper()}  {status.seconds:.0f} s  records: {tasks}{stalled}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_SECONDS_BETWEEN_LINES = 5.0
