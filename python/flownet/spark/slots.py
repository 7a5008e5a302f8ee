"""Whether Spark can run the workers at all, found out before anything starts.

A barrier stage starts all its tasks at once or none. Left alone, Spark looks for places for ten minutes before it says
that there are too few.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.resource import ResourceProfile
from pyspark.sql import SparkSession

from ..errors import LaunchError
from .resources import AS_BY_DEFAULT, TaskResources
from .session import is_connect, is_local


def refuse_dynamic_allocation(spark: SparkSession, workers: int) -> None:
    """Raise `LaunchError` where executors come and go, as Spark refuses barrier stages there."""
    allocation: Any = spark.conf.get("spark.dynamicAllocation.enabled", "false")
    if str(allocation).lower() == "true":
        raise LaunchError(
            "Spark runs no barrier stage while executors come and go: set spark.dynamicAllocation.enabled=false and "
            f"spark.executor.instances so that the executors have {workers} task slots"
        )


def check(
    spark: SparkSession,
    workers: int,
    patience: float,
    resources: TaskResources = AS_BY_DEFAULT,
    profile: ResourceProfile | None = None,
) -> None:
    """Refuse what cannot start.

    Parameters
    ----------
    spark
        The session. Over Spark Connect slots cannot be counted from here: there the launch timeout is the limit.
    workers
        Slots needed at once.
    patience
        Seconds that executors which are still starting may take to show up, at most 30 of them.
    resources
        What each worker takes.
    profile
        The same, as Spark has it.

    Raises
    ------
    LaunchError
        Too few slots.
    """
    if is_connect(spark):
        return
    deadline = time.monotonic() + min(patience, _STARTING_SECONDS)
    while (slots := count(spark, profile)) < workers:
        if is_local(spark) or time.monotonic() >= deadline:
            each = f", each with {resources}" if profile is not None else ""
            raise LaunchError(
                f"{workers} workers need {workers} task slots of Spark at once{each}, and {spark.sparkContext.master} "
                f"has {slots}: {_way_out(spark, slots)}"
            )
        time.sleep(0.1)


def count(spark: SparkSession, profile: ResourceProfile | None = None) -> int:
    """Count the tasks of a profile that all executors together can run at once."""
    context: Any = spark.sparkContext._jsc.sc()
    java: Any = context.resourceProfileManager().defaultResourceProfile()
    if profile is not None:
        java = profile._java_resource_profile
    return int(context.maxNumConcurrentTasks(java))


def _way_out(spark: SparkSession, slots: int) -> str:
    fewer = f"take workers={slots}, or " if slots else ""
    if is_local(spark):
        return f"{fewer}start Spark with more, such as local[{max(slots, 1) * 2}]"
    return f"{fewer}give the application more executors (spark.executor.instances, spark.executor.cores)"


_STARTING_SECONDS = 30.0
"""Executors take this long to start, on YARN for one."""
