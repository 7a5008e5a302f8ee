"""Structured Streaming and running jobs: the format ``flownet``, in both directions."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

from .conftest import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from flownet.spark import Inlet, Outlet

pytestmark = pytest.mark.usefixtures("leaves_nothing", "no_thread_is_left", "no_query_is_left")


@pytest.fixture(scope="module")
def spark(local: SparkSession) -> SparkSession:
    from flownet import spark

    local.conf.set("spark.sql.shuffle.partitions", "2")
    local.conf.set("spark.sql.adaptive.enabled", "false")
    spark.register(local)
    return local


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    yield
    eventually("no thread of a stream", lambda: not [t for t in threading.enumerate() if t.name.startswith("flownet-")])


@pytest.fixture
def no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


class Files:
    """A query from an outlet into files, with a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, outlet: Outlet) -> None:
        self._spark, self.folder, self._outlet = spark, folder, outlet

    def start(
        self, *, available_now: bool = False, checkpoint: str = "checkpoint", into: str = "rows"
    ) -> StreamingQuery:
        rows = self._spark.readStream.format("flownet").option("endpoint", self._outlet.endpoint).load()
        writer = rows.writeStream.format("parquet").option("path", str(self.folder / into))
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        writer = (
            writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="50 milliseconds")
        )
        return writer.start()

    def rows(self) -> list[Any]:
        return sorted(
            tuple(row) for row in self._spark.read.schema(SCHEMA).parquet(str(self.folder / "rows")).collect()
        )


def pairs(outlet: Outlet, count: int, parallelism: int = 2) -> fn.Environment:
    """Describe a job that gives numbers and their doubles to an outlet."""
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    numbers = env.from_iterable(lambda subtask, subtasks: range(subtask, count, subtasks))
    numbers.map(lambda number: (number, f"number {number}")).sink_to(outlet.sink)
    return env


def wait_while_read(job: fn.Job, query: StreamingQuery) -> None:
    """Wait until a job ends. It would stand still for ever behind a query that failed: then raise why that did."""

    def ended() -> bool:
        if (failure := query.exception()) is not None:
            job.cancel()
            raise failure
        return job.status().state != "running"

    eventually("the end of the job", ended, job.status)
    job.wait()


def expected(count: int) -> list[Any]:
    return [(number, f"number {number}") for number in range(count)]


SCHEMA = "number long, name string"


@pytest.mark.parametrize(("workers", "tls"), [(0, "auto"), (2, "auto"), (2, "on")])
def test_every_record_of_a_job_reaches_the_query_once(
    spark: SparkSession, tmp_path: Path, workers: int, tls: str
) -> None:
    from flownet.spark import Outlet

    with Outlet(SCHEMA, buffer="64KiB", tls=tls) as outlet:
        files = Files(spark, tmp_path, outlet)
        query = files.start()  # before there is a job
        wait_while_read(pairs(outlet, 20_000).execute_async(workers), query)
    query.processAllAvailable()
    assert query.isActive
    query.stop()
    assert files.rows() == expected(20_000)


