"""Rows that come to this process while their job runs, or at once."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa
import pytest

import flownet as fn
from flownet import errors

TABLE = pa.table({"n": range(50_000), "text": [f"{n}" for n in range(50_000)]})


def without_end(env: fn.Environment) -> fn.Rows:
    def batches(subtask: int, subtasks: int) -> pa.RecordBatchReader:
        def each() -> Iterator[pa.RecordBatch]:
            while True:
                yield from TABLE.to_batches(max_chunksize=1_000)

        return pa.RecordBatchReader.from_batches(TABLE.schema, each())

    return env.from_arrow(batches, schema=TABLE.schema)


def test_rows_come_each_once_in_batches(env: fn.Environment, workers: int) -> None:
    even = env.from_arrow(TABLE).rebalance().filter(fn.col("n") % 2 == 0)
    with even.execute_and_collect(workers) as batches:
        found = [number for batch in batches for number in pa.record_batch(batch)["n"].to_pylist()]
        assert batches.result is not None
    assert sorted(found) == list(range(0, 50_000, 2))


def test_they_are_an_arrow_stream_that_is_read_batch_by_batch(env: fn.Environment) -> None:
    with without_end(env).execute_and_collect() as batches:
        reader = pa.RecordBatchReader.from_stream(batches)
        assert reader.schema == TABLE.schema
        assert [reader.read_next_batch().num_rows > 0 for _ in range(20)] == [True] * 20
    assert batches.job.status().state == "ended"


def test_others_read_them_to_their_end(env: fn.Environment) -> None:
    rows = env.from_arrow(TABLE).filter(fn.col("n") < 20_000)
    with rows.execute_and_collect() as batches:
        frame = pl.DataFrame(batches)
    assert (frame.height, frame["n"].sum()) == (20_000, sum(range(20_000)))
    with rows.execute_and_collect() as batches:
        assert pa.table(batches).sort_by("n") == TABLE.slice(0, 20_000)


def test_all_of_them_at_once(env: fn.Environment, workers: int) -> None:
    totals = env.from_arrow(TABLE).key_by(odd=fn.col("n") % 2).window(fn.EndOfInput()).agg(n=fn.count())
    rows = totals.select("odd", "n")
    assert sorted(rows.to_arrow(workers).to_pylist(), key=str) == [{"odd": 0, "n": 25_000}, {"odd": 1, "n": 25_000}]
    assert sorted(rows.to_polars(workers).rows()) == [(0, 25_000), (1, 25_000)]
    assert sorted(map(tuple, rows.to_pandas(workers).to_numpy().tolist())) == [(0, 25_000), (1, 25_000)]


def test_of_no_rows_the_columns_are_there(env: fn.Environment) -> None:
    assert env.from_arrow(TABLE).filter(fn.col("n") < 0).to_arrow() == TABLE.slice(0, 0)


def test_what_ends_the_job_is_raised(env: fn.Environment) -> None:
    broken = env.from_arrow(TABLE).with_columns(share=100 // (fn.col("n") - 30_000))
    with pytest.raises(errors.OperatorError, match="zero"):
        broken.to_arrow()
    with broken.execute_and_collect() as batches:
        # Others know of no error but a text.
        with pytest.raises(pa.ArrowException, match="zero"):
            pa.table(batches)
        with pytest.raises(errors.OperatorError, match="zero"):
            next(batches)


def test_rows_can_be_handed_over_while_the_job_runs(env: fn.Environment, workers: int) -> None:
    into: list[object] = []
    collected = env.from_arrow(TABLE).collect(into=into)
    env.execute(workers)
    assert sum(pa.record_batch(batch).num_rows for batch in into) == 50_000
    assert len(collected) == 0
    with pytest.raises(errors.PlanError, match=r"append\(batch\), not int 5"):
        env.from_arrow(TABLE).collect(into=5)  # type: ignore[arg-type]
