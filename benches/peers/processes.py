"""Runs the programs of peers, watches what they use, and leaves nothing of them behind.

One program runs at a time. This process adopts orphans (`adopt_orphans`), so whatever a peer starts stays below it:
the memory of all of it is seen, and all of it can be ended, also after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interface import Unavailable


@dataclass(slots=True)
class Usage:
    """What the processes of a program used while it ran."""

    peaks_kb: dict[int, int] = field(default_factory=dict)
    """High-water mark of each process."""
    times: list[float] = field(default_factory=list)
    """When CPU time was read, on the monotonic clock."""
    cpu_seconds: list[float] = field(default_factory=list)
    """CPU time of all processes until then."""

    @property
    def peak_rss_mb(self) -> float:
        """Sum of the high-water marks of all processes, in MB (10^6 bytes)."""
        return sum(self.peaks_kb.values()) * 1024 / 1e6

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds of all processes between two moments of the monotonic clock, to about a tenth of a second."""
        return self._cpu_at(end) - self._cpu_at(start)

    def _cpu_at(self, moment: float) -> float:
        after = bisect_right(self.times, moment)
        if after == 0 or after == len(self.times):
            return self.cpu_seconds[-1] if after else 0.0
        before = after - 1
        share = (moment - self.times[before]) / (self.times[after] - self.times[before])
        return self.cpu_seconds[before] + share * (self.cpu_seconds[after] - self.cpu_seconds[before])


@dataclass(frozen=True, slots=True)
class Outcome:
    """A program that has ended well."""

    report: dict[str, Any]
    """The last line of its standard output, which is JSON."""
    usage: Usage


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(command: Sequence[str], *, env: Mapping[str, str] | None = None, seconds: float = 120.0) -> Outcome:
    """Run a program to its end.

    Parameters
    ----------
    command
        The program; its last line of output is a JSON object.
    env
        Variables to add to the environment.
    seconds
        How long it may take.

    Raises
    ------
    Unavailable
        It failed or took too long; the text holds its last words.
    """
    words, usage = _run(command, env or {}, seconds)
    try:
        report = json.loads(words.strip().rpartition("\n")[2])
    except ValueError as error:
        raise Unavailable(f"no figures in what it printed{_last_words(words)}") from error
    return Outcome(report, usage)


def run_silent(command: Sequence[str], *, env: Mapping[str, str] | None = None, seconds: float = 120.0) -> Usage:
    """Run a program whose output is of no interest; otherwise as `run`."""
    return _run(command, env or {}, seconds)[1]


def end_all() -> None:
    """Kill all that this process has started, and what that has started."""
    while descendants := _descendants():
        for pid in descendants:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in descendants:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _run(command: Sequence[str], env: Mapping[str, str], seconds: float) -> tuple[str, Usage]:
    """Run a program; return its standard output and what it used."""
    usage = Usage()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        # A session of its own: Ctrl-C reaches this process alone, which then ends everything below it.
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **env},
            start_new_session=True,
        )
        try:
            ended_in_time = _watch(program, usage, time.monotonic() + seconds)
        finally:
            end_all()
        words, complaints = _text(output), _text(errors)
    if not ended_in_time:
        raise Unavailable(f"not done after {seconds:.0f} s{_last_words(complaints)}")
    if program.returncode != 0:
        raise Unavailable(f"exit code {program.returncode}{_last_words(complaints or words)}")
    return words, usage


def _watch(program: subprocess.Popen[bytes], usage: Usage, deadline: float) -> bool:
    """Look at the processes until the program ends; return whether it did in time."""
    while True:
        _look(usage)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(_SECONDS_BETWEEN_LOOKS)
            return True
        if time.monotonic() > deadline:
            return False


def _look(usage: Usage) -> None:
    cpu_ticks = 0
    for pid in _descendants():
        with contextlib.suppress(OSError, IndexError):
            # Times of a process and of its children that have ended.
            cpu_ticks += sum(map(int, _stat(pid)[11:15]))
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    usage.peaks_kb[pid] = int(line.split()[1])
    usage.times.append(time.monotonic())
    usage.cpu_seconds.append(cpu_ticks / os.sysconf("SC_CLK_TCK"))


def _descendants() -> list[int]:
    """List all processes below this one that are not this one; children after parents."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                children.setdefault(int(_stat(int(entry))[1]), []).append(int(entry))
    found = list(children.get(os.getpid(), []))
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on; the name before it may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _text(file: Any) -> str:
    file.seek(0)
    text: str = file.read().decode(errors="replace")
    return text


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A Java stack trace ends with frames; what went wrong is above them.
    telling = [line for line in lines if not line.startswith(("at ", "..."))]
    return f": {telling[-1][:_SHOWN]}" if telling else ""


_PR_SET_CHILD_SUBREAPER = 36
_SECONDS_BETWEEN_LOOKS = 0.1
_SHOWN = 200
