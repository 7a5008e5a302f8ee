"""Records do not wait in buffers for longer than ``max_in_flight_time`` says, from the first one on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial

import pytest

import flownet as fn

RECORDS = 2400
WORK = 0.001
SETTING = 0.25


def stamps(count: int, subtask: int, subtasks: int) -> Iterator[tuple[int, float]]:
    """Make records that say when they were made, by the clock that all processes of a machine share."""
    return ((number, time.monotonic()) for number in range(subtask, count, subtasks))


def age(record: tuple[int, float], work: float) -> float:
    """Take a while, and say how old the record was when its turn came."""
    waited = time.monotonic() - record[1]
    time.sleep(work)
    return waited


def ages(
    max_in_flight_time: str | None,
    workers: int,
    parallelism: int,
    *,
    is_here: bool = False,
    count: int = RECORDS,
    work: float = WORK,
) -> tuple[list[float], fn.JobResult]:
    """Run a fast source before a slow map."""
    env = fn.Environment(parallelism=parallelism, max_in_flight_time=max_in_flight_time, name="ages")
    records = env.from_iterable(stamps(count, 0, 1) if is_here else partial(stamps, count))
    waited = records.key_by(lambda record: record[0]).map(partial(age, work=work)).name("slow").collect()
    result = env.execute(workers=workers)
    return list(waited), result


def slowest_task(result: fn.JobResult) -> fn.TaskReport:
    return next(task for task in result.tasks if "slow" in task.name)


@pytest.mark.parametrize(
    ("workers", "parallelism", "is_here"),
    [(0, 1, True), (1, 1, False), (1, 1, True), (2, 1, True), (2, 4, False)],
    ids=["no worker", "local in a worker", "into a worker", "into one of two", "two by two"],
)
def test_records_are_not_much_older_than_the_setting_allows(workers: int, parallelism: int, is_here: bool) -> None:
    unbounded, _ = ages(None, workers, parallelism, is_here=is_here)
    bounded, result = ages(f"{SETTING}s", workers, parallelism, is_here=is_here)
    assert len(bounded) == len(unbounded) == RECORDS
    # All that the source has goes into buffers: the last record is as old as the job.
    alone = RECORDS * WORK / parallelism
    assert max(unbounded) > 0.8 * alone
    # A few may have been held up by whatever else the machine does.
    assert statistics.quantiles(bounded, n=20)[-1] < 3 * SETTING
    if parallelism == 1:
        assert statistics.median(bounded) < statistics.median(unbounded) / 2
    told = slowest_task(result)
    assert told.fill_limit is not None
    assert told.in_flight_seconds > 0
    assert f"in flight to {told.name}" in str(result) or told.in_flight_seconds < 0.1


@pytest.mark.parametrize("workers", [0, 2], ids=["no worker", "between two"])
def test_a_wide_exchange_is_bounded_too(workers: int) -> None:
    parallelism, work, count = 16, 0.005, 16 * 600
    # The floor of as many buffers as there may be, one record in each, and the time of the setting.
    floor = (4 * parallelism + 16) * work
    unbounded, _ = ages(None, workers, parallelism, count=count, work=work)
    bounded, result = ages(f"{SETTING}s", workers, parallelism, count=count, work=work)
    assert len(bounded) == len(unbounded) == count
    assert max(unbounded) > 0.8 * count * work / parallelism
    assert statistics.quantiles(bounded, n=20)[-1] < 2 * (SETTING + floor)
    assert statistics.median(bounded) < statistics.median(unbounded) / 2
    assert slowest_task(result).fill_limit is not None


def test_a_fast_job_has_full_buffers_and_is_told_nothing() -> None:
    env = fn.Environment(parallelism=2, name="fast")
    text = "x" * 50
    count = env.from_iterable(lambda subtask, subtasks: (text for _ in range(200_000))).rebalance().map(len)
    total = count.key_by(lambda length: length).count().collect()
    result = env.execute()
    assert max(number for _, number in total) == 400_000
    assert all(task.fill_limit is None for task in result.tasks), result
    assert "in flight" not in str(result)
