"""The end of a bounded input ends its results, and no event time that is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

MINUTE = 60_000


def three_minutes(minute: int, position: int | None) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield a record a second from a minute on."""
    for number in range(position or 0, 180):
        yield number + 1, ("k", minute * MINUTE + number * 1000)


def in_order() -> fn.WatermarkStrategy[Any]:
    return fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)


def tumbling(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    counted: fn.Stream[Any] = stream.key_by(0).window(fn.Tumbling("60s")).with_window().count().uid("windows")
    return counted.map(lambda result: f"{result[1].start_ms} {result[2]}")


def sessions(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    counted: fn.Stream[Any] = stream.key_by(0).window(fn.Session("30s")).with_window().count().uid("windows")
    return counted.map(lambda result: f"{result[1].start_ms} {result[2]}")


def rows(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    counted = stream.to_rows({"k": "string", "t": "int64"}).assign_timestamps("t", delay="0s").key_by("k")
    minutes = counted.window(fn.Tumbling("60s")).agg(n=fn.count()).uid("windows")
    return minutes.to_objects().map(lambda row: f"{row['n']}")


class Live(fn.KeyedProcessFunction[str, Any, str]):
    """Counts records that are not behind the watermark."""

    def process(self, value: Any, ctx: fn.ProcessContext[str]) -> list[str]:
        return ["late" if value[1] <= ctx.current_watermark() else "in time"]


def processed(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    return stream.key_by(0).process(Live()).uid("windows")


def lines(folder: Path) -> list[str]:
    return [line for path in folder.rglob("*") if path.is_file() for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("windows", "backfill", "both"),
    [
        (tumbling, 3, 6),
        (sessions, 1, 2),
        (rows, 3, 6),
        (processed, 180, 360),
    ],
)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_job_that_goes_on_from_a_finished_backfill_counts_live_records(
    tmp_path: Path,
    windows: Callable[[fn.Stream[Any]], fn.Stream[Any]],
    backfill: int,
    both: int,
    parallelism: int,
) -> None:
    """The live job has the windows of the backfill, and another source."""

    def run(source: str, minute: int) -> fn.observation.JobResult:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        env.enable_checkpointing("50ms", storage=tmp_path / "storage", allow_non_restored_state=True)
        records = env.from_generator(three_minutes, splits=[minute]).uid(source)
        windows(records.assign_timestamps_and_watermarks(in_order())).write_text(tmp_path / "out").uid("files")
        return env.execute(workers=0)

    run("backfill", 0)
    assert len(lines(tmp_path / "out")) == backfill
    assert sum(task.late_records for task in run("live", 10).tasks) == 0
    assert len(lines(tmp_path / "out")) == both
    assert "late" not in lines(tmp_path / "out")
