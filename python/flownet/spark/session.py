"""What differs between a classic session of Spark and one of Spark Connect."""

from __future__ import annotations

import inspect
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..errors import ConfigError


def is_connect(spark: SparkSession) -> bool:
    """Whether the driver of Spark is in another process, reached over gRPC."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def own_address(spark: SparkSession) -> str:
    """Find the numeric address of this machine that executors are most likely to reach.

    Raises
    ------
    ConfigError
        The name that Spark knows this machine by has no address.
    """
    if is_connect(spark):
        client: Any = spark.client
        return _address_towards(str(client.host), "the Spark Connect server")
    return resolve(spark.sparkContext.getConf().get("spark.driver.host") or "localhost", "spark.driver.host")


def resolve(host: str, what: str) -> str:
    """Find the numeric address of a host.

    Raises
    ------
    ConfigError
        It has none.
    """
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        text = f"{what} {host!r} has no address ({error}); give cluster(address=...) one that the executors reach"
        raise ConfigError(text, setting="address", value=host) from error


def _address_towards(host: str, what: str) -> str:
    """Find the address from which this machine reaches ``host``. Nothing is sent."""
    numeric = resolve(host, what)
    family = socket.AF_INET6 if ":" in numeric else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as unconnected:
        unconnected.connect((numeric, 9))
        return str(unconnected.getsockname()[0])


def partitions(frame: DataFrame) -> int | None:
    """Count the partitions that a DataFrame will have, where that is certain before it runs."""
    if is_connect(frame.sparkSession):
        return None
    plan: Any = frame._jdf.queryExecution().executedPlan()
    # Behind a shuffle the number is decided while the query runs.
    return None if plan.nodeName() == "AdaptiveSparkPlan" else frame.rdd.getNumPartitions()


def arrow_schema(columns: StructType) -> pyarrow.Schema:
    """Return the Arrow schema of columns, with timestamps in UTC."""
    # PySpark 4.0 has no such parameter: it gives UTC.
    parameters = inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(columns, timezone="UTC") if "timezone" in parameters else to_arrow_schema(columns)


def is_cancelled(error: BaseException | None) -> bool:
    """Whether a Spark job failed because it was cancelled: in the UI, by its group, or by stopping Spark."""
    return any(name in str(error) for name in ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED"))


def is_stopped(spark: SparkSession) -> bool:
    """Whether the session was stopped."""
    if is_connect(spark):
        stopped: bool = spark.is_stopped  # type: ignore[attr-defined]
        return stopped
    context: Any = spark.sparkContext._jsc
    return context is None or bool(context.sc().isStopped())


def is_local(spark: SparkSession) -> bool:
    """Whether the driver is the only executor. False over Spark Connect, where it is not known."""
    if is_connect(spark):
        return False
    master = str(spark.sparkContext.master)
    return master == "local" or master.startswith("local[")


def checkpoint_directory(spark: SparkSession) -> str | None:
    """Return the directory in which Spark keeps checkpoints of DataFrames, if it was given one."""
    if is_connect(spark):
        configured: str | None = spark.conf.get("spark.checkpoint.dir", None)
        return configured
    directory: str | None = spark.sparkContext.getCheckpointDir()
    return directory


def caller_properties(spark: SparkSession) -> dict[str, str]:
    """Return what this thread set for its Spark jobs: the scheduler pool, and the group by which they are cancelled."""
    if is_connect(spark):
        return {}
    context = spark.sparkContext
    found = {name: context.getLocalProperty(name) for name in _CALLER_PROPERTIES}
    return {name: value for name, value in found.items() if value is not None}


@contextmanager
def named_job(spark: SparkSession, tag: str, name: str, properties: Mapping[str, str]) -> Iterator[None]:
    """Give the Spark jobs of this thread a name to be found by, a tag to be cancelled by, and a caller's properties."""
    if is_connect(spark):
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
    else:
        context = spark.sparkContext
        # The group and the properties are this thread's own, and the thread ends with its job.
        context.setJobGroup(tag, name, interruptOnCancel=True)
        for key, value in properties.items():
            context.setLocalProperty(key, value)
        context.addJobTag(tag)
        yield


def cancel(spark: SparkSession, tag: str) -> None:
    """Cancel the Spark jobs with this tag."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


@contextmanager
def interrupt_raised() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` and do no more, in the main thread and where Spark alone handles it.

    A classic session's own handler cancels whatever Spark runs, and so the workers of a job that is about to stop.
    """
    handler = signal.getsignal(signal.SIGINT)
    is_sparks = str(getattr(handler, "__module__", "")).startswith("pyspark.")
    if not is_sparks or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


_CALLER_PROPERTIES = ("spark.scheduler.pool", "spark.jobGroup.id")
