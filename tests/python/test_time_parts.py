"""What a task's time is made of: what it waits for, told apart."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flownet as fn


class Nowhere:
    """Keeps nothing."""

    def extend(self, records: list[int]) -> None:
        return None


def slow(number: int) -> int:
    time.sleep(0.002)
    return number


def wait_for(job: fn.Job, task: int, holds: Callable[[fn.TaskReport], bool]) -> fn.TaskReport:
    """Wait until something is true of a task of a job that runs."""
    while not holds(seen := job.status().tasks[task]):
        time.sleep(0.05)
    return seen


def sums_to_the_whole(status: fn.JobStatus, sample: fn.JobSample) -> None:
    # A subtask of which nothing was reported yet has spent no time.
    spent: list[fn.TaskReport | fn.TaskSample] = [*status.tasks, *(part for part in sample.tasks if part.seconds)]
    for shares in spent:
        whole = shares.busy + shares.back_pressured + shares.idle + shares.interpreter
        assert whole == pytest.approx(1)
        assert shares.waiting_for_credit + shares.waiting_for_pool == pytest.approx(shares.back_pressured)
        assert shares.awaiting + shares.aligning + shares.waiting_for_barrier <= shares.idle + 1e-9


def test_a_producer_before_a_slow_consumer_waits_for_credit(workers: int) -> None:
    env = fn.Environment(segment_size="1KiB", parallelism=2, max_in_flight_time=None)
    env.from_iterable(itertools.count()).rebalance().map(slow).collect(into=Nowhere())
    with env.execute_async(workers) as job:
        source = wait_for(job, 0, lambda source: source.waiting_for_credit > 0.3)
        sample = job.sample()
        job.stop()
        result = job.wait()
    assert source.waiting_for_pool < 0.1 < source.waiting_for_credit
    sums_to_the_whole(result, sample)


def test_a_producer_without_segments_waits_for_its_pool(workers: int) -> None:
    env = fn.Environment(segment_size="1KiB", network_memory="4KiB", max_in_flight_time=None)
    env.from_iterable(itertools.count()).rebalance().map(slow).collect(into=Nowhere())
    with env.execute_async(workers) as job:
        source = wait_for(job, 0, lambda source: source.waiting_for_pool > 0.3)
        sample = job.sample()
        job.stop()
        result = job.wait()
    assert source.waiting_for_credit < 0.1 < source.waiting_for_pool
    sums_to_the_whole(result, sample)


def test_a_task_with_one_slow_input_waits_for_its_barriers(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(segment_size="1KiB", max_in_flight_time=None)
    env.enable_checkpointing("50ms", storage=tmp_path, allow_unrepeatable=True)
    fast = env.from_iterable(itertools.count(), rate_limit=1000)
    held_up = env.from_iterable(itertools.count()).rebalance().map(slow).name("slow")
    fast.union(held_up).rebalance().map(lambda number: number).name("both").collect(into=Nowhere())
    with env.execute_async(workers) as job:
        names = [task.name for task in job.status().tasks]
        both = wait_for(job, names.index("both"), lambda both: both.waiting_for_barrier > 0.3)
        sources = [task for task in job.status().tasks if task.records_in]
        job.cancel()
    assert both.waiting_for_barrier <= both.idle
    assert all(task.waiting_for_barrier == 0 for task in sources if task.name != "both")
