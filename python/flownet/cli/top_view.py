"""Draws one frame of ``flownet top``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..internal.config import format_size
from ..internal.units import format_seconds, format_value, pressure
from ..observation.report import JobStatus, TaskReport, restarted_part
from ..observation.sample import JobSample, TaskSample
from .job_snapshot import JobSnapshot


@dataclass(frozen=True, slots=True)
class Row:
    """A task, or one of its subtasks."""

    name: str
    """Of the task."""
    subtasks: str
    """How many they are, or which of them it is."""
    records_in_per_second: float
    """What it takes."""
    records_out_per_second: float
    """What it hands on."""
    shares: tuple[float, ...]
    """Parts of its time, 0 to 1: busy with Python, serialising, Rust; back-pressured, interpreter, idle."""
    back_pressured: float
    """One of them."""
    receive_bytes: int
    """What has arrived and was not read."""
    send_bytes: int
    """What it has to send and nobody has taken."""
    watermark_lag_seconds: float | None
    """How far event time is behind the clock."""


def drawn(look: JobSnapshot, console: Console, *, subtasks: bool, height: int | None) -> Group:
    """Draw a frame.

    Parameters
    ----------
    look
        What was seen.
    console
        Where it is for.
    subtasks
        Whether every subtask has a line.
    height
        Lines that there are; tasks beyond are counted. Default: as many as it takes.
    """
    status = look.status
    rows = list(_rows_of_subtasks(look.sample) if subtasks else _rows_of_tasks(status, look.sample))
    glyphs = _ASCII_GLYPHS if console.options.ascii_only else _GLYPHS
    above = [_headline(look), *_sentences(look)]
    below = [*_history(status), _legend(glyphs, leaves=height is not None)]
    if height is not None:
        for line in (*above, *below):
            line.no_wrap, line.overflow = True, "ellipsis"
        room = max(1, height - len(above) - len(below) - 1)
        if len(rows) > room:
            below.insert(0, Text(f"and {len(rows) - room + 1} more lines: make the terminal higher", "dim"))
            rows = rows[: room - 1]
    return Group(*above, _table(rows, console.width, glyphs), *below)


def stacked(shares: tuple[float, ...], width: int) -> list[int]:
    """Deal the cells of a bar out to parts of a whole: as many as fit, the rest to those that are most short of one."""
    whole = sum(share for share in shares if share > 0)
    if not whole > 0:
        return [0] * len(shares)
    exact = [max(0.0, share) / whole * width for share in shares]
    cells = [int(cell) for cell in exact]
    for place in sorted(range(len(cells)), key=lambda place: cells[place] - exact[place])[: width - sum(cells)]:
        cells[place] += 1
    return cells


def _rows_of_tasks(status: JobStatus, sample: JobSample) -> Iterator[Row]:
    for position, task in enumerate(status.tasks):
        parts = [part for part in sample.tasks if part.task == position]
        yield Row(
            name=task.name,
            subtasks=str(task.parallelism),
            records_in_per_second=task.records_per_second,
            records_out_per_second=_rate_out(status, task, parts),
            shares=_shares(task),
            back_pressured=task.back_pressured,
            receive_bytes=sum(part.receive_bytes for part in parts),
            send_bytes=sum(part.send_bytes for part in parts),
            watermark_lag_seconds=task.watermark_lag_seconds,
        )


def _rate_out(status: JobStatus, task: TaskReport, parts: list[TaskSample]) -> float:
    """As of ``records_per_second``: now, and over the whole once the job has ended."""
    if status.state == "ended":
        return task.records_out / status.seconds if status.seconds > 0 else 0.0
    return sum(part.records_out_per_second for part in parts)


def _rows_of_subtasks(sample: JobSample) -> Iterator[Row]:
    for part in sample.tasks:
        yield Row(
            name=part.name,
            subtasks=f"{part.subtask + 1} on {part.worker}" if len(sample.workers) > 1 else str(part.subtask + 1),
            records_in_per_second=part.records_in_per_second,
            records_out_per_second=part.records_out_per_second,
            shares=_shares(part),
            back_pressured=part.back_pressured,
            receive_bytes=part.receive_bytes,
            send_bytes=part.send_bytes,
            watermark_lag_seconds=part.watermark_lag_seconds,
        )


def _shares(one: TaskReport | TaskSample) -> tuple[float, ...]:
    return (one.python, one.serialising, one.rust, one.back_pressured, one.interpreter, one.idle)


def _headline(look: JobSnapshot) -> Text:
    status = look.status
    state = look.outcome if look.outcome in {"failed", "cancelled"} else status.state
    workers = f"{status.workers} worker{'s' if status.workers > 1 else ''}" if status.workers else "in one process"
    line = Text(status.name, "bold")
    line.append(f"  {state.upper()}", _STATE_STYLES.get(state, "yellow"))
    line.append(f"  {format_seconds(status.seconds)}  {workers}  job {look.job}", "not bold")
    return line


def _sentences(look: JobSnapshot) -> Iterator[Text]:
    status = look.status
    if status.bottleneck:
        yield Text.assemble("bottleneck: ", (status.bottleneck, "bold"))
    else:
        yield Text("no bottleneck", "dim")
    if status.stalled:
        yield Text(f"stalled: {status.stalled}", "bold red")
    if look.error is not None:
        yield Text(look.error, "red")
    if look.remark:
        yield Text(look.remark, "bold yellow")


def _table(rows: list[Row], width: int, glyphs: str) -> Table:
    has_event_time = any(row.watermark_lag_seconds is not None for row in rows)
    bar = max(8, min(24, width - 90))
    gap = 1 if width < 100 else 2
    queue_width = max((len(_queues(row)) for row in rows), default=0)
    others = 4 * 8 + bar + max(queue_width, len("queued in/out")) + (9 if has_event_time else 0)
    room = width - others - (7 if has_event_time else 6) * gap
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=max(8, room))
    for heading in ("subtasks", "in", "out"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=8)
    table.add_column("time", no_wrap=True, min_width=bar)
    table.add_column("pressure", no_wrap=True, min_width=8)
    table.add_column("queued in/out", justify="right", no_wrap=True)
    if has_event_time:
        table.add_column("lag", justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            Text(row.name),
            row.subtasks,
            *_rates(row),
            _bar(row, bar, glyphs),
            _word(row),
            _queues(row),
            *([_lag(row.watermark_lag_seconds)] if has_event_time else []),
        )
    return table


def _rates(row: Row) -> tuple[str, str]:
    return format_value(row.records_in_per_second, "/s"), format_value(row.records_out_per_second, "/s")


def _bar(row: Row, width: int, glyphs: str) -> Text:
    bar = Text()
    for cells, glyph, style in zip(stacked(row.shares, width), glyphs, _SHARE_STYLES, strict=True):
        bar.append(glyph * cells, style)
    return bar


def _word(row: Row) -> Text:
    word = pressure(row.back_pressured)
    return Text(word, {"OK": "green", "LOW": "yellow", "HIGH": "bold red"}[word])


def _queues(row: Row) -> str:
    return f"{format_value(row.receive_bytes, 'B')}/{format_value(row.send_bytes, 'B')}"


def _lag(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    sign = "-" if seconds < 0 else ""
    seconds = abs(seconds)
    if seconds >= _DAY:
        return f"{sign}{seconds / _DAY:,.0f} days"
    return f"{sign}{seconds:.1f} s" if seconds < 60 else f"{sign}{format_seconds(seconds)}"


def _history(status: JobStatus) -> Iterator[Text]:
    if status.checkpoints_made or status.checkpoints_failed:
        yield _checkpoints(status)
    if status.restarted:
        line = Text(f"restarts {status.restarted}")
        if status.restarts:
            last = status.restarts[-1]
            where = "anew" if last.resumed_from is None else f"from checkpoint {last.resumed_from}"
            ago = format_seconds(max(0.0, status.seconds - last.at_seconds))
            line.append(f", the last{restarted_part(last)} {where} {ago} ago: {last.cause.partition(chr(10))[0]}")
        yield line


def _checkpoints(status: JobStatus) -> Text:
    line = Text(f"checkpoints {status.checkpoints_made}")
    if status.checkpoints:
        last = status.checkpoints[-1]
        ago = format_seconds(max(0.0, status.seconds - last.at_seconds))
        line.append(f", the last {ago} ago: {format_size(last.bytes)} in {format_value(last.seconds, 's')}")
    if status.checkpoints_failed:
        why = f": {status.last_failed_checkpoint}" if status.last_failed_checkpoint else ""
        line.append(f"; {status.checkpoints_failed} failed{why}", "red")
    return line


def _legend(glyphs: str, *, leaves: bool) -> Text:
    parts = [
        Text.assemble((glyph, style), (f" {name}", "dim"))
        for glyph, style, name in zip(glyphs, _SHARE_STYLES, _SHARES, strict=True)
    ]
    return Text(" ").join([*parts, Text("q leaves", "dim")] if leaves else parts)


_DAY = 86_400
_SHARES = ("Python", "serialising", "Rust", "back-pressured", "interpreter", "idle")
_SHARE_STYLES = ("green4", "green3", "pale_green1", "red", "magenta", "bright_black")
_GLYPHS = "█▆▄▓▒░"
_ASCII_GLYPHS = "#=+!~."
_STATE_STYLES = {"running": "green", "ended": "cyan", "cancelled": "yellow", "failed": "bold red"}
