"""DataFrames as sources and results: read and written by Spark's own tasks."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.errors import ConfigError, OperatorError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("leaves_nothing")


def test_a_dataframe_goes_in_and_one_comes_out(local: SparkSession) -> None:
    frame = local.range(0, 50_000, 1, 2).selectExpr("id % 7 AS key", "id AS value")
    env = fn.Environment(parallelism=2)
    pairs = env.from_spark(frame)
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
    result = sums.to_spark("key long, value long")
    assert result.columns == ["key", "value"]
    assert result.count() == 50_000
    expected = frame.groupBy("key").sum("value").collect()
    assert sorted(result.groupBy("key").max("value").collect()) == sorted(expected)


def test_the_result_is_kept_and_another_call_runs_the_dataflow_anew(local: SparkSession) -> None:
    env = fn.Environment()
    numbers = env.from_spark(local.range(0, 100, 1, 2)).map(lambda row: row[0] * 2)
    first = numbers.to_spark("double long")
    second = numbers.to_spark("double long", workers=1)
    expected = [2 * number for number in range(100)]
    for result in (first, first, second):
        assert sorted(row.double for row in result.collect()) == expected


def test_the_result_of_several_workers_is_an_ordinary_dataframe(
    local: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers = fn.Environment(parallelism=2).from_spark(local.range(0, 10_000, 1, 2)).map(lambda row: row[0])
    result = numbers.to_spark("id long", workers=2)
    assert result.rdd.getNumPartitions() == 2
    result.show(2)
    assert "|  0|\n|  1|\n" in capfd.readouterr().out
    assert (result.head(1)[0].id, [row.id for row in result.take(3)]) == (0, [0, 1, 2])
    assert result.first() == result.head()
    assert [row.id for row in result.limit(2).collect()] == [0, 1]
    assert result.coalesce(1).count() == 10_000
    assert sorted(row.id for row in result.toLocalIterator()) == list(range(10_000))
    # More tasks than there are slots: reading needs no slot for each partition.
    assert result.union(local.range(5)).union(result).count() == 20_005
    assert result.isEmpty() is False
    # Rows of a worker stay in order, so those of the first half come first.
    assert [row.id for row in result.collect()] == list(range(10_000))


def test_a_result_without_rows_has_its_columns(local: SparkSession) -> None:
    nothing = fn.Environment().from_spark(local.range(0, 10, 1, 2)).filter(lambda row: False)
    result = nothing.to_spark("id long, text string", workers=2)
    assert (result.columns, result.count(), result.first()) == (["id", "text"], 0, None)


def test_a_result_lies_in_the_checkpoint_directory_if_there_is_one(local: SparkSession, tmp_path: Path) -> None:
    local.sparkContext.setCheckpointDir(str(tmp_path))
    try:
        result = fn.Environment().from_spark(local.range(0, 1000, 1, 2)).to_spark("id long", workers=2)
        assert list(tmp_path.rglob("part-*"))
        assert result.agg({"id": "sum"}).collect()[0][0] == sum(range(1000))
    finally:
        jvm: Any = local._jvm
        getattr(local.sparkContext._jsc.sc(), "checkpointDir_$eq")(jvm.scala.Option.empty())


def test_a_frame_without_partitions_for_all_workers_is_spread(local: SparkSession) -> None:
    env = fn.Environment()
    rows = env.from_spark(local.range(0, 1000, 1, 5)).to_spark("id long", workers=2)
    assert sorted(row.id for row in rows.collect()) == list(range(1000))


def test_values_of_every_common_type_arrive_as_they_left(local: SparkSession) -> None:
    schema = (
        "flag boolean, small int, large long, real double, text string, raw binary, day date, "
        "at timestamp, price decimal(10,2), many array<int>, nothing string"
    )
    row = (
        True,
        -1,
        2**60,
        0.5,
        "gr\u00fcn",
        b"\x00\xff",
        datetime.date(2013, 1, 2),
        datetime.datetime(2013, 1, 2, 3, 4, 5, 678),
        Decimal("12.50"),
        [1, 2],
        None,
    )
    frame = local.createDataFrame([row], schema)
    result = fn.Environment().from_spark(frame).rebalance().to_spark(schema, workers=2)
    assert result.collect() == frame.collect()


def test_records_can_be_dicts_by_column_name(local: SparkSession) -> None:
    flights = local.createDataFrame([("AA", 5), ("UA", 90), ("AA", 61)], "carrier string, delay int")
    env = fn.Environment()
    late = env.from_spark(flights, as_dicts=True).filter(lambda flight: flight["delay"] > 60)
    rows = late.to_spark("delay int, carrier string", workers=1).collect()
    assert sorted((row.carrier, row.delay) for row in rows) == [("AA", 61), ("UA", 90)]


def test_a_job_inside_spark_reads_a_frame_into_any_sink(local: SparkSession) -> None:
    from flownet import spark

    env = fn.Environment(parallelism=2)
    numbers = env.from_spark(local.range(0, 1000, 1, 2)).map(lambda row: row[0]).collect()
    env.execute(on=spark.cluster(local, workers=2))
    assert sorted(numbers) == list(range(1000))


def test_a_dataflow_without_a_frame_can_end_in_one(local: SparkSession) -> None:
    env = fn.Environment(parallelism=2)
    numbers = env.from_iterable(lambda subtask, subtasks: range(subtask, 20_000, subtasks))
    result = numbers.to_spark("number long", workers=2)
    assert result.agg({"number": "sum"}).collect()[0][0] == sum(range(20_000))


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (("AA", "late"), "record ('AA', 'late') does not fit column 'delay' of type int32"),
        (("AA",), "record ('AA',) has 1 fields; the schema has 2: ['carrier', 'delay']"),
        ({"carrier": "AA"}, "has no 'delay'; the schema has the columns ['carrier', 'delay']"),
    ],
)
def test_a_record_that_does_not_fit_is_named(local: SparkSession, record: Any, complaint: str) -> None:
    env = fn.Environment()
    broken = env.from_spark(local.range(1)).map(lambda row: record)
    with pytest.raises(OperatorError) as raised:
        broken.to_spark("carrier string, delay int", workers=1)
    assert raised.value.operator == "to_spark"
    assert complaint in str(raised.value)


def test_a_function_that_raises_is_the_error_of_to_spark(local: SparkSession) -> None:
    env = fn.Environment()
    broken = env.from_spark(local.range(0, 10, 1, 2)).map(lambda row: 1 // (row[0] - 3))
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        broken.to_spark("value long")


def test_what_cannot_work_is_said_before_anything_runs(local: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    env = fn.Environment()
    with pytest.raises(ConfigError, match="takes a DataFrame of PySpark, not list"):
        env.from_spark([1, 2])  # type: ignore[call-overload]
    rows = env.from_spark(local.range(1))
    with pytest.raises(ConfigError, match="schema='no such type' is no schema of Spark such as 'carrier string"):
        rows.to_spark("no such type")
    rows.collect()
    with pytest.raises(PlanError, match="from_spark\\(\\) reads inside Spark: run the job there"):
        env.execute()
    with spark.cluster(local, workers=1) as cluster, pytest.raises(ConfigError, match="a cluster of its own"):
        env.execute(on=cluster)
    with pytest.raises(ConfigError, match="takes a DataFrame that ends, not a streaming one"):
        env.from_spark(local.readStream.format("rate").load())
    numbers = fn.Environment()
    numbers.from_collection([1]).to_spark("id long", run=False)
    with pytest.raises(PlanError, match="to_spark\\(run=False\\) writes inside Spark: run the job there"):
        numbers.execute()
    numbers.enable_checkpointing(storage=tmp_path.as_uri())
    with pytest.raises(ConfigError, match="takes checkpoints and gives rows to Spark"):
        numbers.execute(on=spark.cluster(local, workers=1))
