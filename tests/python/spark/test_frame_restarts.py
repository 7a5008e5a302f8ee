"""Jobs with DataFrames that begin again: after the loss of a worker or an executor, and after an exception."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.errors import OperatorError, WorkerLostError

from ..exactly_once.failures import FailsOnce
from .conftest import eventually, executor_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flownet.spark import SparkResult

pytestmark = pytest.mark.usefixtures("leaves_nothing")

ROWS = 40_000
KEYS = 7


class Gate:
    """Waits with one row, which is read late, until a file is there; all rows before it have been through."""

    def __init__(self, number: int, file: Path) -> None:
        self._number, self._file = number, file

    def __call__(self, row: tuple[int, int]) -> tuple[int, int]:
        while row[1] == self._number and not self._file.exists():
            time.sleep(0.01)
        return row


def described(
    frame: DataFrame, step: Callable[[Any], Any], restart: str
) -> tuple[fn.Environment, SparkResult, SparkResult]:
    """Describe a job with two results: every row, and the rows of each key counted."""
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart=restart)
    rows = env.from_spark(frame).map(step)
    every = rows.to_spark("key long, id long", run=False)
    counts = rows.key_by(0).window(fn.EndOfInput()).count().to_spark("key long, n long", run=False)
    return env, every, counts


def assert_exact(frame: DataFrame, every: SparkResult, counts: SparkResult) -> None:
    """Compare with Spark: nothing is lost, and nothing of an attempt that failed is there."""
    assert sorted(map(tuple, every.frame.collect())) == sorted(map(tuple, frame.collect()))
    expected = frame.groupBy("key").count().collect()
    assert sorted(map(tuple, counts.frame.collect())) == sorted(map(tuple, expected))


def keyed(spark: SparkSession, partitions: int) -> DataFrame:
    return spark.range(0, ROWS, 1, partitions).selectExpr(f"id % {KEYS} AS key", "id")


@pytest.mark.parametrize("partitions", [2, 3])
@pytest.mark.parametrize("of", ["worker", "executor"])
def test_a_lost_worker_or_executor_leads_to_a_restart_with_the_right_result(
    two_executors: SparkSession, tmp_path: Path, partitions: int, of: str
) -> None:
    from flownet import spark

    # Read again from its files, behind a shuffle.
    files = str(tmp_path / "rows")
    keyed(two_executors, 4).write.parquet(files)
    frame = two_executors.read.parquet(files).repartition(partitions, "id")
    env, every, counts = described(frame, Gate(ROWS - 10, tmp_path / "over"), "fixed:3:10ms")
    cluster = spark.cluster(two_executors, workers=2)
    with env.execute_async(on=cluster) as job:
        eventually("rows on their way", lambda: job.status().records > 1000)
        (_, pid, _), _ = cluster._stage.pool.members()  # type: ignore[union-attr]
        os.kill(pid if of == "worker" else executor_of(cluster, 1), signal.SIGKILL)
        eventually("a restart", lambda: job.status().restarted > 0)
        (tmp_path / "over").touch()
        result = job.wait()
    assert result.restarted >= 1
    assert_exact(frame, every, counts)


@pytest.mark.parametrize("partitions", [2, 3])
def test_an_exception_leads_to_a_restart_with_other_workers(
    two_executors: SparkSession, tmp_path: Path, partitions: int
) -> None:
    from flownet import spark

    frame = keyed(two_executors, partitions)
    step = FailsOnce(((ROWS - 10) % KEYS, ROWS - 10), tmp_path / "mark")
    env, every, counts = described(frame, step, "fixed:1:10ms")
    result = env.execute(on=spark.cluster(two_executors, workers=2))
    assert result.restarted == 1
    assert_exact(frame, every, counts)


def test_without_restart_a_lost_worker_ends_the_job(two_executors: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    env, _, _ = described(keyed(two_executors, 2), Gate(ROWS - 10, tmp_path / "over"), "none")
    cluster = spark.cluster(two_executors, workers=2)
    with env.execute_async(on=cluster) as job:
        eventually("rows on their way", lambda: job.status().records > 1000)
        (_, pid, _), _ = cluster._stage.pool.members()  # type: ignore[union-attr]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            job.wait()


def test_an_exception_that_comes_again_ends_the_job(two_executors: SparkSession) -> None:
    env = fn.Environment(parallelism=2, restart="fixed:1:10ms")
    broken = env.from_spark(two_executors.range(0, 10, 1, 2)).map(lambda row: 1 // (row[0] - 3))
    with pytest.raises(OperatorError, match="ZeroDivisionError"):
        broken.to_spark("value long", workers=2)
