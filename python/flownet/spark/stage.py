"""The barrier stage whose tasks are the workers: started, watched, ended.

Spark runs `member.serve` once a task, all at the same time or not at all. The stage lives in a thread of its own, which
waits in Spark's ``collect()`` for its end; everything else is learnt from the worker pool, which the tasks dial.

One task that is lost ends the stage for all: Spark kills the others. The thread then waits for free slots and submits
the stage again, as often as it fails, until the job ends or its restart strategy gives up. The worker pool stays: new
workers take the places of the lost ones, and a job with checkpoints resumes on them. Spark does not end the task of a
silent worker, whose process is frozen or behind a cut network: the stage calls itself off when the job has lost such a
worker.

Three things end the stage for good: it never had all its workers, somebody cancelled it in Spark, or Spark stopped.

The tasks of a stage that carries rows into or out of a job serve one attempt at the job. Before the job begins again
all of them go, also after an exception of a function. Spark then drops their output, and the next stage reads the
DataFrames from the start. So the rows of failed attempts are in no result. A job with checkpoints would resume behind
rows that come again: its stage is not submitted again.

The credentials of the worker pool travel inside the pickled function, as all that the tasks run does: whoever can read
that can run code in them anyhow. They are in no configuration, argument list, event log or page of the UI, which others
may read.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pyspark.resource import ResourceProfile
from pyspark.sql import DataFrame, SparkSession

from .. import _flownet
from ..errors import LaunchError
from . import packing, result_frame, session, slots
from .frame_input import FrameInput, is_dealt_out, stage_input
from .member import TaskLoad
from .versions import Versions, own_versions

if TYPE_CHECKING:
    import pyarrow


class Stage:
    """One barrier stage and the worker pool that its tasks form.

    Parameters
    ----------
    spark
        Where it runs.
    workers
        Number of tasks.
    address
        Numeric address on which the worker pool listens; None finds one.
    tls
        Which connections are encrypted, as in the setting.
    name
        Shown in the Spark UI.
    inputs
        The DataFrames whose rows the tasks read.
    has_results
        Whether the tasks give rows to Spark.
    is_repeatable
        Whether the stage may be submitted again.
    profile
        What Spark sets aside for each task, or None for what it does by default.
    launch_timeout
        Seconds Spark may take until all workers run.
    """

    def __init__(
        self,
        spark: SparkSession,
        workers: int,
        address: str | None,
        tls: str,
        name: str,
        *,
        inputs: Sequence[FrameInput] = (),
        has_results: bool = False,
        is_repeatable: bool = True,
        profile: ResourceProfile | None = None,
        launch_timeout: float,
    ) -> None:
        self._spark = spark
        self._workers = workers
        self._name = name
        self._inputs = inputs
        self._has_results = has_results
        self._knows_of_no_rows = False
        """Spark started no task, as it knows that the inputs have no rows."""
        self._profile = profile
        self._result: DataFrame | None = None
        self._tag = f"flownet-{uuid.uuid4()}"
        self._properties = session.caller_properties(spark)
        self._error: BaseException | None = None
        self._newest = -1
        """The last attempt at a worker that had come when the stage ended."""
        self._pause = _FIRST_PAUSE
        self._was_whole = False
        """Whether all workers of an attempt at the stage came."""
        self._called_off: str | None = None
        """Why this side ended the newest attempt at the stage, if it did."""
        self._launch_timeout = launch_timeout
        self._is_repeatable = is_repeatable
        self._stopping = threading.Event()
        self._ended = threading.Event()
        refill = round(launch_timeout * 1000) if self._is_repeatable else None
        # The input of a task cannot be rewound, nor can its output be taken back.
        each_attempt = bool(inputs) or has_results
        self.pool = _flownet.WorkerPool(address or session.own_address(spark), tls, refill, each_attempt)
        self._thread = threading.Thread(target=self._run, name="flownet-spark", daemon=True)

    def start(self) -> None:
        """Submit the stage and wait until all workers are there.

        Raises
        ------
        LaunchError
            Spark refused or ended the stage, or the workers were not all there in time.
        """
        began = time.monotonic()
        self._thread.start()
        there = 0
        while not self.pool.wait_for(self._workers, _LOOK_MS):
            if self._ended.is_set():
                raise LaunchError(f"Spark ended the stage of the workers: {self.failure(0.0)}") from self._error
            if time.monotonic() - began >= self._launch_timeout:
                raise LaunchError(self._too_late())
            if len(self.pool.members()) > there:
                there = len(self.pool.members())
                _LOGGER.info("%d of %d workers are up", there, self._workers)
        seconds = time.monotonic() - began
        _LOGGER.info("all %d workers are up after %.1f s", self._workers, seconds)
        for worker, pid, place in self.pool.members():
            _LOGGER.debug("worker %d is process %d on %s", worker, pid, place)

    def is_whole(self) -> bool:
        """Whether every worker is there."""
        return not self._ended.is_set() and len(self.pool.members()) == self._workers

    def failure(self, patience: float) -> str | None:
        """Say why Spark ended the stage, if it failed; waits for the end at most ``patience`` seconds."""
        until = time.monotonic() + patience
        while (reason := self._reason()) is None and time.monotonic() < until:
            if self._ended.wait(_LOOK_MS / 1000):
                return self._reason()
        return reason

    def stop(self) -> None:
        """Let the workers go and wait until Spark has its slots back. Harmless when called again."""
        self._stopping.set()
        came = bool(self.pool.members())
        self.pool.close()
        if not self._thread.is_alive():
            return
        # Workers that are there leave by themselves; a stage that still waits for slots has to be called off.
        # Results may take Spark as long as they take.
        if not came or not self._ended.wait(None if self._has_results else _LEAVE_SECONDS):
            session.cancel(self._spark, self._tag)
        if not self._ended.wait(_CANCEL_SECONDS):
            _LOGGER.warning("Spark did not end the stage of the workers within %.0f s of being asked", _CANCEL_SECONDS)
            return
        self._thread.join()

    def result(self) -> DataFrame:
        """Return the packed results, once the stage has ended.

        Raises
        ------
        LaunchError
            Spark did not keep it.
        """
        if self._result is None:
            raise LaunchError(f"Spark lost the results: {self.failure(0.0)}") from self._error
        return self._result

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                before, self._called_off = self._newest, None
                try:
                    with self._watched(before):
                        self._run_once()
                    if not self._inputs or self.pool.attempts() or self._stopping.is_set():
                        break
                    self._knows_of_no_rows = True
                    continue
                except BaseException as error:
                    self._newest = max(self.pool.attempts(), default=-1)
                    self._error = error
                    _LOGGER.debug("the stage of the workers failed", exc_info=error)
                has_all = self._all_came_after(before)
                self._was_whole |= has_all
                self._pause = _FIRST_PAUSE if has_all else min(2 * self._pause, _LONGEST_PAUSE)
                if self._stopping.is_set() or not self._can_submit_again():
                    break
                _LOGGER.warning("Spark ended the stage of the workers, which is submitted again: %s", self.failure(0.0))
                self._wait_for_slots()
        finally:
            # Whoever is left of the workers should not wait for Spark to kill it.
            self.pool.close()
            self._ended.set()

    def _can_submit_again(self) -> bool:
        # Whatever kept the workers of the first attempt from coming would do so again.
        is_wanted = self._is_repeatable and self._was_whole
        is_cancelled = self._called_off is None and session.is_cancelled(self._error)
        return is_wanted and not is_cancelled and not session.is_stopped(self._spark)

    @contextmanager
    def _watched(self, before: int) -> Iterator[None]:
        """Call the stage off meanwhile if a worker leaves it and its task does not end."""
        # Tasks that carry rows give them to Spark when their workers have left.
        if not self._is_repeatable or self._inputs or self._has_results:
            yield
            return
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(before, ended), name="flownet-watch", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def _watch(self, before: int, ended: threading.Event) -> None:
        left_at: float | None = None
        while not ended.wait(_LOOK_MS / 1000) and not self._stopping.is_set():
            missing = self._missing()
            if not missing or not self._all_came_after(before):
                left_at = None
                continue
            left_at = left_at or time.monotonic()
            if time.monotonic() - left_at >= _SECONDS_FOR_SPARK_TO_END:
                self._called_off = (
                    f"the tasks of workers {missing} did not end within {_SECONDS_FOR_SPARK_TO_END:g} s of their loss"
                )
                session.cancel(self._spark, self._tag)
                return

    def _wait_for_slots(self) -> None:
        """Wait until all workers have a slot. Spark itself would look only once in 15 seconds."""
        while not self._stopping.wait(self._pause) and not session.is_stopped(self._spark):
            # Over Spark Connect slots cannot be counted. If Spark stops meanwhile, the stage fails with the reason.
            with suppress(Exception):
                if not session.is_connect(self._spark) and slots.count(self._spark, self._profile) < self._workers:
                    continue
            return

    def _reason(self) -> str | None:
        """Say why Spark ended the stage, unless that is past: workers have come in the place of all that were there."""
        error = self._error
        if error is None or self._all_came_after(self._newest):
            return None
        # The error may be of a lost executor, or of the driver that takes no calls.
        return "Spark was stopped" if session.is_stopped(self._spark) else self._called_off or reason_of(error)

    def _all_came_after(self, attempt: int) -> bool:
        return sum(other > attempt for other in self.pool.attempts()) == self._workers

    def _run_once(self) -> None:
        is_packed = is_dealt_out(self._inputs, self._workers)
        load = TaskLoad(has_input=bool(self._inputs), is_packed=is_packed, has_results=self._has_results)
        body = _body(self.pool.address, self.pool.credentials(), own_versions(), load)
        columns = packing.RESULT_COLUMNS if self._has_results else "worker int, jobs long"
        with session.named_job(self._spark, self._tag, self._name, self._properties):
            tasks = self._tasks(is_packed).mapInArrow(body, columns, barrier=True, profile=self._profile)
            if self._has_results:
                self._result = result_frame.keep(tasks, self._workers)
            else:
                tasks.collect()

    def _tasks(self, is_packed: bool) -> DataFrame:
        """One partition a worker."""
        rows = stage_input(self._spark, self._inputs, self._workers, is_packed)
        if not self._knows_of_no_rows:
            return rows
        return self._spark.range(0, self._workers, 1, self._workers).mapInArrow(_nothing, rows.schema)

    def _missing(self) -> list[int]:
        """List the workers that are not there."""
        there = {worker for worker, _, _ in self.pool.members()}
        return [worker for worker in range(1, self._workers + 1) if worker not in there]

    def _too_late(self) -> str:
        missing = self._missing()
        return (
            f"{self._workers - len(missing)} of {self._workers} workers came within {self._launch_timeout:g} s, "
            f"missing are {missing}: "
            "Spark may have too few free slots (see its UI), the executors may not reach this machine at "
            f"{self.pool.address} (give cluster(address=...) one that they do), or raise launch_timeout"
        )


def reason_of(error: BaseException) -> str:
    """Find the sentence that matters in an error of Spark, which is many pages long."""
    text = str(error)
    for pattern in _REASONS:
        if found := pattern.findall(text):
            return " ".join(found[-1].split())
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def _nothing(_: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """No rows, of which Spark does not know."""
    return iter(())


def _body(pool: str, credentials: str, versions: Versions, load: TaskLoad) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Make the function that Spark ships. It travels by value, so that executors without flownet can say so."""
    # A class of ours would be looked up before there is anybody to say that it is missing.
    plain = tuple(load)

    def flownet_worker(batches: Iterator[Any]) -> Iterator[Any]:
        import sys
        from importlib.util import find_spec
        from pathlib import Path

        from pyspark import SparkFiles

        found = find_spec("flownet")
        # A folder of the name, such as an archive of it, is no flownet.
        if found is None or found.origin is None:
            for folder in {Path(SparkFiles.getRootDirectory()).resolve(), Path.cwd()}:
                sys.path[:0] = [str(package.parents[1]) for package in folder.glob("*/flownet/__init__.py")]
            sys.modules.pop("flownet", None)
        try:
            from flownet.spark import member
        except ImportError as error:
            text = f"flownet.errors.LaunchError: the Python of the executors ({sys.executable}) lacks flownet: {error}"
            text += ". Install it there, or ship it by flownet.spark.pack()"
            raise RuntimeError(text) from error
        return member.serve(pool, credentials, versions, member.TaskLoad(*plain), batches)

    return flownet_worker


_LOGGER = logging.getLogger("flownet.spark")
_REASONS = [
    re.compile(pattern, flags=re.MULTILINE | re.DOTALL)
    for pattern in (
        r"flownet\.errors\.\w+: ([^\n]*)",
        r"^((?:\w+\.)*\w+(?:Error|Exception): [^\n]*)(?=\n\n)",
        r"Most recent failure reason: (.*?)(?=\n\s+at |\Z)",
        r"org\.apache\.spark\.\w+: (.*?)(?=\n\s+at |\Z)",
    )
]
"""Our own words, else the last line of a Python traceback, else Spark's words before its stack."""
_LOOK_MS = 200
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0
"""Seconds before the stage is submitted again, twice as many after each attempt to which not all workers came."""
_SECONDS_FOR_SPARK_TO_END = 5.0
"""How long the task of a lost worker may stay. Spark ends those of dead processes at once."""
_LEAVE_SECONDS = 5.0
_CANCEL_SECONDS = 20.0
