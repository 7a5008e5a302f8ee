"""What is shown of a running job."""

from __future__ import annotations

import dataclasses
import io

import pyte
import pytest

import flownet as fn
from flownet.observation import JobResult, JobStatus, TaskReport
from flownet.observation.progress import Progress, status_lines


def status(seconds: float = 2.0) -> JobStatus:
    read = TaskReport("read_text -> flat_map", 2, 80_000, 3_800_000, 40_000, 0, 0, 0.97, 0.02, 0.01, 0.99)
    count = TaskReport("window(5 s) count", 2, 3_800_000, 10, 1_900_000, 9 << 20, 9 << 20, 0.61, 0.0, 0.39, 0.7)
    return JobStatus(
        "wordcount",
        "running",
        2,
        seconds,
        (read, count),
        "read_text -> flat_map (97 % busy)",
        network_memory_bytes=64 << 20,
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_status_is_the_job_a_line_a_task_and_the_bottleneck() -> None:
    assert status_lines(status()) == [
        "wordcount  RUNNING  2 workers  4 subtasks  memory bound 64 MiB/worker  2.0 s",
        "  read_text -> flat_map  2x   40.0 k/s  busy  97%  pressured   2%  idle   1%",
        "  window(5 s) count      2x   1.90 M/s  busy  61%  pressured   0%  idle  39%",
        "  bottleneck: read_text -> flat_map (97 % busy)",
    ]


def test_a_job_that_stands_still_says_so_below_its_bottleneck() -> None:
    stalled = dataclasses.replace(status(5.5), stalled="nothing has moved for 12 s although records wait: worker 2")
    assert status_lines(stalled)[-1] == f"  stalled: {stalled.stalled}"
    stream = io.StringIO()
    Progress(stream).show(stalled)
    assert stream.getvalue().endswith(f"  stalled: {stalled.stalled}\n")


def test_event_time_is_shown_with_its_lag_and_late_records_are() -> None:
    now = status()
    first = dataclasses.replace(now.tasks[0], watermark_ms=1_000_000_000_000, watermark_lag_seconds=4.25)
    second = dataclasses.replace(first, name="window", watermark_lag_seconds=-7200.0, late_records=3)
    ended = dataclasses.replace(first, watermark_ms=2**63 - 1, watermark_lag_seconds=None)
    lines = status_lines(dataclasses.replace(now, tasks=(first, second, ended)))
    assert lines[4:6] == [
        "  event time of read_text -> flat_map: 2001-09-09 01:46:40, 4.2 s behind the wall clock",
        "  event time of window: 2001-09-09 01:46:40, 2:00:00 h ahead of the wall clock, late 3",
    ]
    assert len([line for line in lines if "event time" in line]) == 2


def test_a_source_that_waits_for_others_says_so() -> None:
    now = status()
    waiting = dataclasses.replace(now.tasks[0], idle=0.9, aligning=0.85)
    shown = dataclasses.replace(now, tasks=(waiting, *now.tasks[1:]))
    assert "  read_text -> flat_map waits for the sources it is aligned with, 85% of the time" in status_lines(shown)


def test_what_is_told_stays_above_what_is_rewritten() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show(status())
    progress.tell("two\nlines")
    progress.show(status())
    shown = terminal.getvalue()
    assert shown.count("\x1b[4A\x1b[J") == 1
    assert "\x1b[4A\x1b[Jtwo\nlines\n\x1b[?7lwordcount  RUNNING" in shown


def test_on_a_terminal_the_lines_are_rewritten_in_place() -> None:
    terminal = Terminal()
    progress = Progress(terminal)
    progress.show(status())
    progress.show(status())
    progress.clear()
    progress.clear()
    assert terminal.getvalue().count("\x1b[4A\x1b[J") == 2
    assert terminal.getvalue().endswith("\x1b[J")


@pytest.mark.parametrize("name", ["read_text -> " * 20, "語を数える" * 20], ids=["narrow", "wide"])
def test_lines_that_are_wider_than_the_terminal_are_cut_and_leave_nothing_behind(name: str) -> None:
    """Letters of two columns too: what the terminal wraps, the next rewriting would not find."""
    terminal = Terminal()
    progress = Progress(terminal)
    wide = dataclasses.replace(status().tasks[0], name=name)
    for _ in range(3):
        progress.show(dataclasses.replace(status(), tasks=(wide, wide)))
    screen = pyte.Screen(60, 20)
    pyte.Stream(screen).feed(terminal.getvalue().replace("\n", "\r\n"))
    shown = [line.rstrip() for line in screen.display if line.strip()]
    assert len(shown) == 4
    assert shown[0].startswith("wordcount  RUNNING")
    assert shown[1] == shown[2]
    assert shown[1].startswith(f"  {name[:20]}"[: len(shown[1]) - 1])
    assert shown[3].startswith("  bottleneck: ")


def test_elsewhere_a_line_is_added_now_and_then() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    for seconds in (0.5, 5.2, 6.0, 9.9, 10.4):
        progress.show(status(seconds))
    progress.clear()
    assert [line.split("  ")[2] for line in stream.getvalue().splitlines()] == ["5 s", "10 s"]
    assert "\x1b" not in stream.getvalue()


def test_a_result_is_a_table_that_names_the_bottleneck() -> None:
    now = status()
    result = JobResult(now.name, "ended", now.workers, now.seconds, now.tasks, now.bottleneck)
    lines = str(result).split("\n")
    assert lines[0] == "3,800,000 records in 2.00 s, 1,900,000 a second; 9 MiB moved locally, 9 MiB over TCP"
    assert lines[1].split() == ["task", "subtasks", "in", "out", "busy", "back-pressured", "idle", "interpreter"]
    assert lines[3].split() == ["window(5", "s)", "count", "2", "3,800,000", "10", "61%", "0%", "39%", "0%"]
    assert lines[-1] == "bottleneck: read_text -> flat_map (97 % busy)"


def test_a_result_in_a_notebook_is_html_that_cannot_be_broken_by_names() -> None:
    task = TaskReport("<b>&", 1, 1, 1, 1, 0, 0, 1, 0, 0, 1)
    shown = JobResult("<i>", "ended", 0, 1.0, (task,), None)._repr_html_()
    assert "<td>&lt;b&gt;&amp;</td>" in shown
    assert "<i>" not in shown


def test_what_the_terminal_shows_of_ctrl_c_does_not_keep_lines_from_being_taken_away() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    progress = Progress(terminal)
    progress.show(status())
    shown = len(terminal.getvalue())
    # The cursor stands behind a ^C: what follows has to begin at the left.
    progress.clear()
    assert terminal.getvalue()[shown:].startswith("\r")


def test_a_status_reads_as_a_table_and_a_job_as_a_line() -> None:
    text = str(status())
    assert text.startswith("wordcount: running, 2 workers; 3,800,000 records in 2.00 s")
    assert "window(5 s) count" in text
    env = fn.Environment(name="named")
    env.from_collection([1]).collect()
    with env.execute_async() as job:
        job.wait()
        assert repr(job).startswith("<Job 'named': ended, ")
        assert repr(job).endswith(" s, 1 records>")
