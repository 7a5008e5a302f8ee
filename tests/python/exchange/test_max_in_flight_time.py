"""Records do not wait in buffers for longer than ``max_in_flight_time`` says, from the first one on."""

from __future__ import annotations

import bisect
import statistics
import time
from collections.abc import Iterator
from functools import partial

import pytest

import flownet as fn
from flownet.observation import TaskReport

RECORDS = 2400
WORK = 0.001
SETTING = 0.25


def stamps(count: int, subtask: int, subtasks: int) -> Iterator[tuple[int, float]]:
    """Make records that say when they were made, by the clock that all processes of a machine share."""
    return ((number, time.monotonic()) for number in range(subtask, count, subtasks))


def times(record: tuple[int, float], work: float) -> tuple[float, float]:
    """Take a while, and say when the record was made and when its turn came."""
    began = time.monotonic()
    time.sleep(work)
    return record[1], began


def before_each(times: list[tuple[float, float]]) -> list[int]:
    """How many records were on their way as each was made.

    Counted, and not how old it became: that is longer on a machine on which all stands still now and then.
    """
    made, began = (sorted(column) for column in zip(*times, strict=True))
    return [bisect.bisect_left(made, at) - bisect.bisect_right(began, at) for at in made]


def waited_for(
    max_in_flight_time: str | None,
    workers: int,
    parallelism: int,
    *,
    is_here: bool = False,
    count: int = RECORDS,
    work: float = WORK,
) -> tuple[list[int], fn.observation.JobResult]:
    """Run a fast source before a slow map, and say for how many others each record had to wait."""
    env = fn.Environment(parallelism=parallelism, max_in_flight_time=max_in_flight_time, name="ages")
    records = env.from_iterable(stamps(count, 0, 1) if is_here else partial(stamps, count))
    seen = records.key_by(lambda record: record[0]).map(partial(times, work=work)).name("slow").collect()
    result = env.execute(workers=workers)
    return before_each(list(seen)), result


def slowest_task(result: fn.observation.JobResult) -> TaskReport:
    return next(task for task in result.tasks if "slow" in task.name)


@pytest.mark.parametrize(
    ("workers", "parallelism", "is_here"),
    [(0, 1, True), (1, 1, False), (1, 1, True), (2, 1, True), (2, 4, False)],
    ids=["no worker", "local in a worker", "into a worker", "into one of two", "two by two"],
)
def test_records_are_not_much_older_than_the_setting_allows(workers: int, parallelism: int, is_here: bool) -> None:
    count = RECORDS * parallelism
    unbounded, _ = waited_for(None, workers, parallelism, is_here=is_here, count=count)
    bounded, result = waited_for(f"{SETTING}s", workers, parallelism, is_here=is_here, count=count)
    assert len(bounded) == len(unbounded) == count
    # All that the source has goes into buffers: the last record waits for all others.
    assert max(unbounded) > 0.8 * count
    # No more than are worked off in the time, at most.
    in_time = SETTING * parallelism / WORK
    assert statistics.quantiles(bounded, n=20)[-1] < 3 * in_time
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
    unbounded, _ = waited_for(None, workers, parallelism, count=count, work=work)
    bounded, result = waited_for(f"{SETTING}s", workers, parallelism, count=count, work=work)
    assert len(bounded) == len(unbounded) == count
    assert max(unbounded) > 0.8 * count
    assert statistics.quantiles(bounded, n=20)[-1] < 2 * (SETTING + floor) * parallelism / work
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
