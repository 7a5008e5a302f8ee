"""Files that are followed, and splits that come while a job runs: each record counts once, whatever happens."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .failures import FailsOnce, lines


def until(folder: Path, count: int, job: fn.Job) -> None:
    """Wait until there are so many lines; a job that has ended before raises why."""
    while len(lines(folder)) < count:
        time.sleep(0.005)
        assert job.status().state != "ended" or job.wait() is None


JOB = """
import sys
import flownet as fn
folder, parallelism, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
env = fn.Environment(parallelism=parallelism, max_parallelism=16, buffer_timeout="5ms")
env.enable_checkpointing("30ms", storage=f"{folder}/kept")
words = env.read_text(f"{folder}/in", watch="10ms").uid("words")
counts = words.key_by(lambda line: line.split()[0]).count().uid("counts")
counts.map(lambda pair: f"{pair[0]} {pair[1]}").write_text(f"{folder}/out").uid("out")
env.execute(workers)
"""


class Writer:
    """Appends to files, makes new ones and renames old ones."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, 0
        folder.mkdir()

    def write(self, count: int) -> None:
        for _ in range(count):
            number = self.written
            path = self.folder / f"file{number // 100 % 4}"
            with open(path, "a") as file:
                # A line may come in two pieces.
                file.write(f"word{number % 7} ")
                file.flush()
                file.write(f"{number}\n")
            if number % 250 == 249:
                path.rename(self.folder / f"old{number}")
            self.written += 1

    def expected(self) -> list[str]:
        words = Counter(f"word{number % 7}" for number in range(self.written))
        return sorted(f"{word} {count + 1}" for word, total in words.items() for count in range(total))


def test_a_job_that_is_killed_and_gets_other_subtasks_reads_each_line_once(tmp_path: Path) -> None:
    writer, out = Writer(tmp_path / "in"), tmp_path / "out"
    for parallelism, workers in ((2, 2), (3, 0), (1, 1), (4, 2)):
        writer.write(300)
        before = len(lines(out))
        job = subprocess.Popen(
            [sys.executable, "-c", JOB, str(tmp_path), str(parallelism), str(workers)], start_new_session=True
        )
        try:
            while len(lines(out)) == before:
                assert job.poll() is None
                writer.write(1)
                time.sleep(0.005)
            writer.write(150)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        # While nobody looks.
        writer.write(40)
    env = fn.Environment(parallelism=2, max_parallelism=16, buffer_timeout="5ms")
    env.enable_checkpointing("30ms", storage=tmp_path / "kept")
    words = env.read_text(tmp_path / "in", watch="10ms").uid("words")
    counts = words.key_by(lambda line: line.split()[0]).count().uid("counts")
    counts.map(lambda pair: f"{pair[0]} {pair[1]}").write_text(out).uid("out")
    with env.execute_async(0) as last:
        until(out, writer.written, last)
        last.stop(drain=True)
        last.wait()
    assert lines(out) == writer.expected()
    batch = fn.Environment()
    read = batch.read_text(tmp_path / "in").collect()
    batch.execute(0)
    assert len(read) == writer.written


@pytest.mark.parametrize("when", ["at the start", "while it runs"])
def test_a_job_that_fails_reads_on_in_files_that_were_there_and_in_those_that_came(
    when: str, workers: int, tmp_path: Path
) -> None:
    writer = Writer(tmp_path / "in")
    writer.write(120)
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("20ms", storage=tmp_path / "kept")
    fails: FailsOnce[str] = FailsOnce("word0 49" if when == "at the start" else "word5 383", tmp_path / "failed")
    env.read_text(tmp_path / "in", watch="10ms").map(fails).write_text(tmp_path / "out")
    with env.execute_async(workers) as job:
        until(tmp_path / "out", writer.written, job)
        writer.write(400)
        until(tmp_path / "out", writer.written, job)
        job.stop(drain=True)
        assert job.wait().restarted == 1
    assert lines(tmp_path / "out") == sorted(f"word{number % 7} {number}" for number in range(writer.written))


