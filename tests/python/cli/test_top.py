"""``flownet top`` on a terminal, and where there is none."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.console import Console

import flownet as fn
from flownet.cli.job_snapshot import JobSnapshot
from flownet.cli.top_view import drawn, stacked
from flownet.internal.units import pressure

from .served import Serve

Python = Callable[..., subprocess.CompletedProcess[str]]


class Terminal:
    """A process on a terminal of its own, and what that shows."""

    def __init__(self, pid: int, terminal: int, columns: int, lines: int) -> None:
        self._pid = pid
        self._terminal = terminal
        self._size = (columns, lines)
        self.wrote = b""

    @property
    def lines(self) -> list[str]:
        """What it shows now, the empty lines left out: pyte knows no second screen, which begins empty and goes."""
        before, begins, second = self.wrote.partition(_SECOND_SCREEN)
        during, ends, after = second.partition(_FIRST_SCREEN)
        screen = pyte.Screen(*self._size)
        pyte.ByteStream(screen).feed(before + after if ends or not begins else during)
        return [line.rstrip() for line in screen.display if line.strip()]

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str) -> list[str]:
        """Wait until it shows a text, and return all that it shows then."""
        while not any(text in line for line in self.lines):
            assert self._read(), f"it ended before it showed {text!r}: {self.lines}"
        return self.lines

    def end(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        select.select([self._terminal], [], [])
        try:
            read = os.read(self._terminal, 65536)
        except OSError:
            # So Linux says that nobody has the other end any more.
            return False
        self.wrote += read
        return bool(read)


Open = Callable[..., Terminal]


@pytest.fixture
def top(tmp_path: Path) -> Iterator[Open]:
    opened = []

    def open_top(*arguments: str, columns: int = 100, lines: int = 30) -> Terminal:
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(tmp_path)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            command = [sys.executable, "-m", "flownet", "top", *arguments]
            # What pytest-xdist says of its own terminal is not true of this one.
            variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            os.execve(sys.executable, command, {**variables, "TERM": "xterm-256color"})
        opened.append((pid, terminal))
        return Terminal(pid, terminal, columns, lines)

    yield open_top
    for pid, terminal in opened:
        os.close(terminal)
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)


def rows(lines: list[str]) -> list[str]:
    """Lines of tasks."""
    start = next(place for place, line in enumerate(lines) if line.startswith("task "))
    end = next(place for place, line in enumerate(lines) if "serialising" in line and "back-pressured" in line)
    return [line for line in lines[start + 1 : end] if re.search(r"OK|LOW|HIGH", line)]


def test_it_shows_who_is_held_up_and_by_whom_and_goes_on_doing_so(serve: Serve, top: Open) -> None:
    served = serve("words", slow=True)
    terminal = top(served.url, "--interval", "0.1")
    lines = terminal.wait_for("HIGH")
    assert lines[0].startswith("words  RUNNING  ")
    assert lines[0].endswith("in one process  job 1")
    terminal.wait_for("bottleneck: slow")
    terminal.wait_for("checkpoints ")
    source, slow, *_ = rows(terminal.lines)
    assert source.startswith("from_collection")
    assert "HIGH" in source
    assert slow.split()[:2] == ["slow", "2"]
    assert "OK" in slow
    assert "█" in slow
    first = terminal.lines[0]
    while terminal.lines[0] == first:
        assert terminal._read()
    terminal.press("q")
    assert terminal.end() == 0
    assert terminal.lines[0].startswith("words  RUNNING"), "what was seen last stays on the terminal"
    assert _FIRST_SCREEN in terminal.wrote
    assert served.client.status("1").state == "running"


def test_ctrl_c_leaves_with_130_and_the_job_goes_on(serve: Serve, top: Open) -> None:
    served = serve("words")
    terminal = top(served.url)
    terminal.wait_for("RUNNING")
    terminal.press("\x03")
    assert terminal.end() == 130
    assert not any("cancelled" in line for line in terminal.lines)
    assert served.client.status("1").state == "running"


def test_sigterm_leaves_the_terminal_as_it_was(serve: Serve, top: Open) -> None:
    terminal = top(serve("words").url)
    terminal.wait_for("RUNNING")
    os.kill(terminal._pid, signal.SIGTERM)
    assert terminal.end() == 143
    assert _FIRST_SCREEN in terminal.wrote


def test_it_ends_with_the_job_and_shows_its_end(serve: Serve, top: Open) -> None:
    served = serve("words", actions=True)
    terminal = top(served.url, "--interval", "0.1")
    terminal.wait_for("RUNNING")
    served.client.stop("1")
    assert terminal.end() == 0
    assert terminal.lines[0].startswith("words  ENDED  ")
    assert len(rows(terminal.lines)) == 3


def test_a_job_that_fails_ends_with_why(serve: Serve, top: Open) -> None:
    served = serve("words")
    terminal = top(served.url, "--interval", "0.1")
    terminal.wait_for("RUNNING")
    served.fail()
    assert terminal.end() == 0
    assert terminal.lines[0].startswith("words  FAILED  ")
    assert any("ValueError: told to fail" in line for line in terminal.lines)


def test_a_process_that_has_gone_is_told(serve: Serve, top: Open) -> None:
    served = serve("words")
    terminal = top(served.url, "--interval", "0.1")
    terminal.wait_for("RUNNING")
    served.kill()
    assert terminal.end() == 0
    said = " ".join(terminal.lines)
    assert f"the process behind {served.url} has gone; this is what was seen last" in said
    assert len(rows(terminal.lines)) == 3


def test_a_process_that_stands_still_is_told_and_seen_again(serve: Serve, top: Open) -> None:
    served = serve("words")
    terminal = top(served.url, "--interval", "0.1")
    terminal.wait_for("RUNNING")
    served.process.send_signal(signal.SIGSTOP)
    try:
        terminal.wait_for("did not answer within")
    finally:
        served.process.send_signal(signal.SIGCONT)
    while any("did not answer" in line for line in terminal.lines):
        assert terminal._read()
    terminal.press("q")
    assert terminal.end() == 0


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (60, 8), (40, 6), (20, 3)])
def test_a_small_terminal_is_never_overrun(serve: Serve, top: Open, columns: int, lines: int) -> None:
    served = serve("語を数える" * 20)
    terminal = top(served.url, "--subtasks", "--interval", "0.1", columns=columns, lines=lines)
    shown = terminal.wait_for("more lines" if lines == 8 else "語")
    assert len(shown) <= lines
    assert shown[0].startswith("語")
    terminal.press("q")
    assert terminal.end() == 0


def test_80_columns_are_enough_for_all_columns(serve: Serve, top: Open) -> None:
    terminal = top(serve("words", slow=True).url, columns=80, lines=24)
    terminal.wait_for("HIGH")
    assert [row.split()[0] for row in rows(terminal.lines)] == ["from_collection", "slow", "count"]
    assert all(re.search(r"[kM]?B$", row) for row in rows(terminal.lines))
    terminal.press("q")
    terminal.end()


def test_once_prints_one_frame_and_so_does_a_pipe(serve: Serve, python: Python) -> None:
    served = serve("words")
    served.wait_for(lambda status: status.records > 0)
    for more in (("--once",), ()):
        printed = python("-m", "flownet", "top", served.url, *more)
        assert printed.returncode == 0, printed.stderr
        assert printed.stdout.startswith("words  RUNNING")
        assert printed.stdout.count("words") == 1
        assert "\x1b" not in printed.stdout
        assert "q leaves" not in printed.stdout
        assert len(rows(printed.stdout.splitlines())) == 3


def test_subtasks_have_a_line_each(serve: Serve, python: Python) -> None:
    served = serve("words")
    served.wait_for(lambda status: status.records > 0)
    printed = python("-m", "flownet", "top", served.url, "--subtasks")
    found = re.findall(r"^(\w+)\b.* (\d)  +[\d.]+ \S*/s", printed.stdout, re.MULTILINE)
    assert found == [("from_collection", "1"), ("slow", "1"), ("slow", "2"), ("count", "1"), ("count", "2")]


def test_the_newest_that_runs_is_shown_unless_another_is_named(serve: Serve, python: Python) -> None:
    served = serve("first", "second", "third", actions=True)
    served.client.cancel("3")
    served.wait_for(lambda status: status.state == "ended", job="3")
    shown = {more: python("-m", "flownet", "top", served.url, *more).stdout.split()[0] for more in [(), ("--job", "1")]}
    assert shown == {(): "second", ("--job", "1"): "first"}
    assert python("-m", "flownet", "top", served.url, "--job", "3").stdout.startswith("third")


def test_an_encoding_without_blocks_has_letters_instead(serve: Serve, python: Python) -> None:
    served = serve("über", slow=True)
    served.wait_for(lambda status: status.tasks[1].python > 0.5)
    printed = python("-m", "flownet", "top", served.url, env={**served.variables, "PYTHONIOENCODING": "ascii"})
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("?ber  RUNNING")
    assert "####" in printed.stdout, printed.stdout


def test_without_the_extra_the_way_to_it_is_said(python: Python) -> None:
    script = "import sys; sys.modules['rich'] = None; from flownet import cli; sys.exit(cli.main())"
    finished = python("-c", script, "top")
    assert finished.returncode == 1
    assert (
        finished.stderr == "flownet.errors.FlownetError: flownet top needs rich: pip install 'flownet-streams[top]'\n"
    )


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "1e9"])
def test_an_interval_that_makes_no_sense_is_refused(python: Python, interval: str) -> None:
    refused = python("-m", "flownet", "top", f"--interval={interval}")
    assert refused.returncode == 1
    assert "must lie between 0.05 and 3600 seconds" in refused.stderr


def test_pressure_is_a_word_as_flinks() -> None:
    words = [pressure(share) for share in (0.0, 0.10, 0.11, 0.50, 0.51, 1.0)]
    assert words == ["OK", "OK", "LOW", "LOW", "HIGH", "HIGH"]


def test_a_bar_says_what_a_busy_task_works_on_and_the_legend_by_which_letters() -> None:
    env = fn.Environment()
    env.from_collection(range(10)).collect()
    with env.execute_async() as job:
        job.wait()
        status, sample = job.status(), job.sample()
    whole: dict[str, Any] = {"back_pressured": 0.125, "interpreter": 0.125, "idle": 0.125}
    parts: dict[str, Any] = {"busy": 0.625, "python": 0.25, "serialising": 0.25, "rust": 0.125, **whole}
    status = replace(status, tasks=(replace(status.tasks[0], **parts),))
    sample = replace(sample, tasks=(replace(sample.tasks[0], **parts),))
    for encoding, bar, legend in [
        ("utf-8", "██████▆▆▆▆▆▆▄▄▄▓▓▓▒▒▒░░░", "█ Python ▆ serialising ▄ Rust ▓ back-pressured ▒ interpreter ░ idle"),
        ("ascii", "######======+++!!!~~~...", "# Python = serialising + Rust ! back-pressured ~ interpreter . idle"),
    ]:
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=160)
        for subtasks in (False, True):
            with console.capture() as printed:
                console.print(drawn(JobSnapshot("1", status, sample, None), console, subtasks=subtasks, height=None))
            (row,) = rows(printed.get().splitlines())
            assert f" {bar}  LOW " in row
            assert printed.get().rstrip().splitlines()[-1] == legend


def test_a_bar_is_full_and_true_to_its_parts() -> None:
    assert stacked((0.5, 0.25, 0.0, 0.25), 8) == [4, 2, 0, 2]
    assert stacked((1 / 3, 1 / 3, 0.0, 1 / 3), 10) == [4, 3, 0, 3]
    assert stacked((0.97, 0.01, 0.01, 0.01), 10) == [10, 0, 0, 0]
    assert stacked((0.0, 0.0, 0.0, 0.0), 10) == [0, 0, 0, 0], "it never ran"
    assert stacked((float("nan"), 0.0, 0.0, 0.0), 10) == [0, 0, 0, 0]


_SECOND_SCREEN = b"\x1b[?1049h"
_FIRST_SCREEN = b"\x1b[?1049l"
