"""Jobs inside Spark, with each worker in an executor of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.errors import CancelledError, FlownetError, LaunchError, OperatorError, WorkerLostError

from .conftest import executor_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Jobs

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def cluster(two_executors: SparkSession) -> Callable[..., Any]:
    from flownet import spark

    def cluster(workers: int = 2, **options: Any) -> spark.Cluster:
        return spark.cluster(two_executors, workers=workers, **options)

    return cluster


def test_results_are_equal_and_the_records_cross_between_executors(cluster: Any, jobs: Jobs) -> None:
    expected = jobs.sums(workers=0)
    with cluster() as workers:
        assert len(set(workers.members)) == 2, "one executor each"
        assert jobs.sums(workers) == expected
        exchanged = [task.bytes_tcp for task in jobs.last.tasks if "reduce" in task.name]
        assert sum(exchanged) > 0
        assert jobs.sums(workers) == expected


def test_two_clusters_one_after_the_other(cluster: Any, jobs: Jobs) -> None:
    assert jobs.sums(cluster()) == jobs.sums(cluster())


def test_an_exception_of_a_function_names_the_executor(cluster: Any, jobs: Jobs) -> None:
    with cluster() as workers:
        with pytest.raises(OperatorError) as raised:
            jobs.broken().execute(on=workers)
        members = workers.members
    assert "return 1 / (number - 3)" in str(raised.value)
    number, _, rest = str(raised.value.worker).partition(" at ")
    assert rest.endswith(f" on {members[int(number) - 1]}")


def test_a_cancelled_job_ends_and_frees_the_slots(cluster: Any, jobs: Jobs, running: Any) -> None:
    with jobs.endless().execute_async(on=cluster()) as job:
        running(job).cancel()
        with pytest.raises(CancelledError):
            job.wait()


def test_a_killed_executor_ends_the_job_and_is_named_and_the_next_job_gets_new_workers(
    cluster: Any, jobs: Jobs, running: Any
) -> None:
    with cluster() as workers:
        with jobs.endless().execute_async(on=workers) as job:
            running(job)
            members = workers.members
            os.kill(executor_of(workers, 2), signal.SIGKILL)
            with pytest.raises(WorkerLostError) as raised:
                job.wait()
        assert raised.value.worker is not None
        assert raised.value.worker.startswith("worker 2 at 127.0.0.1:")
        assert f" on {members[1]} " in raised.value.worker
        assert any("ExecutorLostFailure" in note for note in raised.value.__notes__)
        assert jobs.sums(workers) == jobs.sums(workers=0)


def test_a_result_survives_the_loss_of_an_executor(cluster: Any, two_executors: SparkSession, jobs: Jobs) -> None:
    with cluster() as workers:
        assert jobs.sums(workers) == jobs.sums(workers=0)
        lost = executor_of(workers, 1)
    numbers = fn.Environment().from_spark(two_executors.range(0, 100_000, 1, 2)).map(lambda row: row[0])
    result = numbers.to_spark("id long", workers=2)
    assert result.rdd.getNumPartitions() == 2
    os.kill(lost, signal.SIGKILL)
    assert result.agg({"id": "sum"}).collect()[0][0] == sum(range(100_000))
    assert result.take(1)[0].id == 0


def test_a_task_that_spark_cancels_ends_the_job(
    cluster: Any, two_executors: SparkSession, jobs: Jobs, running: Any
) -> None:
    with jobs.endless().execute_async(on=cluster()) as job:
        running(job)
        two_executors.sparkContext.cancelAllJobs()
        with pytest.raises(FlownetError) as raised:
            job.wait()
        assert isinstance(raised.value, WorkerLostError)
        assert any("cancelled" in note for note in raised.value.__notes__)


def test_other_versions_are_refused_with_both(cluster: Any, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    from flownet.spark import stage

    monkeypatch.setattr(stage, "own_versions", lambda: {"flownet": "9.9.9", "wire protocol": "7", "Python": "3.99"})
    with pytest.raises(LaunchError, match=r"worker 1 on Spark executor .* has flownet 0.*caller has flownet 9\.9\.9"):
        jobs.sums(cluster())


def test_too_few_slots_are_found_before_anything_starts(cluster: Any, jobs: Jobs) -> None:
    with pytest.raises(LaunchError, match="3 workers need 3 task slots of Spark at once, and .* has 2: take workers=2"):
        jobs.sums(cluster(workers=3, launch_timeout="500ms"))