def test_a_job_inside_spark_feeds_a_query_of_the_same_spark(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Outlet, cluster

    with Outlet(SCHEMA) as outlet:
        files = Files(spark, tmp_path, outlet)
        job = pairs(outlet, 1000, parallelism=1).execute_async(
            on=cluster(spark, workers=1)
        )  # the query has the other slot
        query = files.start()
        wait_while_read(job, query)
        query.stop()
    assert files.rows() == expected(1000)


# The job does stand still until the query, which may take its time on a busy machine, begins to read.
@pytest.mark.filterwarnings("ignore::flownet.errors.StalledWarning")
def test_a_job_waits_for_the_query_and_its_memory_is_bounded(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Outlet

    pulled = 0

    def numbers() -> Iterator[int]:
        nonlocal pulled
        while pulled < 60_000:
            pulled += 1
            yield pulled - 1

    with Outlet(SCHEMA, buffer="256KiB") as outlet:
        env = fn.Environment(buffer_timeout="5ms", network_memory="1MiB", segment_size="4KiB")
        env.from_iterable(numbers()).map(lambda number: (number, f"number {number}")).sink_to(outlet.sink)
        job = env.execute_async()
        eventually("a sink that waits", lambda: [held["is_waiting"] for held in outlet.status()] == [True])
        [held] = outlet.status()
        assert 0 < held["peak_bytes"] <= held["limit_bytes"] == 256 << 10
        assert pulled < 60_000
        files = Files(spark, tmp_path, outlet)
        query = files.start()
        wait_while_read(job, query)
        query.stop()
    assert files.rows() == expected(60_000)


def test_a_query_goes_on_from_its_checkpoint_and_an_old_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Outlet

    with Outlet(SCHEMA, buffer="64KiB", name="numbers") as outlet:
        job = pairs(outlet, 60_000).execute_async()
        files = Files(spark, tmp_path, outlet)
        eventually("two sinks that wait", lambda: [held["is_waiting"] for held in outlet.status()] == [True] * 2)
        files.start(available_now=True).awaitTermination()
        first = files.rows()
        assert 0 < len(first) < 60_000
        shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
        for _ in range(3):
            files.start(available_now=True).awaitTermination()
        assert len(files.rows()) > len(first)
        error = failure_of(files.start(checkpoint="old", into="elsewhere"))
        assert "job 'numbers', subtask 1 of 2 at 127.0.0.1:" in error
        assert "are asked for, but Spark has committed those below" in error
        query = files.start()
        wait_while_read(job, query)
        query.stop()
    assert files.rows() == expected(60_000)


def test_a_checkpoint_of_another_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Outlet

    for has_run in (False, True):
        with Outlet(SCHEMA) as outlet:
            job = pairs(outlet, 100).execute_async()
            query = Files(spark, tmp_path, outlet).start()
            if has_run:
                assert "the checkpoint belongs to another run of the job" in failure_of(query)
                query = Files(spark, tmp_path, outlet).start(checkpoint="new")
            job.wait()
            query.stop()


def test_a_job_that_dies_is_an_error_of_the_query_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Outlet

    poison = threading.Event()

    def numbers() -> Iterator[tuple[int, str]]:
        yield 1, "one"
        poison.wait(60)
        raise ValueError("poison")

    with Outlet(SCHEMA, name="clicks") as outlet:
        env = fn.Environment(buffer_timeout="1ms")
        env.from_iterable(numbers()).sink_to(outlet.sink)
        job = env.execute_async()
        files = Files(spark, tmp_path, outlet)
        query = files.start()
        eventually("the first row", lambda: (tmp_path / "rows").exists() and files.rows() == [(1, "one")])
        poison.set()
        with pytest.raises(fn.errors.OperatorError, match="poison"):
            job.wait()
        error = failure_of(query)
        assert "flownet.errors.ConnectionLostError: job 'clicks', subtask 1 of 1 at 127.0.0.1:" in error
        assert "is lost, with the rows it held" in error


def numbered(spark: SparkSession, folder: Path, count: int) -> DataFrame:
    """Make a stream of numbers in two partitions."""
    if not folder.exists():
        spark.range(0, count, 1, 2).write.parquet(str(folder))
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 2).parquet(str(folder))


def into(inlet: Inlet, rows: DataFrame, checkpoint: Path) -> StreamingQuery:
    writer = rows.writeStream.format("flownet").option("endpoint", inlet.endpoint)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


@pytest.mark.parametrize(("workers", "tls"), [(0, "auto"), (2, "auto"), (2, "on")])
def test_every_row_of_a_query_reaches_the_job_once(spark: SparkSession, tmp_path: Path, workers: int, tls: str) -> None:
    from flownet.spark import Inlet

    with Inlet("id long", buffer="64KiB", tls=tls) as inlet:
        env = fn.Environment(parallelism=2)
        numbers = env.from_iterable(inlet.source).map(lambda row: row[0]).collect()
        job = env.execute_async(workers)
        into(inlet, numbered(spark, tmp_path / "in", 50_000), tmp_path / "checkpoint").awaitTermination()
        inlet.close()
        job.wait()
    assert sorted(numbers) == list(range(50_000))


def test_a_repeated_micro_batch_does_not_double_rows(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Inlet

    broken, may_fail = tmp_path / "broken", tmp_path / "may fail"
    broken.touch()

    def fail_late(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for start in range(0, len(batch), 100):
                part = batch.slice(start, 100)
                if broken.exists() and 4900 in part.column(0).to_pylist():
                    while not may_fail.exists():
                        time.sleep(0.01)
                    raise ValueError("planned failure")
                yield part

    with Inlet("id long", as_dicts=True) as inlet:
        numbers = list[int]()
        env = fn.Environment(buffer_timeout="1ms")
        env.from_iterable(inlet.source).map(lambda row: int(row["id"])).collect(numbers)
        job = env.execute_async()
        rows = numbered(spark, tmp_path / "in", 10_000).mapInArrow(fail_late, "id long")
        query = into(inlet, rows, tmp_path / "checkpoint")
        eventually("the partition that does not fail", lambda: len(numbers) == 5000)
        may_fail.touch()
        assert "planned failure" in failure_of(query)
        assert len(numbers) == 5000, "nothing of the partition that failed"
        broken.unlink()
        into(inlet, rows, tmp_path / "checkpoint").awaitTermination()
        assert inlet.status()[0]["repeats"] == 1
        inlet.close()
        job.wait()
    assert sorted(numbers) == list(range(10_000))


def test_partitions_that_arrive_newest_first_make_nothing_late(spark: SparkSession, tmp_path: Path) -> None:
    """The older partition of a micro-batch waits until the job has worked off the newer one. Compared with Spark."""
    from pyspark.sql.functions import timestamp_seconds, window

    from flownet.spark import Inlet

    def oldest_last(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            while batch.column(0)[0].as_py() % 1000 == 0 and not (tmp_path / f"newer {batch.column(0)[0]}").exists():
                time.sleep(0.01)
            yield batch

    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row[0] * 1000)
    with Inlet("id long") as inlet:
        seen = list[int]()
        env = fn.Environment(parallelism=2, buffer_timeout="1ms")
        timed = env.from_iterable(inlet.source).assign_timestamps_and_watermarks(strategy)
        timed.map(lambda row: row[0]).collect(seen)
        found = list[Any]()
        timed.key_by(lambda row: row[0] // 60).window(fn.Tumbling("1min")).count().collect(found)
        job = env.execute_async()
        for first in (0, 1000):
            spark.range(first, first + 1000, 1, 2).write.mode("append").parquet(str(folder))
            rows = spark.readStream.schema("id long").parquet(str(folder)).mapInArrow(oldest_last, "id long")
            query = into(inlet, rows, checkpoint)
            eventually("the newer partition", lambda least=first + 500: len(seen) == least)  # type: ignore[misc]
            # Time for watermarks, which come every 200 ms.
            time.sleep(0.5)
            (tmp_path / f"newer {first}").touch()
            query.awaitTermination()
            # The least over the partitions is in the middle of the micro-batch.
            closed = (first + 499) // 60
            eventually("windows that are over", lambda closed=closed: len(found) == closed)  # type: ignore[misc]
        inlet.close()
        result = job.wait()
    assert sum(task.late_records for task in result.tasks) == 0
    minutes = spark.read.parquet(str(folder)).groupBy(window(timestamp_seconds("id"), "1 minute")).count()
    assert sorted(count for _, count in found) == sorted(row["count"] for row in minutes.collect())


def test_a_query_waits_for_the_job_and_the_buffer_is_bounded(spark: SparkSession, tmp_path: Path) -> None:
    from flownet.spark import Inlet

    may_go_on = threading.Event()

    def slow(row: Any) -> int:
        may_go_on.wait(60)
        return int(row[0])

    with Inlet("id long", buffer="128KiB") as inlet:
        # The function waits for this process, which it could not in a copy.
        env = fn.Environment(object_reuse=True)
        numbers = env.from_iterable(inlet.source).map(slow).collect()
        job = env.execute_async()
        query = into(inlet, numbered(spark, tmp_path / "in", 60_000), tmp_path / "checkpoint")
        eventually("a task of Spark that waits", lambda: [held["is_waiting"] for held in inlet.status()] == [True])
        assert query.lastProgress is None
        [held] = inlet.status()
        # The limit, and beyond it one partition of 30,000 numbers.
        assert held["peak_bytes"] <= (128 << 10) + 30_000 * 9
        may_go_on.set()
        query.awaitTermination()
        inlet.close()
        job.wait()
    assert sorted(numbers) == list(range(60_000))


def test_what_cannot_work_is_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    from flownet.spark import Inlet, Outlet

    def complaint(**options: str) -> str:
        reader = spark.readStream.format("flownet")
        with pytest.raises(PySparkException) as raised:
            reader.options(**options).load().writeStream.format("noop").start().processAllAvailable()
        return str(raised.value)

    with Inlet("id long", name="in") as inlet, Outlet("id long") as outlet:
        assert "ConfigError: format 'flownet' needs .option('endpoint', outlet.endpoint)" in complaint()
        assert "ConfigError: format 'flownet' has no option 'endpiont'" in complaint(endpiont="x")
        assert "InputError: endpoint '/nowhere' is not there: its outlet or inlet is closed" in complaint(
            endpoint="/nowhere"
        )
        assert "is of an inlet, not of an outlet: use writeStream" in complaint(endpoint=inlet.endpoint)
        Path(outlet.endpoint).chmod(0o644)
        assert "may be read by others: chmod 600 it" in complaint(endpoint=outlet.endpoint)
        rows = spark.readStream.format("rate").load()
        error = failure_of(into(inlet, rows, tmp_path))
        assert "the inlet of job 'in' has struct<id:bigint>" in error
    with pytest.raises(fn.errors.ConfigError, match="is no schema of Spark"):
        Outlet("no such type")
    with pytest.raises(fn.errors.ConfigError, match="cannot listen on address='192.0.2.1'"):
        Outlet("id long", address="192.0.2.1")
    with pytest.raises(fn.errors.ConfigError, match="File exists"):
        Inlet("id long", endpoint=str(tmp_path))


def failure_of(query: StreamingQuery) -> str:
    """Wait for a query to fail, and return what it says."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    return str(raised.value)
