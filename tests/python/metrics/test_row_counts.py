"""Jobs whose records are batches tell how many rows moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flownet as fn

STRUCTURE = np.dtype([("name", "U4"), ("place", [("x", "<f8"), ("y", "<f8")]), ("pair", "<i4", (2,))])


def batches(count: int, rows: int) -> Iterator[np.ndarray[Any, Any]]:
    return (np.full(rows, number) for number in range(count))


def counted(result: fn.observation.JobResult) -> list[tuple[int, int, int, int]]:
    return [(task.records_in, task.rows_in, task.records_out, task.rows_out) for task in result.tasks]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_array_has_as_many_rows_as_its_first_dimension(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    collected = (
        env.from_iterable(batches(100, 50)).rebalance().map(lambda batch: batch[:10]).disable_chaining().collect()
    )
    result = env.execute(workers)
    assert len(collected) == 100
    assert counted(result) == [(100, 5000, 100, 5000), (100, 5000, 100, 1000), (100, 1000, 100, 1000)]
    assert "rows in  rows out" in str(result)


def test_rows_are_counted_where_records_are_placed_by_key_too() -> None:
    env = fn.Environment(parallelism=2)
    arrays = [np.zeros(7, STRUCTURE), np.zeros((3, 4)), np.zeros(0), np.zeros(()), "text", {"a": np.zeros(5)}]
    env.from_collection(arrays).key_by(lambda record: isinstance(record, str)).reduce(
        lambda one, other: other
    ).collect()
    result = env.execute()
    # An array of no rows counts as none, one without dimensions and all that is no array as one.
    rows = 7 + 3 + 0 + 1 + 1 + 1
    assert counted(result)[0] == (6, rows, 6, rows)
    assert counted(result)[1][:2] == (6, rows)


def test_of_other_records_each_is_a_row_and_none_is_told() -> None:
    env = fn.Environment()
    env.from_iterable(range(100)).rebalance().map(lambda n: (n, n)).collect()
    result = env.execute()
    assert all(task.rows_in == task.records_in and task.rows_out == task.records_out for task in result.tasks)
    assert "rows" not in str(result)


def test_a_sample_has_the_rows_of_each_subtask() -> None:
    env = fn.Environment(parallelism=1)
    env.from_iterable(batches(10, 50)).rebalance().map(lambda batch: batch).collect()
    with env.execute_async() as job:
        job.wait()
        assert [(task.rows_in, task.rows_out) for task in job.sample().tasks] == [(500, 500)] * 3
