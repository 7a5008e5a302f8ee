"""A session of Spark Connect with jobs in it: a process has that or a classic session, so this is one of its own.

Prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import flownet as fn
import flownet.spark
from flownet.errors import CancelledError, LaunchError, OperatorError


def sums(**where: Any) -> list[tuple[int, int]]:
    env = fn.Environment(parallelism=2, buffer_timeout="5ms")
    numbers = env.from_iterable(lambda subtask, subtasks: range(subtask, 20_000, subtasks))
    pairs = numbers.map(lambda number: (number % 7, number)).key_by(lambda pair: pair[0])
    running_sums = pairs.reduce(lambda one, other: (one[0], one[1] + other[1])).collect()
    env.execute(**where)
    return sorted(dict(sorted(running_sums)).items())


def error_of_a_function(cluster: flownet.spark.Cluster) -> str:
    def invert(number: int) -> float:
        return 1 / (number - 3)

    env = fn.Environment(parallelism=2)
    env.from_collection(range(8)).rebalance().map(invert).collect()
    try:
        env.execute(on=cluster)
    except OperatorError as error:
        return str(error)
    return "no error"


def cancelled(cluster: flownet.spark.Cluster) -> bool:
    env = fn.Environment(parallelism=2, buffer_timeout="5ms")
    numbers = env.from_iterable(lambda subtask, subtasks: iter(int, 1))
    numbers.rebalance().filter(lambda number: False).collect()
    with env.execute_async(on=cluster) as job:
        while not job.status().records:
            time.sleep(0.01)
        job.cancel()
        try:
            job.wait()
        except CancelledError:
            return True
    return False


def too_late(spark: SparkSession) -> str:
    try:
        sums(on=flownet.spark.cluster(spark, workers=3, launch_timeout="1s"))
    except LaunchError as error:
        return str(error)
    return "no error"


def sums_of_frames(spark: SparkSession) -> list[int]:
    """Read two DataFrames in one job, and sum what its two results hold."""
    frame = spark.range(0, 1000, 1, 3)
    env = fn.Environment(parallelism=2)
    doubled = env.from_spark(frame).map(lambda row: row[0] * 2).to_spark("n long", run=False)
    pairs = env.from_spark(frame.selectExpr("map('a', id) AS pairs"), as_rows=True).to_spark(run=False)
    env.execute(on=flownet.spark.cluster(spark, workers=2))
    return [
        doubled.frame.selectExpr("sum(n)").collect()[0][0],
        pairs.frame.selectExpr("sum(pairs['a'])").collect()[0][0],
    ]


def ports() -> int:
    """Count the sockets of this process on which somebody may knock."""
    inodes = {os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = {f"socket:[{fields[9]}]" for fields in map(str.split, lines) if fields[3] == "0A"}
    return len(inodes & listening)


def main() -> None:
    """Run jobs of every kind in one session."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    ports_before = ports()
    seen: dict[str, Any] = {"session": type(spark).__module__, "expected": sums(workers=0)}
    with flownet.spark.cluster(spark, workers=2) as cluster:
        seen["sums"] = [sums(on=cluster), sums(on=cluster)]
        seen["error"] = error_of_a_function(cluster)
        seen["cancelled"] = cancelled(cluster)
    seen["too late"] = too_late(spark)
    seen["after a refusal"] = sums(on=flownet.spark.cluster(spark, workers=2))
    seen["frames"] = sums_of_frames(spark)
    seen["ports left"] = ports() - ports_before
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
