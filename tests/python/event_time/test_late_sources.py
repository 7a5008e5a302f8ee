"""Sources whose records come later than their delay allows are named while the job runs, and in its result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

import flownet as fn

RECORDS = 400


def one_in_twenty_is_late(split: int, position: int | None) -> Iterator[tuple[int, tuple[str, int]]]:
    for number in range(position or 0, RECORDS):
        time.sleep(0.004)
        behind_ms = 7_000 if number % 20 == 19 else 0
        yield number + 1, ("k", number * 100 - behind_ms)


def counted(env: fn.Environment, delay: str, *, rows: bool) -> Any:
    records = env.from_generator(one_in_twenty_is_late, splits=[0, 1])
    if rows:
        timed = records.to_rows({"k": "string", "t": "int64"}).assign_timestamps("t", delay=delay)
        return timed.key_by("k").window(fn.Tumbling("1s")).agg(n=fn.count()).collect()
    strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness(delay).with_timestamp_assigner(1)
    return records.assign_timestamps_and_watermarks(strategy).key_by(0).window(fn.Tumbling("1s")).count().collect()


@pytest.mark.parametrize("rows", [False, True])
def test_a_source_with_late_records_is_named_with_the_delay_that_would_do(
    rows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    env = fn.Environment()
    counted(env, "100ms", rows=rows)
    result = env.execute(workers=0)
    source = result.tasks[0]
    assert (source.timed_records, source.out_of_order_records) == (2 * RECORDS, 2 * RECORDS // 20)
    assert source.out_of_order_ms == 6_900
    said = f"40 of 800 records of {source.name} (5.0%) came later than its delay allows, up to 6.90 s behind"
    assert source.out_of_order_split in ("split 0", "split 1")
    said += f" earlier ones of their split ({source.out_of_order_split})"
    assert said in str(result)
    assert 'Give delay="6900ms"' in str(result)
    assert any("came later than its delay allows" in record.getMessage() for record in caplog.records)


def late_rows(path: Path, name: str, behind_ms: int) -> Path:
    """Rows in two row groups, of which one in twenty of the second is late."""
    times = [number * 100 for number in range(400)]
    times += [40_000 + number * 100 - (behind_ms if number % 20 == 19 else 0) for number in range(400)]
    pq.write_table(pa.table({"k": ["k"] * 800, "t": times}), path / name, row_group_size=400)
    return path / name


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["parquet", "csv", "text"])
def test_the_file_and_row_group_with_the_latest_record_are_named(kind: str, workers: int, tmp_path: Path) -> None:
    files = [late_rows(tmp_path, f"{name}.parquet", late) for name, late in (("a", 5_000), ("b", 9_000), ("c", 0))]
    if kind != "parquet":
        for file in files:
            pcsv.write_csv(pq.read_table(file), file.with_suffix(".csv"))
            file.unlink()
    env = fn.Environment(parallelism=2)
    if kind == "text":
        strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner(1)
        lines = env.read_text(tmp_path / "*.csv").filter(lambda line: '"t"' not in line)
        pairs = lines.map(lambda line: ("k", int(line.split(",")[1])))
        timed = pairs.assign_timestamps_and_watermarks(strategy)
        timed.key_by(0).window(fn.Tumbling("1s")).count().collect()
        expected = "b.csv"
    else:
        timing: dict[str, Any] = {"event_time": "t", "delay": "1s"}
        rows = env.read_parquet(tmp_path, **timing) if kind == "parquet" else env.read_csv(tmp_path, **timing)
        rows.key_by("k").window(fn.Tumbling("1s")).agg(n=fn.count()).collect()
        expected = "b.parquet, row group 1" if kind == "parquet" else "b.csv"
    result = env.execute(workers)
    (source,) = (task for task in result.tasks if task.timed_records)
    assert source.out_of_order_ms == 8_900
    assert source.out_of_order_split is not None
    assert source.out_of_order_split.endswith(expected)
    assert str(tmp_path) in source.out_of_order_split


def test_partitions_of_topics_are_named() -> None:
    pytest.importorskip("confluent_kafka")
    from flownet.connectors.kafka import KafkaSource

    assert KafkaSource._name_of(object.__new__(KafkaSource), ("orders", 3)) == "partition 3 of topic 'orders'"


@pytest.mark.parametrize("rows", [False, True])
def test_that_delay_does(rows: bool) -> None:
    env = fn.Environment()
    counted(env, "6900ms", rows=rows)
    result = env.execute(workers=0)
    assert sum(task.late_records for task in result.tasks) == 0
    assert result.tasks[0].out_of_order_records == 0
    assert "late" not in str(result)
