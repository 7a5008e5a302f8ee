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

from ..environment import Environment
from ..errors import FlownetError
from ..job import Job
from .meters import Meters
from .trace import Trace


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
        for number in range(int((seconds + _DRAIN_SECONDS) / interval)):
            now = time.monotonic() - zero
            _sample(job, meters, trace, now)
            if _ended(job, max(0.0, (number + 1) * interval - now)):
                break
        else:
            raise FlownetError(
                f"{trace.scenario} under {trace.control} did not end within {_DRAIN_SECONDS:.0f} s of its sources"
            )
        _sample(job, meters, trace, time.monotonic() - zero)


def _sample(job: Job, meters: Meters, trace: Trace, seconds: float) -> None:
    pids = set[int]().union(*(meters.pids(task) for task in trace.sinks))
    trace.add(seconds, meters.read(), 0, sum(map(_resident_bytes, pids)))


def _await(job: Job, is_true: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        if _ended(job, 0.01) or time.monotonic() > deadline:
            raise FlownetError(f"the sources did not {what} within {seconds:.0f} s")


def _ended(job: Job, timeout: float) -> bool:
    """Wait for the end of a job, at most so long."""
    try:
        job.wait(timeout)
    except TimeoutError:
        return False
    return True


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0  # It has just ended.


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LAUNCH_SECONDS = 60.0
_DRAIN_SECONDS = 60.0
