"""What runs in a task of the barrier stage: a worker, in the Python process that Spark made for the task.

In that process, not in a child of it: Spark ends its Python process when the task is killed, and the worker with it;
and the task's own input and output are at hand. The interpreter is free for the tasks of the job: the thread of the
Spark task hands results to Spark, and one beside it waits in Rust, which serves the worker pool.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import pyarrow
from pyspark import BarrierTaskContext

from .._flownet import Member
from ..errors import FlownetError, LaunchError
from .packing import pack
from .task_bridge import TaskBridge, hang
from .versions import Versions, describe, own_versions


class TaskLoad(NamedTuple):
    """What a task of the stage carries besides its worker."""

    has_input: bool
    """Its input are rows for the job."""
    is_packed: bool
    """These are packed: of several DataFrames, or dealt out to the workers."""
    has_results: bool
    """Its output are rows of the job."""


def serve(
    pool: str, credentials: str, versions: Versions, load: TaskLoad, batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Join the worker pool and serve its jobs until it goes.

    Parameters
    ----------
    worker pool
        Where it listens, ``host:port``.
    credentials
        What it asks for proof of.
    versions
        Those of the process of the caller.
    load
        What the task carries besides the worker.
    batches
        Input of the Spark task.

    Yields
    ------
    pyarrow.RecordBatch
        What sinks give if the load has results, else one row: the number of the worker and of the jobs it took part in.

    Raises
    ------
    LaunchError
        The processes do not run the same versions, or cannot reach each other.
    """
    if not load.has_input:
        for _ in batches:
            pass  # read to its end, or Spark does not use the process again
    context = BarrierTaskContext.get()
    worker = context.partitionId() + 1
    executor = context.getTaskInfos()[context.partitionId()].address
    place = f"Spark executor {executor}"
    try:
        member = Member(_numeric(executor.rpartition(":")[0]), credentials)
    except FlownetError as error:
        raise LaunchError(f"worker {worker} on {place}: {error}", worker=worker) from error
    _meet(context, member, worker, place, versions)
    door = TaskBridge(batches, load.is_packed)
    hang(door)
    # Of Spark's attempts at a task the later has the higher number, across stages too.
    service = _Service(member, pool, worker, context.taskAttemptId(), place)
    service.start()
    results = door.results(service)
    yield from pack(results)
    jobs = service.jobs()
    if not load.has_results:
        yield pyarrow.record_batch({"worker": pyarrow.array([worker], "int32"), "jobs": pyarrow.array([jobs], "int64")})


class _Service(threading.Thread):
    """Serves the worker pool beside the thread of the Spark task, which takes out the results meanwhile."""

    def __init__(self, member: Member, pool: str, worker: int, attempt: int, place: str) -> None:
        super().__init__(name="flownet-member", daemon=True)
        self._member, self._pool, self._worker, self._attempt, self._place = member, pool, worker, attempt, place
        self._end, self._jobs = "", 0
        self._error: FlownetError | None = None

    def run(self) -> None:
        path = list(sys.path)
        try:
            self._end, self._jobs = self._member.serve(self._pool, self._worker, self._attempt, self._place)
        except FlownetError as error:
            self._error = error
        finally:
            sys.path[:] = path

    def jobs(self) -> int:
        """Return the number of jobs when the worker pool has gone."""
        self.join()
        if self._error is not None:
            text = f"worker {self._worker} on {self._place}: {self._error}"
            way_out = "give cluster(address=...) an address that the executors reach"
            raise LaunchError(f"{text}; {way_out}", worker=self._worker) from self._error
        if self._end == "expelled":
            # Without one of its tasks the stage is of no use: its end makes room for one that has all.
            text = f"worker {self._worker} on {self._place}: the job lost its connection to it and let it go"
            raise LaunchError(text, worker=self._worker)
        if self._end == "tasks left":
            _leave()
        return self._jobs


def _meet(context: BarrierTaskContext, member: Member, worker: int, place: str, versions: Versions) -> None:
    """Find out whether all workers fit together, and whether this one reaches others.

    Whoever complains ends the stage for all. There is one exchange through Spark, because it answers once a second.
    Each worker dials a few others, so that the number of connections grows with the number of workers alone.
    """
    card = {"address": member.address, "place": place, "versions": own_versions()}
    everyone = [json.loads(text) for text in context.allGather(json.dumps(card))]
    for number, other in enumerate(everyone, start=1):
        if other["versions"] != versions:
            raise LaunchError(
                f"worker {number} on {other['place']} has {describe(other['versions'])}; the process of the caller has "
                f"{describe(versions)}: install the same on all",
                worker=number,
            )
    dialed = peers_to_dial(worker, len(everyone))
    for position, reason in member.probe([everyone[peer - 1]["address"] for peer in dialed], _PROBE_MS):
        peer = dialed[position]
        other = everyone[peer - 1]
        raise LaunchError(
            f"worker {worker} on {place} cannot reach worker {peer} on {other['place']} at {other['address']}: "
            f"{reason}. The executors need open TCP ports between them, and cores to answer: {len(everyone)} workers "
            "start at once, so take fewer if they share few cores",
            worker=peer,
        )


def peers_to_dial(worker: int, workers: int) -> list[int]:
    """Choose the workers that a worker dials: those at distances of 1, 2, 4 and so on, around the ring of all."""
    distances = [1 << power for power in range(workers.bit_length()) if 1 << power < workers]
    return [(worker - 1 + distance) % workers + 1 for distance in distances]


def _numeric(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise LaunchError(f"the name of this executor, {host!r}, has no address here: {error}") from error


def _leave() -> NoReturn:
    """End the process around threads that do not end. Spark sees the loss and ends the stage."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1)


_PROBE_MS = 30_000
