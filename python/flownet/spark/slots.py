"""Whether Spark can run the workers at all, found out before anything starts.

A barrier stage starts all its tasks at once or none. Left alone, Spark looks for places for ten minutes before it says
that there are too few.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

from ..errors import LaunchError
from .session import is_connect, is_local


def check(spark: SparkSession, workers: int, patience: float) -> None:
    """Refuse what cannot start.

    Parameters
    ----------
    spark
        The session. Over Spark Connect slots cannot be counted from here: there the launch timeout is the limit.
    workers
        Slots needed at once.
    patience
        Seconds that executors which are still starting may take to show up, at most 30 of them.

    Raises
    ------
    LaunchError
        Too few slots, or dynamic allocation, which Spark refuses for barrier stages.
    """
    allocation: Any = spark.conf.get("spark.dynamicAllocation.enabled", "false")
    if str(allocation).lower() == "true":
        raise LaunchError(
            "Spark runs no barrier stage while executors come and go: set spark.dynamicAllocation.enabled=false and "
            f"spark.executor.instances so that the executors have {workers} task slots"
        )
    if is_connect(spark):
        return
    deadline = time.monotonic() + min(patience, _STARTING_SECONDS)
    while (slots := count(spark)) < workers:
        if is_local(spark) or time.monotonic() >= deadline:
            raise LaunchError(
                f"{workers} workers need {workers} task slots of Spark at once, and {spark.sparkContext.master} has "
                f"{slots}: {_way_out(spark, slots)}"
            )
        time.sleep(0.1)


def count(spark: SparkSession) -> int:
    """Count the tasks that all executors together can run at once."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def _way_out(spark: SparkSession, slots: int) -> str:
    fewer = f"take workers={slots}, or " if slots else ""
    if is_local(spark):
        return f"{fewer}start Spark with more, such as local[{max(slots, 1) * 2}]"
    return f"{fewer}give the application more executors (spark.executor.instances, spark.executor.cores)"


_STARTING_SECONDS = 30.0
"""Executors take this long to start, on YARN for one."""
