"""A DataFrame through flownet and back inside Spark, as rows and as objects, beside Spark's own ways.

All run by turns in each round, in one session of ``local[2]``: believe the ratios, which are those of one round, as
medians over the rounds. A row is a whole number, a float and a text of ten bytes. Each result is read once, as Spark
computes its own only then. The time that the same takes without any rows, which is Spark's start of a stage above all,
is taken off.

``arrow``       Spark's ``mapInArrow``, which hands batches on as they are
``same``        ``from_spark(as_rows=True)`` and ``to_spark()``, without an operator between
``half``        the same with an expression that filters out half of the rows
``objects``     ``from_spark()``, a function that filters out half, ``to_spark(schema)``, of a tenth of the rows
``sums``        sums of the floats by a thousand keys, as rows
``spark sums``  the same by Spark SQL
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from turns import shown

import flownet as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUBTASKS = 2
OBJECTS_OF = 10
KEYS = 1000
SCHEMA = "n long, value double, text string"


def frame_of(spark: SparkSession, rows: int) -> DataFrame:
    """Make the rows, which Spark keeps in memory."""
    numbers = spark.range(0, rows, 1, SUBTASKS)
    frame = numbers.selectExpr("id AS n", "id / 7.0D AS value", "lpad(cast(id AS string), 10, '0') AS text").cache()
    frame.count()
    return frame


def as_they_are(batches: Iterator[Any]) -> Iterator[Any]:
    """Hand batches on."""
    return batches


def by_arrow(frame: DataFrame) -> DataFrame:
    """Let Spark do it, through Python."""
    return frame.mapInArrow(as_they_are, SCHEMA)


def same_rows(frame: DataFrame) -> DataFrame:
    """Hand rows on as they are."""
    return fn.Environment(parallelism=SUBTASKS).from_spark(frame, as_rows=True).to_spark(workers=SUBTASKS)


def half_of_rows(frame: DataFrame) -> DataFrame:
    """Filter rows."""
    rows = fn.Environment(parallelism=SUBTASKS).from_spark(frame, as_rows=True)
    return rows.filter(fn.col("n") % 2 == 0).to_spark(workers=SUBTASKS)


def half_of_objects(frame: DataFrame) -> DataFrame:
    """Filter tuples."""
    records = fn.Environment(parallelism=SUBTASKS).from_spark(frame)
    return records.filter(lambda record: record[0] % 2 == 0).to_spark(SCHEMA, workers=SUBTASKS)


def sums_of_rows(frame: DataFrame) -> DataFrame:
    """Sum rows by key."""
    rows = fn.Environment(parallelism=SUBTASKS).from_spark(frame, as_rows=True)
    keyed = rows.select("value", key=fn.col("n") % KEYS).key_by("key")
    return keyed.window(fn.EndOfInput()).agg(total=fn.sum("value")).to_spark(workers=SUBTASKS)


def sums_of_spark(frame: DataFrame) -> DataFrame:
    """Sum by key in Spark."""
    return frame.groupBy((frame["n"] % KEYS).alias("key")).agg({"value": "sum"})


WAYS: dict[str, tuple[Callable[[DataFrame], DataFrame], int]] = {
    "arrow": (by_arrow, 1),
    "same": (same_rows, 1),
    "half": (half_of_rows, 1),
    "objects": (half_of_objects, OBJECTS_OF),
    "sums": (sums_of_rows, 1),
    "spark sums": (sums_of_spark, 1),
}


def rows_of_result(name: str, rows: int) -> int:
    """Count the rows that a way should give."""
    if "sums" in name:
        return min(rows, KEYS)
    return (rows + 1) // 2 if name in ("half", "objects") else rows


def seconds(name: str, frame: DataFrame, rows: int) -> float:
    """Run a way, read its result, and say how long it took."""
    started = time.perf_counter()
    found = WAYS[name][0](frame)
    found.write.format("noop").mode("overwrite").save()
    took = time.perf_counter() - started
    assert found.count() == rows_of_result(name, rows)
    return took


def main() -> None:
    """Run all, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-rows", type=int, default=10_000, help="rows of an Arrow batch from Spark to Python")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a little of everything, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.rows, options.rounds = 20_000, 1
    # Its workers run this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{SUBTASKS}]").config("spark.ui.enabled", False)
    spark = (
        builder.config("spark.driver.memory", "6g")
        .config("spark.sql.execution.arrow.pyspark.enabled", True)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", options.batch_rows)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    nothing = frame_of(spark, 0)
    frames = {of: frame_of(spark, options.rows // of) for of in (1, OBJECTS_OF)}
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(options.rounds + 1):
        for name, (_, of) in WAYS.items():
            rows = options.rows // of
            took = seconds(name, frames[of], rows) - seconds(name, nothing, 0)
            # The first round is for what is only done once.
            if number or options.smoke:
                found[name].append(rows / max(took, 1e-3) / 1e6)
    spark.stop()
    ratios = {
        f"{name} / {other}": [one / two for one, two in zip(found[name], found[other], strict=True)]
        for name, other in (("same", "arrow"), ("half", "objects"), ("sums", "spark sums"))
    }
    if options.json:
        print(json.dumps({"million rows/s": found, "ratios": ratios}, indent=2))
        return
    for name, speeds in found.items():
        print(f"{name:<20} {shown(speeds)} M rows/s")
    for name, values in ratios.items():
        print(f"{name:<20} {shown(values)}")


if __name__ == "__main__":
    main()
