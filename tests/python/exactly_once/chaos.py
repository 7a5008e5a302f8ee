"""Kills what runs a job, again and again, and counts what is missing and what is there twice."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Chaos:
    """One job, and what has become of it."""

    job: str
    """Function of ``jobs.py`` that describes it."""
    folder: Path
    """For its input, its output and its checkpoints."""
    kills: int
    """How often something is killed; the job is given input enough."""
    seed: int = 0
    workers_killed: int = 0
    jobs_killed: int = 0
    other: Counter[str] = field(default_factory=Counter)
    """What else was done, and how often."""
    runs: int = 0
    log: list[str] = field(default_factory=list)
    _parallelism: int = 2
    _is_impaired: bool = False
    """The storage was gone, or the disk full, in this run: it may have ended because of that."""

    def run(self) -> None:
        """Run the job to its end, whatever it takes."""
        draw = random.Random(self.seed)
        self._storage.mkdir()
        self._link.symlink_to(self._storage)
        (self.folder / "no folder").touch()
        while True:
            self.runs += 1
            self._is_impaired = False
            process = self._start(draw)
            self._disturb(process, draw)
            output = process.communicate()[0]
            self.log.append(f"run {self.runs}: exit {process.returncode}\n{output[-2000:]}")
            self.jobs_killed += process.returncode == -signal.SIGKILL
            if process.returncode == 0:
                return
            is_expected = process.returncode == -signal.SIGKILL or self._is_impaired or self._never_ran(output)
            assert is_expected, self.log[-1]

    @property
    def _storage(self) -> Path:
        return self.folder / "kept"

    @property
    def _link(self) -> Path:
        """What the job knows the storage by."""
        return self.folder / "checkpoints"

    def _never_ran(self, output: str) -> bool:
        """Say whether a run ended before the job came to run: then it is not started again by itself."""
        if "flownet.errors.LaunchError: " in output and "its process was killed by signal 9" in output:
            return True
        lost = "flownet.errors.LaunchError: " in output or "flownet.errors.WorkerLostError: " in output
        return lost and not any(self._storage.rglob("manifest"))

    def _start(self, draw: random.Random) -> subprocess.Popen[str]:
        # In the first run as in most others; a job goes on with other subtasks, too.
        if self.runs > 1:
            self._parallelism = draw.choice([1, 2, 2, 3])
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "flownet",
                "run",
                "--workers=2",
                "-r",
                str(self._link),
                "-s",
                "0.15",
                self._program(),
            ],
            env={**os.environ, **self._environ()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _program(self) -> str:
        """What is run."""
        return f"{HERE / 'jobs.py'}:{self.job}"

    def _environ(self) -> dict[str, str]:
        """What it is told."""
        turn = 0 if self.job in IN_LINE else self.runs % 3
        return {
            "CHAOS_INPUT": str(self.folder / "in"),
            "CHAOS_OUTPUT": str(self.folder / "out"),
            "CHAOS_RATE": "2000/s",
            "CHAOS_PARALLELISM": str(self._parallelism),
            # By turns: never, at once, when it has taken too long.
            "FLOWNET_CHECKPOINT_UNALIGNED": ["false", "true", "false"][turn],
            "FLOWNET_CHECKPOINT_ALIGNED_TIMEOUT": ["none", "none", "5ms"][turn],
        }

    def _disturb(self, process: subprocess.Popen[str], draw: random.Random) -> None:
        """Do something to the workers of a run, or to all of it, until it ends."""
        while process.poll() is None and self.workers_killed + self.jobs_killed < self.kills:
            # Long enough, now and then, for a checkpoint; short enough, often, to come during a recovery. The first
            # thing that happens is a kill, and soon: the shortest of jobs has had one before it ends.
            is_first = self.workers_killed + self.jobs_killed == 0
            time.sleep((1.0 if is_first else draw.choice([0.05, 0.3, 1.0, 2.0, 4.0])) * draw.random())
            workers = _children(process.pid)
            what = 1.0 if is_first else draw.random()
            if what < 0.2:
                return process.kill()
            if not workers:
                continue
            worker = draw.choice(workers)
            with suppress(ProcessLookupError):
                if what < 0.3:
                    self._stand_still(worker, draw.random())
                elif what < 0.4:
                    self._take_storage(0.5 * draw.random())
                elif what < 0.5:
                    self._fill_disk([process.pid, *workers], 0.5 * draw.random())
                else:
                    os.kill(worker, signal.SIGKILL)
                    self.workers_killed += 1

    def _stand_still(self, worker: int, seconds: float) -> None:
        self.other["stopped and gone on with"] += 1
        os.kill(worker, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(worker, signal.SIGCONT)

    def _take_storage(self, seconds: float) -> None:
        """Let the name of the storage lead to a file for a while, where no folder can be made either."""
        self.other["without storage"] += 1
        self._is_impaired = True
        self._lead_to(self.folder / "no folder")
        time.sleep(seconds)
        self._lead_to(self._storage)

    def _lead_to(self, target: Path) -> None:
        other = self.folder / "link"
        other.symlink_to(target)
        other.replace(self._link)

    def _fill_disk(self, processes: list[int], seconds: float) -> None:
        """Let no file grow any more: writes end in the middle, and with an error."""
        self.other["disk full"] += 1
        self._is_impaired = True
        limits = [(pid, _limit_files(pid, 2000)) for pid in processes]
        time.sleep(seconds)
        for pid, before in limits:
            if before is not None:
                _limit_files(pid, before)

    def lines(self) -> list[str]:
        """What the job has written, as others see it."""
        out = self.folder / "out"
        if (out / "lines.db").exists():
            return _rows(out / "lines.db")
        files = sorted([*out.rglob("*.txt"), *out.rglob("*.csv")])
        return [line for file in files for line in file.read_text().splitlines()]

    def judge(self, expected: Iterable[str]) -> tuple[int, int]:
        """Count what is missing and what is too much."""
        wanted, found = Counter(expected), Counter(self.lines())
        return (wanted - found).total(), (found - wanted).total()

    def __str__(self) -> str:
        others = "".join(f", {number} {what}" for what, number in sorted(self.other.items()))
        return f"{self.workers_killed} workers and {self.jobs_killed} jobs killed, {self.runs} runs{others}"


def _limit_files(pid: int, most_bytes: int) -> int | None:
    """Set how long files of a process may become; returns what it was, or None if the process is gone."""
    with suppress(ProcessLookupError, PermissionError):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, hard))
        return soft
    return None


def _rows(path: Path) -> list[str]:
    database = sqlite3.connect(path)
    try:
        lines = [line for (line,) in database.execute("select line from lines")]
        return lines + [f"{word} {number}" for word, number in database.execute("select * from counts")]
    finally:
        database.close()


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


def write_input(folder: Path, records: int, seed: int = 0) -> list[tuple[int, str]]:
    """Write lines of a time and a word, out of order within a second and a half; return them."""
    draw = random.Random(seed)
    words = [f"word{number}" for number in range(40)]
    lines = [(5 * number + draw.randrange(1500), draw.choice(words)) for number in range(records)]
    (folder / "in").mkdir()
    for part in range(4):
        share = lines[part * records // 4 : (part + 1) * records // 4]
        (folder / "in" / f"{part}.txt").write_text("".join(f"{time_ms} {word}\n" for time_ms, word in share))
    return lines


def expected_running(lines: list[tuple[int, str]]) -> list[str]:
    """What ``running_counts`` writes."""
    totals = Counter(word for _, word in lines)
    return [f"{word} {number}" for word, total in totals.items() for number in range(1, total + 1)]


def expected_windows(lines: list[tuple[int, str]]) -> list[str]:
    """What ``windowed_counts`` writes."""
    counts = Counter((word, time_ms // 1000 * 1000) for time_ms, word in lines)
    return [f"{word} {start} {count}" for (word, start), count in counts.items()]


def expected_lines(lines: list[tuple[int, str]]) -> list[str]:
    """What is every line once."""
    return [f"{time_ms} {word}" for time_ms, word in lines]


def expected_sessions(lines: list[tuple[int, str]]) -> list[str]:
    """What ``sessions`` writes."""
    found: dict[str, list[list[int]]] = {}
    for time_ms, word in sorted(lines):
        mine = found.setdefault(word, [])
        if mine and time_ms < mine[-1][1]:
            mine[-1][1:] = [time_ms + 100, mine[-1][2] + 1]
        else:
            mine.append([time_ms, time_ms + 100, 1])
    return [f"{word} {start} {end} {count}" for word, mine in found.items() for start, end, count in mine]


def expected_timers(lines: list[tuple[int, str]]) -> list[str]:
    """What ``timers`` writes."""
    counts = Counter((word, time_ms // 1000) for time_ms, word in lines)
    return [f"{word} {1000 * (second + 1)} {count}" for (word, second), count in counts.items()]


def expected_pairs(lines: list[tuple[int, str]]) -> list[str]:
    """What ``interval_join`` writes."""
    by_word: dict[str, list[int]] = {}
    for time_ms, word in sorted(lines):
        by_word.setdefault(word, []).append(time_ms)
    return [
        f"{one} {word} {two} {word}"
        for word, times in by_word.items()
        for at, one in enumerate(times)
        for two in itertools.takewhile(lambda time_ms, one=one: time_ms <= one + 100, times[at + 1 :])  # type: ignore[misc]
        if two > one
    ]


def expected_pipelines(lines: list[tuple[int, str]]) -> list[str]:
    """What ``pipelines`` writes."""
    return expected_lines(lines) + expected_running(lines) + expected_lines(lines)


def expected_rows(lines: list[tuple[int, str]]) -> list[str]:
    """What ``into_sqlite`` writes."""
    counts = Counter(word for _, word in lines)
    return expected_lines(lines) + [f"{word} {count}" for word, count in counts.items()]


EXPECTED = {
    "running_counts": expected_running,
    "windowed_counts": expected_windows,
    "late_windows": expected_lines,
    "sessions": expected_sessions,
    "timers": expected_timers,
    "interval_join": expected_pairs,
    "calls": expected_lines,
    "rounds": expected_lines,
    "into_csv": expected_lines,
    "into_sqlite": expected_rows,
    "pipelines": expected_pipelines,
}


IN_LINE = {"rounds"}
"""Jobs whose checkpoints may not overtake."""


def chaos(job: str, folder: Path, kills: int, records: int, seed: int) -> Chaos:
    """Run a job under kills and hold what it wrote against what it should have.

    Raises
    ------
    AssertionError
        Something is missing, or there twice.
    """
    lines = write_input(folder, records, seed)
    disturbed = Chaos(job, folder, kills, seed)
    disturbed.run()
    losses, doublings = disturbed.judge(EXPECTED[job](lines))
    said = "\n".join(disturbed.log)
    assert (losses, doublings) == (0, 0), f"{losses} lost, {doublings} doubled; seed {seed}, {disturbed}\n{said}"
    return disturbed
