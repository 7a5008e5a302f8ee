"""Jobs inside Spark, with all its slots in one process."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.errors import CancelledError, ConfigError, InsufficientBuffersError, LaunchError, OperatorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Jobs

from .conftest import eventually

pytestmark = pytest.mark.usefixtures("leaves_nothing")


@pytest.fixture
def cluster(local: SparkSession) -> Callable[..., Any]:
    from flownet import spark

    def cluster(workers: int = 2, **options: Any) -> spark.Cluster:
        return spark.cluster(local, workers=workers, **options)

    return cluster


def test_results_are_equal_in_process_over_processes_and_inside_spark(cluster: Any, jobs: Jobs) -> None:
    expected = jobs.sums(workers=0)
    assert jobs.sums(workers=2) == expected
    assert jobs.sums(cluster()) == expected
    assert jobs.last.bytes_tcp > 0
    assert jobs.last.workers == 2


def test_results_come_as_they_are_made_inside_spark(cluster: Any) -> None:
    env = fn.Environment(parallelism=2)
    endless = env.from_iterable(itertools.count()).rebalance().map(lambda number: number * number)
    with endless.execute_and_collect(on=cluster()) as results:
        # Of either subtask.
        assert {next(number for number in results if number % 2 == odd) % 2 for odd in (0, 1)} == {0, 1}
    rows = env.from_collection([{"n": n} for n in range(100)]).to_rows({"n": "int64"}).rebalance()
    found = rows.filter(fn.col("n") % 2 == 0).to_arrow(on=cluster())
    assert sorted(found["n"].to_pylist()) == list(range(0, 100, 2))


def test_the_workers_talk_over_tls_and_are_held_to_what_the_job_asks_for(cluster: Any, jobs: Jobs) -> None:
    expected = jobs.sums(workers=0)
    with cluster(tls="on") as workers:
        assert jobs.sums(workers) == expected
        env = fn.Environment(parallelism=2, tls="off")
        env.from_collection([1]).rebalance().map(str).collect()
        with pytest.raises(ConfigError, match="tls is off, but the worker pool of these workers was opened with on"):
            env.execute(on=workers)
        assert jobs.sums(workers) == expected


def test_what_functions_say_on_executors_is_printed_and_logged_here_job_by_job(
    cluster: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def say(number: int) -> int:
        print("line", number)
        logging.getLogger("jobs").warning("record %d", number)
        return number

    with cluster() as workers:
        for _ in range(2):
            env = fn.Environment(parallelism=2)
            env.from_collection(range(4)).rebalance().map(say).name("say").collect()
            capsys.readouterr()
            caplog.clear()
            with env.execute_async(on=workers) as job:
                job.wait()
            printed = capsys.readouterr().out.splitlines()
            assert sorted(printed) == [f"[say {1 + number % 2}/2] line {number}" for number in (0, 2, 1, 3)]
            logged = [record.getMessage() for record in caplog.records if record.name == "jobs"]
            assert sorted(logged) == [f"[say {1 + number % 2}/2] record {number}" for number in (0, 2, 1, 3)]
            assert {entry.worker for entry in job.log()} == {1, 2}


def test_one_stage_serves_several_jobs_and_its_own_end_is_quiet(cluster: Any, jobs: Jobs) -> None:
    with cluster() as workers:
        members = workers.members
        assert [jobs.sums(workers), jobs.sums(workers)] == [jobs.sums(workers=0)] * 2
        assert workers.members == members
        assert all(member.startswith("Spark executor ") for member in members)
        assert len(members) == 2
    assert workers.members == []


def test_an_exception_of_a_function_is_the_error_and_the_workers_stay(cluster: Any, jobs: Jobs) -> None:
    with cluster() as workers:
        with pytest.raises(OperatorError) as raised:
            jobs.broken().execute(on=workers)
        assert raised.value.record == "3"
        assert raised.value.error_type == "ZeroDivisionError"
        assert "return 1 / (number - 3)" in str(raised.value)
        assert raised.value.worker is not None
        assert raised.value.worker.partition(" at ")[0] in ("1", "2")
        assert " on Spark executor " in raised.value.worker
        assert jobs.sums(workers) == jobs.sums(workers=0)


def test_a_cancelled_job_leaves_the_workers_to_the_next(cluster: Any, jobs: Jobs, running: Any) -> None:
    with cluster() as workers:
        with jobs.endless().execute_async(on=workers) as job:
            running(job).cancel()
            with pytest.raises(CancelledError):
                job.wait()
        assert jobs.sums(workers) == jobs.sums(workers=0)


def test_a_job_that_nobody_waits_for_gives_everything_back_with_its_block(cluster: Any, jobs: Jobs) -> None:
    with jobs.endless().execute_async(on=cluster()):
        pass


def test_ctrl_c_stops_the_job_with_its_workers_and_frees_the_slots(cluster: Any, jobs: Jobs, running: Any) -> None:
    sparks = signal.getsignal(signal.SIGINT)

    def interrupt() -> None:
        # Spark's own handler cancels what Spark runs: before the job could stop, its workers were gone.
        eventually("somebody who waits for the job", lambda: signal.getsignal(signal.SIGINT) is not sparks)
        os.kill(os.getpid(), signal.SIGINT)

    with jobs.endless().execute_async(on=cluster()) as job:
        running(job)
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            job.wait()
        interrupter.join()
        job.wait()
        assert job.status().state == "ended"
    assert signal.getsignal(signal.SIGINT) is sparks


def test_a_function_that_sleeps_through_its_end_costs_its_process_and_not_the_next_job(
    cluster: Any, jobs: Jobs, running: Any
) -> None:
    def doze(number: int) -> int:
        time.sleep(600)
        return number

    env = fn.Environment(parallelism=2, cancel_timeout="200ms")
    env.from_iterable(lambda subtask, subtasks: iter(int, 1)).rebalance().map(doze).collect()
    with cluster() as workers:
        with env.execute_async(on=workers) as job:
            running(job).cancel()
            with pytest.raises(CancelledError):
                job.wait()
        assert jobs.sums(workers) == jobs.sums(workers=0)


def test_too_few_slots_are_found_before_anything_starts(cluster: Any, jobs: Jobs) -> None:
    with pytest.raises(LaunchError, match=r"3 workers need 3 task slots of Spark at once, and local\[2\] has 2: take"):
        jobs.sums(cluster(workers=3))


def test_slots_that_others_hold_are_waited_for_no_longer_than_said(
    cluster: Any, local: SparkSession, jobs: Jobs
) -> None:
    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        time.sleep(600)
        return batches

    def occupy() -> None:
        local.sparkContext.setJobGroup("occupied", "holds every slot", interruptOnCancel=True)
        with pytest.raises(Exception, match="cancelled"):
            local.range(0, 2, 1, 2).mapInArrow(hold, "id long").collect()

    holder = threading.Thread(target=occupy)
    holder.start()
    try:
        tracker = local.sparkContext.statusTracker()
        while not (jobs_of := tracker.getJobIdsForGroup("occupied")) or not tracker.getActiveStageIds():
            time.sleep(0.01)
        assert jobs_of
        with pytest.raises(LaunchError, match=r"0 of 2 workers came within 1 s, missing are \[1, 2\]: Spark may have"):
            jobs.sums(cluster(launch_timeout="1s"))
    finally:
        local.sparkContext.cancelJobGroup("occupied")
        holder.join()


def test_dynamic_allocation_is_refused_with_the_setting_to_change() -> None:
    from flownet.spark import slots

    settings = {"spark.dynamicAllocation.enabled": "true"}
    spark: Any = SimpleNamespace(conf=settings)
    with pytest.raises(
        LaunchError, match=r"set spark\.dynamicAllocation\.enabled=false and spark\.executor\.instances"
    ):
        slots.refuse_dynamic_allocation(spark, 4)


def test_other_versions_are_refused_with_both(cluster: Any, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    from flownet.spark import stage

    monkeypatch.setattr(stage, "own_versions", lambda: {"flownet": "9.9.9", "wire protocol": "7", "Python": "3.99"})
    with pytest.raises(LaunchError) as raised:
        jobs.sums(cluster())
    text = str(raised.value)
    assert "on Spark executor " in text
    assert "has flownet 0." in text
    assert "the process of the caller has flownet 9.9.9, wire protocol 7, Python 3.99: install the same on all" in text


def test_an_address_that_is_not_ours_or_not_numeric_is_refused(cluster: Any, jobs: Jobs) -> None:
    with pytest.raises(fn.FlownetError, match=r"cannot listen for workers on 192\.0\.2\.1"):
        jobs.sums(cluster(address="192.0.2.1"))
    with pytest.raises(ConfigError, match='address is "somewhere", must be numeric'):
        jobs.sums(cluster(address="somewhere"))


def test_a_plan_that_cannot_run_is_refused_before_spark_is_asked(cluster: Any) -> None:
    env = fn.Environment(parallelism=2, network_memory="32KiB")
    env.from_collection([1]).key_by(lambda number: number).count().collect()
    with pytest.raises(InsufficientBuffersError):
        env.execute(on=cluster(workers=99))


def test_what_does_not_go_together_is_refused(cluster: Any, jobs: Jobs) -> None:
    with pytest.raises(ConfigError, match="leave workers out"):
        jobs.sums(cluster(), workers=2)
    with pytest.raises(ConfigError, match="workers"):
        cluster(workers=0)
    with cluster() as workers:
        with jobs.endless().execute_async(on=workers):
            with pytest.raises(LaunchError, match="at work for job 'endless'"):
                jobs.sums(workers)
        with pytest.raises(ConfigError, match="in use by another with block"), workers:
            pass


def test_spark_shows_a_speaking_name_and_the_log_who_is_up(
    cluster: Any, local: SparkSession, jobs: Jobs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flownet.spark import stage

    # A stage that takes longer to end is called off, and shown as failed: on a busy machine it may.
    monkeypatch.setattr(stage, "_LEAVE_SECONDS", 200.0)
    with caplog.at_level(logging.INFO, logger="flownet.spark"):
        jobs.sums(cluster())
    assert any(message.startswith("all 2 workers are up after ") for message in caplog.messages)
    (newest, *_) = ui(local, "jobs")
    assert newest["description"] == "flownet: 2 workers for job 'job'"
    assert newest["jobGroup"].startswith("flownet-")
    assert newest["status"] == "SUCCEEDED"


def test_the_secret_is_nowhere_to_be_read(
    cluster: Any, local: SparkSession, jobs: Jobs, event_logs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), cluster() as workers:
        secret, *certificates = workers._stage.pool.credentials().split("\n")
        jobs.sums(workers)
        arguments = b"".join(read(process / name) for process in processes() for name in ("cmdline", "environ"))
    configuration = repr(local.sparkContext.getConf().getAll()) + repr(local.sql("SET -v").collect())
    pages = [ui(local, page) for page in ("jobs", "stages", "environment", "executors", "sql?details=true")]
    assert any("flownet_worker" in json.dumps(page) for page in pages), "the right stage is looked at"
    logs = b"".join(read(file) for file in event_logs.rglob("*") if file.is_file() and "local" not in file.parts)
    assert b"flownet: 2 workers for jobs in a row" in logs, "the right log is looked at"
    texts = [arguments, logs, configuration.encode(), json.dumps(pages).encode(), caplog.text.encode()]
    raw = bytes.fromhex(secret)
    # Of the certificates, the key is secret.
    key = certificates.index("-----BEGIN PRIVATE KEY-----") + 1 if certificates else 0
    forms = [secret.encode(), raw, base64.b64encode(raw)[:-2], base64.b64encode(secret.encode())[:-2]]
    for form in forms + [line.encode() for line in certificates[key : key + 1]]:
        assert not any(form in text for text in texts)


def test_import_without_pyspark_says_what_to_install(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    finished = python("-c", "import sys; sys.modules['pyspark'] = None; import flownet.spark")
    assert finished.returncode == 1
    last = finished.stderr.strip().splitlines()[-1]
    assert last == "ImportError: flownet.spark needs PySpark: pip install 'flownet-streams[spark]'"


def ui(spark: SparkSession, page: str) -> Any:
    """Read a page of the UI as JSON."""
    context = spark.sparkContext
    with urllib.request.urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{page}") as answer:
        return json.load(answer)


def processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*"))


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
