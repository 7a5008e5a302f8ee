"""Several DataFrames in and out of one job, compared with what Spark makes of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import OperatorError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("leaves_nothing")

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def clicks(local: SparkSession) -> DataFrame:
    return local.range(0, 20_000, 1, 3).selectExpr("id % 97 AS user", "id * 13 % 600000 AS ms", "id AS click")


@pytest.fixture(scope="module")
def users(local: SparkSession) -> DataFrame:
    return local.range(0, 97, 1, 1).selectExpr("id AS user", "concat('user ', id) AS name", "id * 1000 AS ms")


@pytest.mark.parametrize("workers", [1, 2])
def test_two_frames_are_joined_as_spark_joins_them(
    local: SparkSession, clicks: DataFrame, users: DataFrame, workers: int
) -> None:
    env = fn.Environment(parallelism=workers)
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    ours = env.from_spark(clicks).assign_timestamps_and_watermarks(strategy)
    theirs = env.from_spark(users.select("user", "ms", "name")).assign_timestamps_and_watermarks(strategy)
    pairs = ours.join(theirs).where(0).equal_to(0).window(fn.Tumbling("1min"))
    result = pairs.apply(lambda click, user: (click[2], user[2])).to_spark("click long, name string", workers=workers)
    left, right = clicks.alias("a"), users.alias("b")
    same_minute = f"a.user = b.user AND a.ms div {MINUTE_MS} = b.ms div {MINUTE_MS}"
    from pyspark.sql.functions import expr

    expected = left.join(right, expr(same_minute)).select("click", "name")
    assert expected.count() > 100
    assert sorted(result.collect()) == sorted(expected.collect())


def test_three_results_of_two_frames_come_from_one_job(
    local: SparkSession, clicks: DataFrame, users: DataFrame
) -> None:
    from flownet import spark

    env = fn.Environment(parallelism=2)
    rows = env.from_spark(clicks, as_rows=True)
    counted = rows.key_by("user").window(fn.EndOfInput()).agg(n=fn.count()).to_spark(run=False)
    even = rows.filter(fn.col("click") % 2 == 0).select("click").to_spark(run=False)
    names = env.from_spark(users, as_dicts=True).map(lambda user: user["name"]).to_spark("name string", run=False)
    with pytest.raises(PlanError, match="is not there: it comes when a job inside Spark"):
        _ = counted.frame
    env.execute(on=spark.cluster(local, workers=2))
    by_user = clicks.groupBy("user").count().collect()
    assert sorted(map(tuple, counted.frame.collect())) == sorted(map(tuple, by_user))
    assert sorted(row.click for row in even.frame.collect()) == list(range(0, 20_000, 2))
    assert sorted(names.frame.collect()) == sorted(users.select("name").collect())
    # Ordinary DataFrames, also together.
    assert even.frame.limit(3).count() == 3
    assert counted.frame.join(clicks, "user").count() == 20_000
    first = names.frame
    env.execute(on=spark.cluster(local, workers=1))
    assert sorted(names.frame.collect()) == sorted(first.collect())


def test_a_job_that_fails_leaves_no_result(local: SparkSession) -> None:
    from flownet import spark

    env = fn.Environment(parallelism=2)
    numbers = env.from_spark(local.range(0, 1000, 1, 2))
    result = numbers.map(lambda row: 1 / (row[0] - 900)).to_spark("value double", run=False)
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        env.execute(on=spark.cluster(local, workers=2))
    with pytest.raises(PlanError, match="is not there"):
        _ = result.frame


def test_one_frame_read_twice_is_two_sources(local: SparkSession, users: DataFrame) -> None:
    env = fn.Environment(parallelism=2)
    both = env.from_spark(users).union(env.from_spark(users))
    assert both.map(lambda row: row[0]).to_spark("user long", workers=2).count() == 2 * 97


def test_a_frame_without_rows_beside_one_with_rows(local: SparkSession, users: DataFrame) -> None:
    env = fn.Environment(parallelism=2)
    nothing = env.from_spark(local.createDataFrame([], users.schema))
    assert nothing.union(env.from_spark(users)).map(lambda row: row[0]).to_spark("user long", workers=2).count() == 97


def test_frames_of_one_partition_are_dealt_out_to_all_workers(local: SparkSession) -> None:
    env = fn.Environment(parallelism=4)
    numbers = env.from_spark(local.range(0, 1000, 1, 1))
    rows = numbers.map(lambda row: row[0]).to_spark("id long", workers=2)
    found = [len(rows) for rows in rows.rdd.glom().collect()]
    assert sum(found) == 1000
    assert min(found) == 500


def test_a_source_that_is_busy_holds_up_no_other() -> None:
    """One source is read to its end before the other begins, in either order: its rows wait beside the stream."""
    from flownet.spark.packing import INPUT_COLUMNS, input_packer
    from flownet.spark.shared_input import SharedInput

    tables = {7: pa.table({"n": list(range(5000))}), 9: pa.table({"s": [str(n) * 50 for n in range(3000)]})}
    packed = [list(input_packer(source, 3)(iter(table.to_batches(700)))) for source, table in tables.items()]
    assert packed[0][0].schema.names == [column.split()[0] for column in INPUT_COLUMNS.split(", ")]
    mixed = [batch for pair in zip(*packed, strict=False) for batch in pair]
    mixed += [batch for batches in packed for batch in batches[len(packed[1]) :]]

    for order in ([7, 9], [9, 7]):
        shared = SharedInput(iter(mixed), limit_bytes=10_000)
        for source in order:
            assert pa.Table.from_batches(shared.batches(source)) == tables[source]
        shared.close()


def test_an_error_of_the_stream_reaches_every_source() -> None:
    from flownet.spark.shared_input import SharedInput

    def broken() -> Iterator[pa.RecordBatch]:
        raise ValueError("planned failure")
        yield

    shared = SharedInput(broken())
    for source in (1, 2):
        with pytest.raises(ValueError, match="planned failure"):
            list(shared.batches(source))
