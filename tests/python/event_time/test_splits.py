"""Watermarks of the files that a source reads: each has its own, whatever the others hold."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

from .scripted import Punctual

SHAPES = [(0, 1), (0, 2), (2, 3)]
"""Workers and parallelism."""


def written(folder: Path, files: list[list[int]]) -> Path:
    """Write files of lines ``time,key``."""
    for number, times in enumerate(files):
        (folder / f"{number:03}").write_text("".join(f"{time},{time % 7}\n" for time in times))
    return folder


def parsed(line: str) -> tuple[int, str]:
    time, key = line.split(",")
    return int(time), key


def timed(env: fn.Environment, folder: Path, generator: Any) -> fn.Stream[tuple[int, str]]:
    strategy = fn.WatermarkStrategy.for_generator(generator).with_timestamp_assigner(0)
    return env.read_text(folder).map(parsed).assign_timestamps_and_watermarks(strategy)


def counts(stream: fn.Stream[tuple[int, str]]) -> fn.Stream[Any]:
    counted: fn.Stream[Any] = stream.key_by(1).window(fn.Tumbling("1s")).with_window().count()
    return counted.map(lambda result: (result[0], result[1].start_ms, result[2]))


def expected(files: list[list[int]]) -> Counter[tuple[str, int]]:
    return Counter((str(time % 7), time - time % 1000) for times in files for time in times)


def late(result: fn.observation.JobResult) -> int:
    return sum(task.late_records for task in result.tasks)


# A watermark behind each record: nothing hangs on how long the job takes.
@pytest.mark.parametrize("make", [lambda: Punctual(0), lambda: lambda: Punctual(0)], ids=["copied", "made"])
@pytest.mark.parametrize(("workers", "parallelism"), SHAPES)
def test_files_that_overlap_in_time_lose_no_record(
    tmp_path: Path, workers: int, parallelism: int, make: Callable[[], Any]
) -> None:
    chance = random.Random(7)
    files = [sorted(chance.randrange(60_000) for _ in range(4000)) for _ in range(5)]
    env = fn.Environment(parallelism=parallelism)
    results = counts(timed(env, written(tmp_path, files), make())).collect()
    result = env.execute(workers=workers)
    assert late(result) == 0
    assert {(key, start): count for key, start, count in results} == expected(files)


@pytest.mark.filterwarnings("ignore:.*behind key_by:flownet.errors.UsageWarning")
def test_one_generator_over_all_files_calls_them_late(tmp_path: Path) -> None:
    """Behind an exchange nobody knows of files: this is what each having its own is for."""
    files = [list(range(0, 60_000, 20)) for _ in range(3)]
    env = fn.Environment()
    lines = env.read_text(written(tmp_path, files)).map(parsed).key_by(1).map(lambda record: record)
    strategy: Any = fn.WatermarkStrategy.for_generator(Punctual(0)).with_timestamp_assigner(0)
    results = counts(lines.assign_timestamps_and_watermarks(strategy)).collect()
    result = env.execute(workers=0)
    assert late(result) > 0
    assert late(result) + sum(count for _, _, count in results) == 9000


def test_more_files_than_are_open_at_once_come_in_order_of_time(tmp_path: Path) -> None:
    chance = random.Random(8)
    files = [sorted(chance.randrange(60_000) for _ in range(chance.randrange(300))) for _ in range(60)]
    env = fn.Environment()
    results = counts(timed(env, written(tmp_path, files), Punctual(0))).collect()
    assert late(env.execute(workers=0)) == 0
    assert {(key, start): count for key, start, count in results} == expected(files)


class Progress(fn.ProcessFunction[Any, int]):
    """Says of each record how far event time had come."""

    def process(self, value: Any, ctx: fn.RecordContext) -> list[int]:
        return [ctx.current_watermark()]


@pytest.mark.parametrize("is_in_order", [True, False], ids=["one after the other", "at the same time"])
def test_time_does_not_wait_for_the_last_file(tmp_path: Path, is_in_order: bool) -> None:
    """Neither where files follow each other nor where all are of one time does a job hold more than a few polls."""
    count = 20_000
    each = [list(range(start, 5 * count, 5)) for start in range(5)]
    in_order = [list(range(number * count, (number + 1) * count)) for number in range(5)]
    env = fn.Environment()
    files = written(tmp_path, in_order if is_in_order else each)
    progress = timed(env, files, Punctual(0)).process(Progress()).collect()
    env.execute(workers=0)
    seen = list(progress)
    assert len(seen) == 5 * count
    assert seen == sorted(seen)
    for share in (0.3, 0.5, 0.7, 0.9):
        assert seen[int(share * len(seen))] > (share - 0.15) * 5 * count
