"""Jobs with checkpoints inside Spark, which go on when workers, executors or the process of the caller are lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flownet as fn
from flownet.errors import WorkerLostError

from .conftest import eventually, executor_of
from .counting import NUMBERS, assert_exact, counting, has_a_checkpoint, program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def slowly(row: tuple[int]) -> int:
    time.sleep(0.002)
    return row[0]


@pytest.mark.usefixtures("leaves_nothing")
def test_a_failure_of_a_function_restarts_the_job_on_the_same_workers(local: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    with spark.cluster(local, workers=2) as workers:
        before = workers._stage.pool.members()  # type: ignore[union-attr]
        result = counting(tmp_path, mark=tmp_path / "mark").execute(on=workers)
        assert workers._stage.pool.members() == before  # type: ignore[union-attr]
    assert result.restarted == 1
    assert_exact(tmp_path)


@pytest.mark.usefixtures("leaves_nothing")
def test_workers_that_are_killed_again_and_again_are_replaced(local: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    kills = 4
    with spark.cluster(local, workers=2) as workers:
        with counting(tmp_path, rate=600).execute_async(on=workers) as job:
            for kill in range(kills):
                made = job.status().checkpoints_made
                eventually("a checkpoint", has_a_checkpoint(job, made))
                worker, pid, _ = workers._stage.pool.members()[kill % 2]  # type: ignore[union-attr]
                os.kill(pid, signal.SIGKILL)
                eventually("a restart", lambda kill=kill: job.status().restarted > kill)  # type: ignore[misc]
                assert f"worker {worker} at " in job.status().restarts[-1].cause
            result = job.wait()
        assert len(workers.members) == 2
    assert result.restarted == kills
    assert_exact(tmp_path)


@pytest.mark.usefixtures("leaves_nothing")
def test_an_executor_that_is_killed_is_replaced(two_executors: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    cluster = spark.cluster(two_executors, workers=2)
    with counting(tmp_path, rate=1_000).execute_async(on=cluster) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        members = cluster.members
        os.kill(executor_of(cluster, 2), signal.SIGKILL)
        result = job.wait()
    (restart,) = result.restarts
    assert "worker 2 at 127.0.0.1:" in restart.cause
    assert f" on {members[1]} " in restart.cause
    assert_exact(tmp_path)


@pytest.mark.usefixtures("leaves_nothing")
def test_an_executor_that_is_killed_while_another_is_replaced_is_replaced_too(
    two_executors: SparkSession, tmp_path: Path
) -> None:
    from flownet import spark

    cluster = spark.cluster(two_executors, workers=2)
    with counting(tmp_path, rate=1_000).execute_async(on=cluster) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        first, second = executor_of(cluster, 1), executor_of(cluster, 2)
        os.kill(second, signal.SIGKILL)
        eventually("a restart", lambda: job.status().state == "restarting")
        os.kill(first, signal.SIGKILL)
        result = job.wait()
    assert result.restarted >= 1
    assert_exact(tmp_path)


@pytest.mark.usefixtures("leaves_nothing")
def test_a_job_with_checkpoints_that_is_cancelled_in_spark_ends(local: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    with counting(tmp_path, rate=100).execute_async(on=spark.cluster(local, workers=2)) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        (active,) = local.sparkContext.statusTracker().getActiveJobsIds()
        local.sparkContext._jsc.sc().cancelJob(active)
        with pytest.raises(WorkerLostError) as raised:
            job.wait()
    assert any("cancelled" in note for note in raised.value.__notes__)
    assert not local.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.usefixtures("leaves_nothing")
def test_the_group_and_the_pool_of_the_caller_are_those_of_the_stage(local: SparkSession, tmp_path: Path) -> None:
    from flownet import spark

    context = local.sparkContext
    context.setJobGroup("mine", "all of mine")
    context.setLocalProperty("spark.scheduler.pool", "batch")
    try:
        with counting(tmp_path, rate=100).execute_async(on=spark.cluster(local, workers=2)) as job:
            eventually("a checkpoint", has_a_checkpoint(job))
            (active,) = context.statusTracker().getJobIdsForGroup("mine")
            assert context.getLocalProperty("spark.job.description") == "all of mine"
            context.cancelJobGroup("mine")
            with pytest.raises(WorkerLostError) as raised:
                job.wait()
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert any(f"Job {active} cancelled part of cancelled job group mine" in note for note in raised.value.__notes__)


def test_a_job_with_checkpoints_under_which_spark_is_stopped_ends(tmp_path: Path) -> None:
    with program(tmp_path, "local[2]", "stop") as ended:
        said, _ = ended.communicate()
    assert ended.returncode == 0
    assert "WorkerLostError" in said
    assert "Spark says: Spark was stopped" in said


def test_a_job_whose_workers_nobody_replaces_ends_with_who_is_lost(local: SparkSession, tmp_path: Path) -> None:
    """The rows of a DataFrame would come twice."""
    from flownet import spark

    env = fn.Environment(parallelism=2, buffer_timeout="5ms")
    env.enable_checkpointing("200ms", storage=(tmp_path / "checkpoints").as_uri(), allow_non_replayable=True)
    rows = env.from_spark(local.range(0, NUMBERS, 1, 2))
    rows.map(slowly).write_text(tmp_path / "out")
    cluster = spark.cluster(local, workers=2)
    with env.execute_async(on=cluster) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        (_, pid, _), _ = cluster._stage.pool.members()  # type: ignore[union-attr]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            job.wait()


def test_a_job_whose_caller_is_killed_goes_on_with_the_next_run(tmp_path: Path) -> None:
    with program(tmp_path, "local[2]") as first:
        assert first.stdout is not None
        assert first.stdout.readline().startswith("a checkpoint")
        first.kill()
    with program(tmp_path, "local[2]") as second:
        told, _ = second.communicate()
        assert second.returncode == 0
    assert "resumed True" in told
    assert_exact(tmp_path)
