"""Jobs on a standalone cluster of Spark, of which executors, nodes and drivers are lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flownet as fn
from flownet.errors import WorkerLostError

from .conftest import eventually, executor_of, parent
from .counting import assert_exact, counting, has_a_checkpoint, program
from .standalone import is_there, listening, running_children

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flownet import spark

    from .conftest import Jobs
    from .standalone import Standalone

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture(autouse=True)
def _leaves_its_executors_alone(standalone: Standalone, on_standalone: SparkSession) -> Iterator[None]:
    """Both nodes have an executor of the session, and nothing else, before and after each test."""
    eventually("both executors and nothing else", lambda: is_at_rest(standalone))
    yield
    eventually("both executors and nothing else", lambda: is_at_rest(standalone))


def is_at_rest(standalone: Standalone) -> bool:
    return standalone.is_idle(applications=1) and standalone.state()["aliveworkers"] == 2


def cluster_of_two(session: SparkSession) -> spark.Cluster:
    """Two workers, for which a job waits longer than a busy machine needs to start an executor."""
    from flownet import spark

    return spark.cluster(session, workers=2, launch_timeout="180s")


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_results_are_read_before_and_after_the_loss_of_an_executor(
    standalone: Standalone, on_standalone: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    squares = fn.Environment().from_spark(on_standalone.range(0, 1_000, 1, 2)).map(lambda row: row[0] ** 2)
    result = squares.to_spark("id long", workers=2)
    expected = [number**2 for number in range(1_000)]

    def assert_readable() -> None:
        result.show(3)
        assert "only showing top 3 rows" in capsys.readouterr().out
        taken, limited = {row.id for row in result.take(3)}, set(numbers(result.limit(5)))
        assert (len(taken), len(limited)) == (3, 5)
        assert taken | limited <= set(expected)
        assert numbers(result.coalesce(1)) == expected
        assert numbers(result.union(result)) == sorted(2 * expected)

    assert_readable()
    os.kill(min(standalone.executors()), signal.SIGKILL)
    assert_readable()


def test_a_second_executor_that_is_lost_during_the_recovery_is_replaced_too(
    on_standalone: SparkSession, tmp_path: Path
) -> None:
    cluster = cluster_of_two(on_standalone)
    with counting(tmp_path, rate=1_000).execute_async(on=cluster) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        first, second = executor_of(cluster, 1), executor_of(cluster, 2)
        os.kill(second, signal.SIGKILL)
        eventually("a restart", lambda: job.status().state == "restarting")
        os.kill(first, signal.SIGKILL)
        result = job.wait()
    assert result.restarted >= 1
    assert_exact(tmp_path)


def test_a_job_goes_on_at_the_other_node_when_its_node_is_lost(
    standalone: Standalone, on_standalone: SparkSession, tmp_path: Path
) -> None:
    cluster = cluster_of_two(on_standalone)
    with counting(tmp_path, rate=1_000).execute_async(on=cluster) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        lost = standalone.node_of(executor_of(cluster, 2))
        processes = [executor_of(cluster, 2), *running_children(executor_of(cluster, 2))]
        lost.kill()
        eventually("a checkpoint after a restart", lambda: job.status().restarted > 0)
        eventually("a checkpoint", has_a_checkpoint(job, job.status().checkpoints_made))
        (other,) = (node for node in standalone.nodes if node is not lost)
        assert {executor_of(cluster, 1), executor_of(cluster, 2)} <= other.executors()
        result = job.wait()
    assert "worker 2 at " in result.restarts[0].cause
    assert_exact(tmp_path)
    eventually("the end of the executor and its Python", lambda: not any(map(is_there, processes)))
    lost.start()
    # The executors stay where they are: the next test is to find one on each node.
    os.kill(max(other.executors()), signal.SIGKILL)


def test_a_worker_that_falls_silent_is_replaced(
    on_standalone: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a cut network: its process is there, and so are its connections, but nothing comes."""
    monkeypatch.setenv("FLOWNET_HEARTBEAT_TIMEOUT", "3s")
    cluster = cluster_of_two(on_standalone)
    with counting(tmp_path, rate=1_000).execute_async(on=cluster) as job:
        eventually("a checkpoint", has_a_checkpoint(job))
        worker, silent, _ = cluster._stage.pool.members()[1]  # type: ignore[union-attr]
        os.kill(silent, signal.SIGSTOP)
        result = job.wait()
    assert f"worker {worker} at " in result.restarts[0].cause
    assert "was silent for" in result.restarts[0].cause
    # Spark did not end its task by itself, and the job did not wait in vain for another.
    assert not any("could not be launched" in restart.cause for restart in result.restarts)
    assert_exact(tmp_path)
    eventually("the end of the silent process", lambda: not is_there(silent))


def test_a_job_group_that_is_cancelled_ends_its_job_and_the_next_one_runs(
    on_standalone: SparkSession, jobs: Jobs, tmp_path: Path
) -> None:
    context = on_standalone.sparkContext
    context.setJobGroup("mine", "all of mine")
    try:
        with counting(tmp_path, rate=100).execute_async(on=cluster_of_two(on_standalone)) as job:
            eventually("a checkpoint", has_a_checkpoint(job))
            context.cancelJobGroup("mine")
            with pytest.raises(WorkerLostError) as raised:
                job.wait()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert any("cancelled part of cancelled job group mine" in note for note in raised.value.__notes__)
    assert jobs.sums(cluster_of_two(on_standalone)) == jobs.sums(workers=0)


def test_a_session_that_is_stopped_ends_its_job_and_its_application(standalone: Standalone, tmp_path: Path) -> None:
    with program(tmp_path, standalone.url, "stop") as ended:
        said, _ = ended.communicate()
    assert ended.returncode == 0
    assert "WorkerLostError" in said
    assert "Spark says: Spark was stopped" in said


def test_a_driver_that_is_killed_goes_on_with_the_next_run(standalone: Standalone, tmp_path: Path) -> None:
    kill_driver_of(standalone, tmp_path, kills_jvm=False)
    kill_driver_of(standalone, tmp_path, kills_jvm=True)
    with program(tmp_path, standalone.url) as last:
        told, _ = last.communicate()
        assert last.returncode == 0
    assert "resumed True" in told
    assert_exact(tmp_path)


def kill_driver_of(standalone: Standalone, folder: Path, *, kills_jvm: bool) -> None:
    """Run the job, kill the Python process of its program or the JVM below it, and see all of it end."""
    with program(folder, standalone.url) as driver:
        assert driver.stdout is not None
        said = driver.stdout.readline()
        assert said.startswith("a checkpoint of ")
        workers = [int(word) for word in said.split()[3:]]
        (jvm,) = running_children(driver.pid)
        processes = [*workers, *(parent(parent(pid)) for pid in workers), driver.pid, jvm]
        ports = listening(processes)
        assert len(ports) > len(workers)
        os.kill(jvm if kills_jvm else driver.pid, signal.SIGKILL)
        driver.communicate()
        assert driver.returncode == (1 if kills_jvm else -signal.SIGKILL)
    eventually("the end of all its processes", lambda: not any(map(is_there, processes)))
    eventually("the end of its application", lambda: is_at_rest(standalone))
    assert not ports & listening()