class Followed:
    """A job over a folder, run again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()

    def run(self, expected: int) -> None:
        """Run until there are so many lines."""
        env = fn.Environment(parallelism=2, buffer_timeout="5ms")
        env.enable_checkpointing("20ms", storage=self.folder / "kept")
        env.read_text(self.folder / "in", watch="10ms").write_text(self.folder / "out")
        with env.execute_async(0) as job:
            while len(lines(self.folder / "out")) < expected and job.status().state != "ended":
                time.sleep(0.005)
            job.stop(drain=False)
            job.wait()


def test_of_a_file_that_is_gone_what_was_not_read_is_missed_and_told(tmp_path: Path) -> None:
    job = Followed(tmp_path)
    for name in "abc":
        (tmp_path / "in" / name).write_text(f"{name}\n")
    job.run(3)
    # One that was read is gone for good, and one is elsewhere, where it was not asked for.
    (tmp_path / "in" / "a").unlink()
    (tmp_path / "in" / "b").rename(tmp_path / "in" / "moved.pending")
    with open(tmp_path / "in" / "moved.pending", "a") as file:
        file.write("more\n")
    (tmp_path / "in" / "a").write_text("another\n")
    job.run(5)
    assert lines(tmp_path / "out") == ["a", "another", "b", "c", "more"]

    with open(tmp_path / "in" / "c", "a") as file:
        file.write("half")
        file.flush()
        (tmp_path / "in" / "d").write_text("d\n")
        job.run(6)
        # The end of its line never comes.
        (tmp_path / "in" / "c").unlink()
    with pytest.raises(
        errors.RestoreError, match="/in/c is gone, and 4 bytes of it had not been read.*put the file back"
    ):
        job.run(7)


@pytest.mark.parametrize(
    ("text", "how"), [("", "was cut to 0 bytes"), ("something else that is longer\n", "was written over")]
)
def test_a_file_that_lost_what_was_read_is_not_gone_on_with(text: str, how: str, tmp_path: Path) -> None:
    job = Followed(tmp_path)
    (tmp_path / "in" / "a").write_text("first line\n")
    job.run(1)
    (tmp_path / "in" / "a").write_text(text)
    with pytest.raises(errors.RestoreError, match=how):
        job.run(2)
    assert lines(tmp_path / "out") == ["first line"]


class Counting(fn.SplitReader[str]):
    """Ten records, then nothing more, or the end."""

    def __init__(self, split: str, number: int) -> None:
        self.split, self.number = split, number

    def read(self) -> list[str] | None:
        if self.number == 10:
            return None if self.split.startswith("ends") else []
        self.number += 1
        return [f"{self.split} {self.number}"]

    def position(self) -> int:
        return self.number


class Listed(fn.Source[str]):
    """Splits that a file lists; without the file nobody knows."""

    discovery_interval = "10ms"

    def __init__(self, file: Path) -> None:
        self.file = file

    def splits(self) -> list[str]:
        return self.file.read_text().split()

    def open(self, split: str, position: int | None) -> Counting:
        return Counting(split, position or 0)


def tens(splits: list[str]) -> list[str]:
    return sorted(f"{split} {number + 1}" for split in splits for number in range(10))


def test_splits_that_a_source_finds_while_its_job_runs_are_read_once(
    workers: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed, out = tmp_path / "listed", tmp_path / "out"
    listed.write_text("")
    splits: list[str] = []

    def find(*names: str) -> None:
        splits.extend(names)
        (tmp_path / "new").write_text(" ".join(splits))
        (tmp_path / "new").rename(listed)

    def job(parallelism: int, fails: str) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, max_parallelism=8, buffer_timeout="5ms", restart="fixed:3:10ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "kept")
        once: FailsOnce[str] = FailsOnce(fails, tmp_path / fails)
        env.from_source(Listed(listed)).uid("listed").map(once).write_text(out).uid("out")
        return env

    with job(3, "ends2 7").execute_async(workers) as running:
        find("one", "ends1")
        until(out, 20, running)
        listed.unlink()
        with caplog.at_level(logging.WARNING, logger="flownet"):
            while "cannot list" not in caplog.text:
                time.sleep(0.005)
        find("two", "ends2", "three")
        until(out, 50, running)
        running.stop(drain=False)
        assert running.wait().restarted == 1
    find("four")
    with job(2, "six 5").execute_async(workers) as running:
        until(out, 60, running)
        find("ends5", "six")
        until(out, 80, running)
        running.stop(drain=True)
        assert running.wait().restarted == 1
    assert lines(out) == tens(splits)


def test_every_subtask_knows_who_reads_what_is_found() -> None:
    from flownet.connectors.source import Assignment

    class Nothing(fn.Source[str]):
        discovery_interval = "1s"

        def position_of_new(self, split: str) -> int:
            return 7

    def readers() -> Iterator[Assignment]:
        while True:
            yield Assignment(Nothing(), ["a", "b", "c"])

    kept: list[Any] = [(0, "a", False, 1, []), (1, "x", True, 2, []), (1, "y", False, 3, [])]
    found = [(number, split, None) for number, split in enumerate(["a", "x", "y", "c", "n", "m"])]
    for subtasks in (1, 2, 3, 5):
        begun, later = [], []
        for subtask, assignment in zip(range(subtasks), readers(), strict=False):
            going, _ = assignment.resume(subtask, subtasks, 2, [0, 1], kept)
            begun += [(split, position) for split, position, _ in going]
            later += assignment.found(subtask, subtasks, found)
            assert assignment.found(subtask, subtasks, found) == []
        assert sorted(begun) == [("a", 1), ("b", 7), ("c", 7), ("y", 3)]
        assert sorted(later) == [("m", None), ("n", None)]
