"""Records whose clocks run ahead: they do not move event time, go on to their windows, and are counted."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import flownet as fn
from flownet.errors import ConfigError, PlanError

HOUR = 3_600_000
BASE = 1_000_000_000_000
RECORDS = 2_000
STRAYS = {10: 24 * HOUR, 700: 3 * HOUR, 701: 100 * HOUR}
"""By how much the clocks of these records are ahead."""


def records() -> Iterator[tuple[str, int]]:
    for number in range(RECORDS):
        yield "device", BASE + number * 1_000 + STRAYS.get(number, 0)


class Paced:
    """Makes batches of records, and waits after each until watermarks have been said."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, subtask: int, subtasks: int) -> pa.RecordBatchReader:
        schema = pa.schema([("name", pa.string()), ("ms", pa.int64())])

        def batches() -> Iterator[pa.RecordBatch]:
            rows = records() if subtask == 0 else iter(())
            while part := list(itertools.islice(rows, self.size)):
                yield pa.record_batch([[name for name, _ in part], [ms for _, ms in part]], schema=schema)
                # Watermarks are said every 200 ms.
                threading.Event().wait(0.25)

        return pa.RecordBatchReader.from_batches(schema, batches())


def windows_of_rows(max_ahead: str | None, size: int = 400) -> tuple[int, fn.observation.JobResult]:
    env = fn.Environment()
    rows = env.from_arrow(Paced(size), schema={"name": "utf8", "ms": "int64"})
    timed = rows.assign_timestamps("ms", delay="5s", max_ahead=max_ahead)
    counts = timed.key_by("name").window(fn.Tumbling("10s")).agg(n=fn.count()).collect()
    result = env.execute()
    return sum(counts.to_arrow()["n"].to_pylist()), result


def windows_of_objects(max_ahead: str | None) -> tuple[int, fn.observation.JobResult]:
    env = fn.Environment()
    strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("5s").with_timestamp_assigner(1)
    if max_ahead is not None:
        strategy = strategy.with_max_ahead(max_ahead)
    stream = env.from_iterable(records(), rate_limit=2_000).assign_timestamps_and_watermarks(strategy)
    counts = stream.key_by(0).window(fn.Tumbling("10s")).count().collect()
    result = env.execute(workers=0)
    return sum(count for _, count in counts), result


def ahead(result: fn.observation.JobResult) -> int:
    return sum(task.records_ahead for task in result.tasks)


@pytest.mark.parametrize("run", [windows_of_objects, windows_of_rows], ids=["objects", "rows"])
def test_strays_are_kept_and_counted_and_make_no_record_late(run: Any) -> None:
    counted, result = run("1h")
    assert (counted, ahead(result)) == (RECORDS, len(STRAYS))
    assert f"ahead: {len(STRAYS)} records were more than max_ahead ahead" in str(result)


@pytest.mark.parametrize("run", [windows_of_objects, windows_of_rows], ids=["objects", "rows"])
def test_without_a_bound_strays_make_others_late(run: Any) -> None:
    """What the test above would see."""
    counted, result = run(None)
    assert counted < RECORDS
    assert ahead(result) == 0
    assert "max_ahead keeps event time from following it" in str(result)


def test_a_gap_is_no_stray() -> None:
    env = fn.Environment()
    night = [*range(0, 60_000, 1_000), *range(10 * HOUR, 10 * HOUR + 60_000, 1_000)]
    table = pa.table({"ms": [BASE + ms for ms in night], "name": ["a"] * len(night)})
    rows = env.from_arrow(table).assign_timestamps("ms", delay="5s", max_ahead="1h")
    counts = rows.key_by("name").window(fn.Tumbling("1h")).agg(n=fn.count()).collect()
    result = env.execute()
    assert sum(counts.to_arrow()["n"].to_pylist()) == len(night)
    assert ahead(result) == 0


def test_subtasks_and_batches_make_no_difference_to_the_count() -> None:
    assert {ahead(windows_of_rows("1h", size)[1]) for size in (250, 2_000)} == {len(STRAYS)}


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (lambda strategy: strategy.with_max_ahead("0s"), ConfigError, "at least 1"),
        (lambda strategy: strategy.with_max_ahead("10us"), ConfigError, "whole number of milliseconds"),
        (lambda _: fn.WatermarkStrategy.no_watermarks().with_max_ahead("1h"), PlanError, "made of timestamps"),
        (
            lambda _: fn.WatermarkStrategy.for_generator(fn.WatermarkGenerator).with_max_ahead("1h"),
            PlanError,
            "made of timestamps",
        ),
    ],
)
def test_mistakes_are_told_where_the_bound_is_given(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake(fn.WatermarkStrategy.for_monotonous_timestamps())


def test_a_bound_that_is_none_is_told_of_rows() -> None:
    rows = fn.Environment().from_arrow(pa.table({"ms": [1]}))
    with pytest.raises(ConfigError, match="max_ahead"):
        rows.assign_timestamps("ms", delay="5s", max_ahead="0s")
    with pytest.raises(PlanError, match="max_ahead='1h' bounds event time that follows the rows.*give delay="):
        rows.assign_timestamps("ms", max_ahead="1h")
    with pytest.raises(PlanError, match="max_ahead='1h' bounds event time, and rows have none: give event_time="):
        fn.Environment().from_arrow(pa.table({"ms": [1]}), max_ahead="1h")


READERS: dict[str, Callable[[fn.Environment, pa.Table, Path, dict[str, Any]], fn.Rows]] = {
    "from_arrow": lambda env, table, path, timing: env.from_arrow(table, **timing),
    "from_numpy": lambda env, table, path, timing: env.from_numpy(
        table.to_pandas().to_records(index=False).astype([("name", "U8"), ("ms", "i8")]), **timing
    ),
    "read_parquet": lambda env, table, path, timing: (
        pq.write_table(table, path / "a.parquet", row_group_size=500),
        env.read_parquet(path, order="as listed", **timing),
    )[1],
    "read_csv": lambda env, table, path, timing: (
        pcsv.write_csv(table, path / "a.csv"),
        env.read_csv(path, **timing),
    )[1],
    "read_json": lambda env, table, path, timing: (
        (path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist())),
        env.read_json(path, **timing),
    )[1],
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("reader", sorted(READERS))
def test_readers_take_the_bound(reader: str, workers: int, tmp_path: Path) -> None:
    rows = list(records())
    table = pa.table({"name": [name for name, _ in rows], "ms": [ms for _, ms in rows]})
    for max_ahead, ahead in ((None, 0), ("1h", len(STRAYS))):
        env = fn.Environment()
        timing = {"event_time": "ms", "delay": "5s", "max_ahead": max_ahead}
        timed = READERS[reader](env, table, tmp_path, timing)
        counts = timed.key_by("name").window(fn.Tumbling("10s")).agg(n=fn.count()).collect()
        result = env.execute(workers)
        assert sum(task.records_ahead for task in result.tasks) == ahead
        if max_ahead is not None:
            assert sum(counts.to_arrow()["n"].to_pylist()) == RECORDS
