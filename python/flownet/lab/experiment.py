"""Experiment: runs one dataflow with meters and samples it into a trace.

The sources begin together at time zero and stop at the end of their pace; then nothing holds the consumers back, so
that everything in flight arrives and each byte can be accounted for.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..api.environment import Environment
from ..api.job import Job
from ..errors import FlownetError, ReceiveLimitError
from ..observation.sample import JobSample
from .meters import Meters
from .parts import RECORD_BYTES
from .trace import Engine, Trace


@contextmanager
def meters(tasks: dict[str, int]) -> Iterator[Meters]:
    """Make meters for one run, and remove them afterwards."""
    with tempfile.TemporaryDirectory(prefix="flownet-lab-") as folder:
        made = Meters.create(os.path.join(folder, "meters"), tasks)
        try:
            yield made
        finally:
            made.close()


def observe(env: Environment, workers: int, meters: Meters, trace: Trace, seconds: float, interval: float) -> None:
    """Run a dataflow to its end and sample it.

    Parameters
    ----------
    env
        Holds the dataflow.
    workers
        Worker processes.
    meters
        Of its parts.
    trace
        Where the samples go, as they are taken.
    seconds
        When the sources stop.
    interval
        Seconds between two samples.
    """
    with env.execute_async(workers) as job:
        _await(job, lambda: all(len(meters.pids(task)) > 0 for task in trace.sources), _LAUNCH_SECONDS, "begin")
        meters.start()
        trace.until = seconds
        zero = time.monotonic()
        try:
            _sample_to_the_end(job, meters, trace, zero, interval)
        except ReceiveLimitError as error:
            trace.stopped = str(error)
        _sample(job.sample(), meters, trace, time.monotonic() - zero)


def _sample_to_the_end(job: Job, meters: Meters, trace: Trace, zero: float, interval: float) -> None:
    for number in range(int((trace.until + _DRAIN_SECONDS) / interval)):
        now = time.monotonic() - zero
        _sample(job.sample(), meters, trace, now)
        if _has_ended(job, max(0.0, (number + 1) * interval - now)):
            return
    raise FlownetError(f"{trace.scenario} under {trace.control} did not end {_DRAIN_SECONDS:.0f} s after its sources")


def _sample(sample: JobSample, meters: Meters, trace: Trace, seconds: float) -> None:
    dropped = sum(task.dropped_records for task in sample.tasks) * RECORD_BYTES
    queued = sum(task.send_bytes + task.receive_bytes for task in sample.tasks)
    resident = sum(worker.resident_bytes or 0 for worker in sample.workers if worker.worker > 0)
    trace.add(seconds, meters.read(), Engine(dropped, queued, resident))


def _await(job: Job, is_true: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        if _has_ended(job, 0.01) or time.monotonic() > deadline:
            raise FlownetError(f"the sources did not {what} within {seconds:.0f} s")


def _has_ended(job: Job, timeout: float) -> bool:
    """Wait for the end of a job, at most so long."""
    try:
        job.wait(timeout)
    except TimeoutError:
        return False
    return True


_LAUNCH_SECONDS = 60.0
_DRAIN_SECONDS = 60.0
