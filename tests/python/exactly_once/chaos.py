"""Kills what runs a job, again and again, and counts what is missing and what is there twice."""

from __future__ import annotations

import os
import random
import signal
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
    runs: int = 0
    log: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run the job to its end, whatever it takes."""
        draw = random.Random(self.seed)
        while True:
            self.runs += 1
            process = self._start()
            self._disturb(process, draw)
            output = process.communicate()[0]
            self.log.append(f"run {self.runs}: exit {process.returncode}\n{output[-2000:]}")
            self.jobs_killed += process.returncode == -signal.SIGKILL
            if process.returncode == 0:
                return
            assert process.returncode == -signal.SIGKILL or self._never_ran(output), self.log[-1]

    def _never_ran(self, output: str) -> bool:
        """Say whether a run ended before the job came to run: then it is not started again by itself."""
        lost = "flownet.errors.LaunchError: " in output or "flownet.errors.WorkerLostError: " in output
        return lost and not any((self.folder / "checkpoints").rglob("manifest"))

    def _start(self) -> subprocess.Popen[str]:
        environ = {
            **os.environ,
            "CHAOS_INPUT": str(self.folder / "in"),
            "CHAOS_OUTPUT": str(self.folder / "out"),
            "CHAOS_RATE": "2000/s",
        }
        command = [sys.executable, "-m", "flownet", "run", "--workers", "2", "-r", str(self.folder / "checkpoints")]
        return subprocess.Popen(
            [*command, "-s", "0.15", f"{HERE / 'jobs.py'}:{self.job}"],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _disturb(self, process: subprocess.Popen[str], draw: random.Random) -> None:
        """Kill workers of a run, or all of it, until it ends."""
        while process.poll() is None and self.workers_killed + self.jobs_killed < self.kills:
            # Long enough, now and then, for a checkpoint; short enough, often, to come during a recovery.
            time.sleep(draw.choice([0.05, 0.3, 1.0, 2.0, 4.0]) * draw.random())
            workers = _children(process.pid)
            if draw.random() < 0.2:
                return process.kill()
            elif workers:
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    self.workers_killed += 1

    def lines(self) -> list[str]:
        """What the job has written, as others see it."""
        files = sorted((self.folder / "out").glob("*.txt"))
        return [line for file in files for line in file.read_text().splitlines()]

    def judge(self, expected: Iterable[str]) -> tuple[int, int]:
        """Count what is missing and what is too much."""
        wanted, found = Counter(expected), Counter(self.lines())
        return (wanted - found).total(), (found - wanted).total()

    def __str__(self) -> str:
        return f"{self.workers_killed} workers and {self.jobs_killed} jobs killed, {self.runs} runs"


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


EXPECTED = {"running_counts": expected_running, "windowed_counts": expected_windows}


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
