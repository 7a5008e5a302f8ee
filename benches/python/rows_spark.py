"""A DataFrame through flownet and back inside Spark, as rows and as objects, beside Spark's own way through Python.

All run by turns in each round, in one session of ``local[2]``: believe the ratios, which are those of one round, as
medians over the rounds. A row is a whole number, a float and a text of ten bytes; half of them are filtered out, and
the executors keep the result. What the same takes without any rows, which is Spark's start of a stage above all, is
taken from the time.

``arrow``      Spark's ``mapInArrow``, which hands batches on as they are, and its own filter
``rows``       ``from_spark(as_rows=True)``, an expression, ``to_spark()``
``objects``    ``from_spark()``, a function, ``to_spark(schema)``, of a tenth of the rows
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
    return frame.mapInArrow(as_they_are, SCHEMA).where("n % 2 = 0").localCheckpoint()


def by_rows(frame: DataFrame) -> DataFrame:
    """Filter rows."""
    rows = fn.Environment(parallelism=SUBTASKS).from_spark(frame, as_rows=True)
    return rows.filter(fn.col("n") % 2 == 0).to_spark(workers=SUBTASKS)


def by_objects(frame: DataFrame) -> DataFrame:
    """Filter tuples."""
    records = fn.Environment(parallelism=SUBTASKS).from_spark(frame)
    return records.filter(lambda record: record[0] % 2 == 0).to_spark(SCHEMA, workers=SUBTASKS)


WAYS: dict[str, tuple[Callable[[DataFrame], DataFrame], int]] = {
    "arrow": (by_arrow, 1),
    "rows": (by_rows, 1),
    "objects": (by_objects, OBJECTS_OF),
}


def seconds(way: Callable[[DataFrame], DataFrame], frame: DataFrame, rows: int) -> float:
    """Run it, and say how long it took."""
    started = time.perf_counter()
    found = way(frame)
    took = time.perf_counter() - started
    assert found.count() == (rows + 1) // 2
    found.unpersist()
    return took


def main() -> None:
    """Run all, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=3)
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
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    nothing = frame_of(spark, 0)
    frames = {of: frame_of(spark, options.rows // of) for of in (1, OBJECTS_OF)}
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(options.rounds + 1):
        for name, (way, of) in WAYS.items():
            rows = options.rows // of
            took = seconds(way, frames[of], rows) - seconds(way, nothing, 0)
            # The first round is for what is only done once.
            if number or options.smoke:
                found[name].append(rows / max(took, 1e-3) / 1e6)
    spark.stop()
    ratios = {
        f"rows / {other}": [one / two for one, two in zip(found["rows"], found[other], strict=True)]
        for other in ("arrow", "objects")
    }
    if options.json:
        print(json.dumps({"million rows/s": found, "ratios": ratios}, indent=2))
        return
    for name, speeds in found.items():
        print(f"{name:<16} {shown(speeds)} M rows/s")
    for name, values in ratios.items():
        print(f"{name:<16} {shown(values)}")


if __name__ == "__main__":
    main()
