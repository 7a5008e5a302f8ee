"""The workers inside Spark, as a host of jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from ..errors import ConfigError, FlownetError, LaunchError
from ..internal import config
from ..observation.report import JobStatus
from ..planning.launcher import Frames
from . import slots
from .frame_input import check_order
from .resources import AS_BY_DEFAULT, TaskResources
from .session import interrupt_raised
from .stage import Stage

if TYPE_CHECKING:
    from .._flownet import WorkerPool
    from .result_frame import SparkResult


def cluster(
    spark: SparkSession,
    workers: int,
    *,
    cpus: int | None = None,
    resources: Mapping[str, int] | None = None,
    address: str | None = None,
    tls: str | None = None,
    launch_timeout: str | timedelta = "60s",
) -> Cluster:
    """Host jobs inside a Spark application: the ``on`` of `Environment.execute`.

    In a ``with`` block the workers start at once and serve one job after the other until its end. Given to
    ``execute(on=...)`` without one, they start with the job and leave with it.

    Parameters
    ----------
    spark
        A session, classic or Spark Connect, of PySpark 4.0 or later.
    workers
        Number of workers, 1 to 1024. Each takes one task slot of Spark, all at the same time.
    cpus
        CPUs of its executor that Spark sets aside for each worker. Subtasks are threads of their worker: what does not
        run in Python's interpreter, such as rows, uses several. Needs a cluster: ``local[N]`` sets nothing aside. None
        takes ``spark.task.cpus``. Default: None.
    resources
        Other resources that Spark sets aside for each worker, such as ``{"gpu": 1}``. The executors have to be started
        with them: ``spark.executor.resource.gpu.amount`` and a discovery script. A function learns which ones it has by
        ``pyspark.TaskContext.get().resources()``. Default: None.
    address
        Numeric address of this machine that the executors reach. None takes ``spark.driver.host``; over Spark Connect
        the address from which this machine reaches the server. Default: None.
    tls
        Whether what the workers and this process say to each other is encrypted: ``"auto"``, ``"off"``, ``"on"`` or the
        folder of own certificates, as in the setting of `Environment`. None takes the setting of the job or, in a
        ``with`` block, of ``FLOWNET_TLS``. Default: None, which is on wherever this machine listens off loopback.
    launch_timeout
        How long Spark may take until all workers run, its wait for free slots included. So long a job that restarts
        waits for others in the place of workers it lost. Default: ``"60s"``.

    Returns
    -------
    Cluster
        Nothing of it runs yet.

    Raises
    ------
    ConfigError
        A value does not fit.

    Notes
    -----
    The executors need the same version of flownet and the same minor version of Python as this process.

    Examples
    --------
    >>> result = env.execute(on=flownet.spark.cluster(spark, workers=4))  # doctest: +SKIP
    """
    limit = config.duration_us("launch_timeout", launch_timeout) / 1e6
    count = config.workers("workers", workers)
    asked = TaskResources.checked(cpus, resources)
    return Cluster(spark, count, address, limit, tls=tls and config.tls("tls", tls), resources=asked)


class Cluster:
    """Workers inside a Spark application. Made by `cluster`, which says more."""

    def __init__(
        self,
        spark: SparkSession,
        workers: int,
        address: str | None,
        launch_timeout: float,
        *,
        tls: str | None = None,
        resources: TaskResources = AS_BY_DEFAULT,
    ) -> None:
        self._spark = spark
        self._workers = workers
        self._address = address
        self._launch_timeout = launch_timeout
        self._tls = tls
        self._resources = resources
        self._entered = False
        self._stage: Stage | None = None
        self._job: str | None = None
        self._lock = threading.Lock()

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._workers

    @property
    def members(self) -> list[str]:
        """Where the workers are that run now, in the order of their numbers."""
        stage = self._stage
        return [place for _, _, place in stage.pool.members()] if stage else []

    def lease(self, job_name: str, tls: str, frames: Frames | None = None) -> _Lease:
        """Give the workers to one job with this setting of ``tls``. Called by ``execute()``.

        Raises
        ------
        LaunchError
            Spark has too few slots, the workers did not come in time, or another job has them.
        ConfigError
            The job reads or writes DataFrames, which these workers cannot carry.
        """
        frames = frames or Frames()
        if frames and self._entered:
            raise ConfigError(
                f"job {job_name!r} reads or writes a DataFrame, whose tasks become its workers: give it a cluster of "
                "its own, execute(on=flownet.spark.cluster(...)), outside of a with block",
                setting="on",
            )
        check_order(frames.inputs, self._workers)
        with self._lock:
            if self._job is not None:
                raise LaunchError(
                    f"the workers of this cluster are at work for job {self._job!r}; wait for its end, or give job "
                    f"{job_name!r} a cluster of its own"
                )
            if self._stage is None or not self._stage.is_whole():
                self._stop()
                self._start(self._speaking_name(None if self._entered else job_name), tls, frames)
            assert self._stage is not None
            self._job = job_name
            for output in frames.outputs:
                output.begin()
            return _Lease(self, self._stage, frames.outputs)

    def __enter__(self) -> Cluster:
        with self._lock:
            if self._entered:
                raise ConfigError("this cluster is in use by another with block", setting="on")
            self._start(self._speaking_name(None), str(config.resolve({}, {})["tls"]))
            self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        self._stop()

    def _start(self, name: str, tls: str, frames: Frames | None = None) -> None:
        frames = frames or Frames()
        slots.refuse_dynamic_allocation(self._spark, self._workers)
        profile = self._resources.profile(self._spark)
        slots.check(self._spark, self._workers, self._launch_timeout, self._resources, profile)
        tls = self._tls or tls
        stage = Stage(
            self._spark,
            self._workers,
            self._address,
            tls,
            name,
            inputs=frames.inputs,
            has_results=bool(frames.outputs),
            is_repeatable=not (frames and frames.takes_checkpoints),
            profile=profile,
            launch_timeout=self._launch_timeout,
        )
        try:
            stage.start()
        except BaseException:
            stage.stop()
            raise
        self._stage = stage

    def _stop(self) -> None:
        if self._stage is not None:
            self._stage.stop()
            self._stage = None

    def _give_back(self, stage: Stage, outputs: Sequence[SparkResult]) -> None:
        """End the lease of the job, and fill its results."""
        with self._lock:
            self._job = None
            if not self._entered:
                self._stop()
            kept = stage.result() if outputs else None
        for output in outputs:
            assert kept is not None
            output.fill(kept)

    def _speaking_name(self, job_name: str | None) -> str:
        """Name for the Spark UI."""
        purpose = "jobs in a row" if job_name is None else f"job '{job_name}'"
        return f"flownet: {self._workers} worker{'s' if self._workers > 1 else ''} for {purpose}"

    def __repr__(self) -> str:
        return f"<flownet.spark.Cluster of {self._workers} workers, {len(self.members)} there>"


class _Lease:
    """The workers, as long as one job has them."""

    def __init__(self, cluster: Cluster, stage: Stage, outputs: Sequence[SparkResult]) -> None:
        self._cluster = cluster
        self._stage = stage
        self._outputs = outputs
        self._is_complete = False
        self._next_line_at = time.monotonic() + _SECONDS_BETWEEN_LINES

    @property
    def pool(self) -> WorkerPool:
        return self._stage.pool

    def interruptible(self) -> AbstractContextManager[None]:
        return interrupt_raised()

    def watch(self, status: Callable[[], JobStatus]) -> None:
        now = time.monotonic()
        if now >= self._next_line_at:
            self._next_line_at = now + _SECONDS_BETWEEN_LINES
            seen = status()
            records = f"{seen.records:,} records, {seen.records_per_second:,.0f} a second"
            _LOGGER.info("%s: %s for %.0f s, %s", seen.name, seen.state, seen.seconds, records)

    def explain(self, error: FlownetError) -> None:
        reason = self._stage.failure(_SECONDS_FOR_SPARK_TO_NOTICE) if not self._stage.is_whole() else None
        if reason:
            error.add_note(f"Spark says: {reason}")

    def complete(self) -> None:
        self._is_complete = True

    def close(self) -> None:
        self._cluster._give_back(self._stage, self._outputs if self._is_complete else ())


_LOGGER = logging.getLogger("flownet.spark")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_FOR_SPARK_TO_NOTICE = 3.0
"""How long an error waits for Spark's own account of a lost worker; it comes a moment after the loss."""
