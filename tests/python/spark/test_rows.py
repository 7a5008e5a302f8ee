"""DataFrames as rows: read and given back as batches, by Spark's own tasks."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import ConfigError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_a_dataframe_goes_in_as_rows_and_one_comes_out(local: SparkSession) -> None:
    frame = local.range(0, 50_000, 1, 2).selectExpr("id % 7 AS key", "id AS value")
    env = fn.Environment(parallelism=2)
    rows = env.from_spark(frame, as_rows=True)
    assert rows.schema == {"key": "int64", "value": "int64"}
    sums = rows.filter(fn.col("value") >= 100).key_by("key").window(fn.EndOfInput()).agg(value=fn.sum("value"))
    result = sums.to_spark()
    assert result.columns == ["key", "value"]
    expected = frame.where("value >= 100").groupBy("key").sum("value").collect()
    assert sorted(map(tuple, result.collect())) == sorted(map(tuple, expected))


def test_a_dataframe_of_which_spark_knows_that_it_is_empty_is_a_stream_without_rows(local: SparkSession) -> None:
    frame = local.range(0, 0, 1, 3).cache()
    assert frame.count() == 0
    try:
        rows = fn.Environment(parallelism=2).from_spark(frame, as_rows=True)
        counted = rows.with_columns(one=fn.lit(1)).key_by("one").window(fn.EndOfInput()).agg(n=fn.count())
        assert counted.to_spark(workers=2).count() == 0
    finally:
        frame.unpersist()


def test_values_of_every_common_type_arrive_as_they_left(local: SparkSession) -> None:
    schema = (
        "flag boolean, small int, large long, real double, text string, raw binary, day date, at timestamp, "
        "clock timestamp_ntz, price decimal(10,2), many array<int>, both struct<a: int, b: string>, nothing string"
    )
    at = datetime.datetime(2013, 1, 2, 3, 4, 5, 678)
    day, price = datetime.date(2013, 1, 2), Decimal("12.50")
    row = (True, -1, 2**60, 0.5, "gr\u00fcn", b"\x00\xff", day, at, at, price, [1, None], (1, "b"), None)
    frame = local.createDataFrame([row, (None,) * 13], schema)
    result = fn.Environment().from_spark(frame, as_rows=True).rebalance().to_spark(workers=2)
    assert result.dtypes == frame.dtypes
    assert sorted(result.collect(), key=str) == sorted(frame.collect(), key=str)


def test_rows_of_a_frame_may_become_objects_and_objects_a_frame(local: SparkSession) -> None:
    env = fn.Environment(parallelism=2)
    flights = env.from_spark(local.createDataFrame([("AA", 5), ("UA", 90)], "carrier string, delay int"), as_rows=True)
    late = flights.to_objects().filter(lambda flight: flight["delay"] > 60)
    rows = late.to_rows({"carrier": "utf8", "delay": "int32"}).to_spark(workers=1).collect()
    assert [tuple(row) for row in rows] == [("UA", 90)]


def test_what_cannot_be_is_refused_before_anything_runs(local: SparkSession) -> None:
    env = fn.Environment()
    with pytest.raises(ConfigError, match="takes a DataFrame of PySpark, not list"):
        env.from_spark([1], as_rows=True)  # type: ignore[call-overload]
    frame: Any = local.sql("SELECT INTERVAL '3' MONTH AS months")
    with pytest.raises(PlanError, match="from_spark: column 'months'"):
        env.from_spark(frame, as_rows=True)
    with pytest.raises(PlanError, match="to_spark: .*uint64"):
        env.from_arrow(pa.table({"n": pa.array([1], "uint64")})).to_spark(workers=1)
