"""Sources whose records come later than their delay allows are named while the job runs, and in its result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import flownet as fn

RECORDS = 400


def one_in_twenty_is_late(split: int, position: int | None) -> Iterator[tuple[int, tuple[str, int]]]:
    for number in range(position or 0, RECORDS):
        time.sleep(0.004)
        behind_ms = 7_000 if number % 20 == 19 else 0
        yield number + 1, ("k", number * 100 - behind_ms)


def counted(env: fn.Environment, delay: str, *, rows: bool) -> Any:
    records = env.from_resumable(one_in_twenty_is_late, splits=[0, 1])
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
    assert said in str(result)
    assert 'Give delay="6900ms"' in str(result)
    assert any("came later than its delay allows" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("rows", [False, True])
def test_that_delay_does(rows: bool) -> None:
    env = fn.Environment()
    counted(env, "6900ms", rows=rows)
    result = env.execute(workers=0)
    assert sum(task.late_records for task in result.tasks) == 0
    assert result.tasks[0].out_of_order_records == 0
    assert "late" not in str(result)
