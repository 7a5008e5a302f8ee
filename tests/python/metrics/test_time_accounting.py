"""What a task's time is made of: what it works on, and what it waits for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import flownet as fn
from flownet.observation import JobSample, TaskReport, TaskSample


class Nowhere:
    """Keeps nothing."""

    def extend(self, records: list[int]) -> None:
        return None


def slow(number: int) -> int:
    time.sleep(0.002)
    return number


def wait_for(job: fn.Job, task: int, holds: Callable[[TaskReport], bool]) -> TaskReport:
    """Wait until something is true of a task of a job that runs."""
    while not holds(seen := job.status().tasks[task]):
        time.sleep(0.05)
    return seen


def sums_to_the_whole(status: fn.observation.JobStatus, sample: JobSample) -> None:
    # A subtask of which nothing was reported yet has spent no time.
    spent: list[TaskReport | TaskSample] = [*status.tasks, *(part for part in sample.tasks if part.seconds)]
    for shares in spent:
        whole = shares.busy + shares.back_pressured + shares.idle + shares.interpreter
        assert whole == pytest.approx(1)
        assert shares.python + shares.serialising + shares.rust == pytest.approx(shares.busy)
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
    env.enable_checkpointing("50ms", storage=tmp_path, allow_non_replayable=True)
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


def burn(number: int) -> int:
    """Work for some milliseconds."""
    return sum(range(100_000)) + number


def test_a_function_that_burns_is_python(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    env.from_iterable(range(300)).rebalance().map(burn).name("burn").collect()
    result = env.execute(workers)
    task = next(task for task in result.tasks if task.name.startswith("burn"))
    assert task.python > 3 * (task.serialising + task.rust)


def test_objects_that_are_moved_are_serialised(workers: int) -> None:
    nested = [{"name": f"item {number}", "sizes": [number, number / 2, None]} for number in range(300)]
    env = fn.Environment()
    env.from_iterable(itertools.repeat(nested, 6000)).rebalance().map(len).name("length").collect()
    result = env.execute(workers)
    # The rest is what it takes to free them again, as the function has them.
    for task in result.tasks[:2]:
        assert task.serialising > task.busy / 4, task


def test_columns_are_worked_on_in_rust_and_functions_of_batches_in_python(workers: int) -> None:
    batch = pa.record_batch({"key": [number % 7 for number in range(8000)], "value": list(range(8000))})

    def burnt(rows: pa.RecordBatch) -> pa.RecordBatch:
        burn(burn(0))
        return rows

    env = fn.Environment(parallelism=2)
    value = fn.col("value")
    for _ in range(20):
        value = (value * 7 + 3) % 1000
    rows = env.from_arrow(pa.Table.from_batches([batch] * 60).to_reader()).rebalance()
    rows.with_columns(value=value).rebalance().map_batches(burnt).rebalance().collect()
    result = env.execute(workers)
    _, columns, batches, *_ = result.tasks
    assert columns.rust > 2 * columns.python, columns
    assert batches.python > 2 * batches.rust, batches


def spin(number: int) -> int:
    for step in range(200_000):
        number += step
    return number


def test_waiting_for_the_interpreter_in_the_middle_of_a_call_is_not_busy() -> None:
    env = fn.Environment()
    numbers = env.from_iterable(itertools.count()).rebalance()
    numbers.map(spin).set_parallelism(4).name("score").collect(into=Nowhere())
    with env.execute_async() as job:
        # An interpreter runs one thread at a time, and the source wants it, too.
        # All four together are busy for little more than the time of one, once they run.
        wait_for(job, 1, lambda score: 0.05 < score.busy < 1.3 / 4 and score.interpreter > 0.5)
        bottleneck = job.status().bottleneck
        job.cancel()
    assert bottleneck is not None
    assert "waiting for the interpreter: use more workers" in bottleneck


def test_functions_that_wait_for_something_else_are_busy_all_the_same() -> None:
    lock = threading.Lock()

    def wait(number: int) -> int:
        # Each of them lets the interpreter go.
        if number % 2:
            time.sleep(0.01)
        else:
            lock.acquire(timeout=0.01)
        return number

    lock.acquire()
    env = fn.Environment(object_reuse=True)
    env.from_iterable(itertools.count()).rebalance().map(wait).set_parallelism(4).name("wait").collect(into=Nowhere())
    with env.execute_async() as job:
        waiting = wait_for(job, 1, lambda task: task.busy > 0.8)
        job.cancel()
    assert waiting.interpreter < 0.2
