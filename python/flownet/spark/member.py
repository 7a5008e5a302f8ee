"""What runs in a task of the barrier stage: a worker, in the Python process that Spark made for the task.

In that process, not in a child of it: Spark ends its Python process when the task is killed, and the worker with it;
and the task's own input and output are at hand. The interpreter is free for the tasks of the job: the thread of the
Spark task waits in Rust, which serves the crew.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow
from pyspark import BarrierTaskContext

from .._flownet import Member
from ..errors import FlownetError, LaunchError
from .versions import Versions, describe, own_versions


def serve(
    crew: str, secret_hex: str, versions: Versions, batches: Iterator[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    """Join the crew and serve its jobs until it goes.

    Parameters
    ----------
    crew
        Where it listens, ``host:port``.
    secret_hex
        What it asks for proof of.
    versions
        Those of the process of the caller.
    batches
        Input of the Spark task: a row that is of no interest.

    Yields
    ------
    pyarrow.RecordBatch
        One row: the number of the worker and of the jobs it took part in.

    Raises
    ------
    LaunchError
        The processes do not run the same versions, or cannot reach each other.
    """
    for _ in batches:
        pass  # read to its end, or Spark does not use the process again
    context = BarrierTaskContext.get()
    worker = context.partitionId() + 1
    executor = context.getTaskInfos()[context.partitionId()].address
    place = f"Spark executor {executor}"
    try:
        member = Member(_numeric(executor.rpartition(":")[0]), secret_hex)
    except FlownetError as error:
        raise LaunchError(f"worker {worker} on {place}: {error}", worker=worker) from error
    _meet(context, member, place, versions)
    path = list(sys.path)
    try:
        jobs = member.serve(crew, worker, place)
    except FlownetError as error:
        text = f"worker {worker} on {place}: {error}; give cluster(address=...) an address that the executors reach"
        raise LaunchError(text, worker=worker) from error
    finally:
        sys.path[:] = path
    if jobs is None:
        _leave()
    yield pyarrow.record_batch({"worker": pyarrow.array([worker], "int32"), "jobs": pyarrow.array([jobs], "int64")})


def _meet(context: BarrierTaskContext, member: Member, place: str, versions: Versions) -> None:
    """Find out whether all workers fit together and reach each other. All raise the same, or none does."""
    card = {"address": member.address, "place": place, "versions": own_versions()}
    everyone = _gather(context, card)
    for number, other in enumerate(everyone, start=1):
        if other["versions"] != versions:
            raise LaunchError(
                f"worker {number} on {other['place']} has {describe(other['versions'])}; the process of the caller has "
                f"{describe(versions)}: install the same on all",
                worker=number,
            )
    unreachable = member.probe([other["address"] for other in everyone], _PROBE_MS)
    # The ports stay open until all have been dialed by all: this waits for everybody.
    for number, failures in enumerate(_gather(context, unreachable), start=1):
        for peer, reason in failures:
            one, other = everyone[number - 1], everyone[peer]
            raise LaunchError(
                f"worker {number} on {one['place']} cannot reach worker {peer + 1} on {other['place']} "
                f"at {other['address']}: {reason}. The executors need open TCP ports between them",
                worker=peer + 1,
            )


def _gather(context: BarrierTaskContext, message: object) -> list[Any]:
    """Exchange a message with all workers; answers come in the order of their numbers."""
    return [json.loads(text) for text in context.allGather(json.dumps(message))]


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


_PROBE_MS = 10_000
