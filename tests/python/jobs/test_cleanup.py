"""What ends with a job, a worker or the program, however these end, and with whatever their functions are busy."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flownet as fn
from flownet import _flownet, errors

HOLDING = """
import ctypes, os, sys, time
import flownet as fn

def hold(n):
    print(os.getpid(), flush=True)
    # A call into C that keeps the interpreter: nothing of Python runs in this process until it returns.
    ctypes.PyDLL(None).sleep(1000)

env = fn.Environment(cancel_timeout="100ms")
env.from_collection([1]).rebalance().map(hold).collect()
env.execute(workers=1)
"""


def test_a_worker_whose_function_keeps_the_interpreter_ends_with_its_driver() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline().split()[-1])
        ended = os.pidfd_open(worker)
        process.kill()
        with os.fdopen(ended):
            assert select.select([ended], [], [], 30)[0]


@pytest.mark.parametrize("how", ["finish", "kill"])
def test_what_a_worker_started_ends_with_it(how: str, tmp_path: Path) -> None:
    def start(n: int) -> int:
        child = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid").write_text(str(child.pid))
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    env = fn.Environment()
    env.from_collection([1]).map(start).collect()
    if how == "finish":
        env.execute(workers=1)
    else:
        with pytest.raises(errors.WorkerLostError):
            env.execute(workers=1)
    wait_until_gone(int((tmp_path / "pid").read_text()))


def wait_until_gone(pid: int) -> None:
    """It is not our child: whoever reaps it does so in a moment."""
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z"):
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)


AT_EXIT = """
import itertools, time
import flownet as fn

def slow(n):
    time.sleep(0.05)
    return n

env = fn.Environment(parallelism=4, buffer_timeout="1ms")
env.from_iterable(itertools.count()).rebalance().map(slow).rebalance().map(slow).collect()
job = env.execute_async()
while not job.status().tasks[1].records_in:
    time.sleep(0.01)
if CANCELS:
    job.cancel()
"""


@pytest.mark.parametrize("cancels", [True, False])
def test_a_job_that_is_left_running_ends_with_the_program(
    cancels: bool, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for _ in range(5):
        finished = python("-c", AT_EXIT.replace("CANCELS", str(cancels)))
        assert (finished.returncode, finished.stderr) == (0, "")


def test_a_child_after_a_fork_leaves_the_jobs_and_pools_of_its_parent_alone() -> None:
    pool = _flownet.WorkerPool("127.0.0.1", "off")
    with _running() as job:
        child = os.fork()
        if child == 0:
            # Whatever happens, this is no second run of the tests.
            try:
                del pool, job
            finally:
                os._exit(0)
        ended = os.pidfd_open(child)
        with os.fdopen(ended):
            assert select.select([ended], [], [], 30)[0], "the child waits for threads that it does not have"
        os.waitpid(child, 0)
        assert job.status().state == "running"
    assert not pool.wait_for(1, 1)


def _running() -> fn.Job:
    env = fn.Environment()
    env.from_iterable(iter(int, 1)).collect()
    job = env.execute_async()
    while job.status().state != "running":
        pass
    return job


def test_all_workers_have_one_hash_of_a_text() -> None:
    env = fn.Environment(parallelism=4)
    hashes = env.from_collection(range(100)).rebalance().map(lambda n: (os.getpid(), hash("a text"))).collect()
    env.execute(workers=2)
    assert len({pid for pid, _ in hashes}) == 2
    assert len({hash_ for _, hash_ in hashes}) == 1
