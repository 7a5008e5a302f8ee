"""Event time of DataFrames: windows are those of Spark, in whatever order rows and partitions come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import flownet as fn
from flownet.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture(scope="module")
def expected(local: SparkSession) -> list[tuple[int, int]]:
    """Count by key and minute, as Spark does."""
    rows = events(local, 2).groupBy("key", "minute").count().collect()
    return sorted((row["key"], row["count"]) for row in rows)


def events(spark: SparkSession, partitions: int, *, order: str = "") -> DataFrame:
    """Make rows whose partitions lie behind each other in time, the newest first, as files in a folder may."""
    frame = spark.range(0, 30_000, 1, partitions).selectExpr(
        "id % 5 AS key", "(30000 - id) * 1000 AS ms", "(30000 - id) div 60 AS minute"
    )
    return frame.sortWithinPartitions(order) if order else frame


@pytest.mark.parametrize(("partitions", "workers"), [(2, 2), (5, 2), (1, 2), (3, 1)])
def test_windows_of_records_are_those_of_spark(
    local: SparkSession, expected: list[tuple[int, int]], partitions: int, workers: int
) -> None:
    env = fn.Environment(parallelism=2)
    strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner(1)
    timed = env.from_spark(events(local, partitions)).filter(bool).assign_timestamps_and_watermarks(strategy)
    counts = timed.key_by(0).window(fn.Tumbling("1min")).count().to_spark("key long, n long", workers=workers)
    assert sorted(map(tuple, counts.collect())) == expected


@pytest.mark.parametrize("delay", [None, "1s"])
@pytest.mark.parametrize(("partitions", "workers"), [(2, 2), (5, 2)])
def test_windows_of_rows_are_those_of_spark(
    local: SparkSession, expected: list[tuple[int, int]], partitions: int, workers: int, delay: str | None
) -> None:
    env = fn.Environment(parallelism=2)
    timed = env.from_spark(events(local, partitions), as_rows=True).assign_timestamps("ms", delay=delay)
    counts = timed.key_by("key").window(fn.Tumbling("1min")).agg(n=fn.count()).select("key", "n")
    assert sorted(map(tuple, counts.to_spark(workers=workers).collect())) == expected


@pytest.mark.parametrize("as_rows", [False, True])
def test_an_ordered_frame_moves_event_time_with_its_rows(
    local: SparkSession, expected: list[tuple[int, int]], as_rows: bool
) -> None:
    from flownet import spark

    frame = events(local, 4, order="ms").repartitionByRange(2, "ms").sortWithinPartitions("ms").localCheckpoint()
    env = fn.Environment(parallelism=2)
    if as_rows:
        timed = env.from_spark(frame, as_rows=True, ordered=True).assign_timestamps("ms", delay="1s")
        windows = timed.key_by("key").window(fn.Tumbling("1min")).agg(n=fn.count()).select("key", "n")
        counts = windows.to_spark(run=False)
    else:
        strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
        records = env.from_spark(frame, ordered=True).assign_timestamps_and_watermarks(strategy)
        counts = records.key_by(0).window(fn.Tumbling("1min")).count().to_spark("key long, n long", run=False)
    result = env.execute(on=spark.cluster(local, workers=2))
    assert sorted(map(tuple, counts.frame.collect())) == expected
    assert sum(task.late_records for task in result.tasks) == 0


def test_a_stream_of_another_source_keeps_its_promise_of_order(local: SparkSession) -> None:
    env = fn.Environment(parallelism=2)
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row[1])
    env.from_spark(events(local, 2)).assign_timestamps_and_watermarks(strategy).print()
    env.from_collection([(1, 1)]).assign_timestamps_and_watermarks(strategy).print()
    assigners = [node for node in env._dataflow.nodes if node.role == "assign_timestamps"]
    frame, other = [node.settings.get("assign_timestamps") for node in assigners]
    assert frame is not None
    assert other is not None
    assert (frame["watermarks"], other["watermarks"]) == ("never", {"bounded": {"delay_ms": 0}})


def test_an_ordered_frame_whose_partitions_would_mix_is_refused(local: SparkSession) -> None:
    from flownet import spark

    def complaint(*frames: DataFrame, workers: int = 2) -> str:
        env = fn.Environment(parallelism=2)
        for frame in frames:
            env.from_spark(frame, ordered=True).print()
        with pytest.raises(ConfigError) as raised:
            env.execute(on=spark.cluster(local, workers=workers))
        return str(raised.value)

    rows = events(local, 2)
    assert "and it has 2 partitions, for 1 workers: sort it within 1 partitions" in complaint(rows, workers=1)
    assert "partitions that is not known before it runs, for 2 workers" in complaint(rows.repartition(2, "key"))
    assert "and the job reads 2: leave out ordered=True, or join them in Spark" in complaint(rows, rows)
