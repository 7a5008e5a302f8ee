"""Jobs begin and end: nothing of them is left, however they end."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

# A signal that comes before somebody waits for the job cancels it at once; in a worker nobody waits.
IS_WAITED_FOR = """
import sys, threading

def is_waited_for():
    return sys._current_frames()[threading.main_thread().ident].f_code.co_name == "_look"
"""

ENDLESS = (
    IS_WAITED_FOR
    + """
import itertools, time
import flownet as fn

class Announce:
    def __init__(self):
        self.said = False

    def extend(self, records):
        if not self.said:
            self.said = True
            while not WORKERS and not is_waited_for():
                time.sleep(0.001)
            print("running", flush=True)

env = fn.Environment(parallelism=2, buffer_timeout="1ms")
env.from_iterable(itertools.count()).rebalance().map(lambda n: n).collect(into=Announce())
if __name__ == "__main__":
    try:
        env.execute(workers=WORKERS)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
)


class Arrived:
    """Sets an event at the first record."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def extend(self, records: list[int]) -> None:
        self.event.set()


def sockets() -> set[str]:
    """Those that this process has open."""
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return {target for target in links if target.startswith("socket:")}


def until_no_more_than(before: set[str], threads: Callable[[], set[str]]) -> None:
    """The system lists a thread for a moment after it was waited for. One that stays runs into the test's limit."""
    while not threads() <= before:
        time.sleep(0.01)


def endless(workers: int) -> tuple[fn.Job, Arrived]:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    arrived = Arrived()
    env.from_iterable(itertools.count()).rebalance().map(lambda n: n).collect(into=arrived)
    return env.execute_async(workers), arrived


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("workers", "times"), [(0, 100), (2, 100)])
def test_a_hundred_starts_and_cancels_leave_nothing(
    workers: int, times: int, runtime_threads: Callable[[], set[str]], child_pids: Callable[[], set[int]]
) -> None:
    before = (runtime_threads(), sockets(), child_pids(), set(os.listdir(tempfile.gettempdir())))
    for turn in range(times):
        job, arrived = endless(workers)
        with job:
            # Half of them are cancelled while they start, half while they run.
            if turn % 2:
                assert arrived.event.wait(30)
            job.cancel()
            with pytest.raises(errors.CancelledError):
                job.wait()
        del job
    until_no_more_than(before[0], runtime_threads)
    assert sockets() <= before[1]
    assert child_pids() == before[2]
    assert not {name for name in set(os.listdir(tempfile.gettempdir())) - before[3] if "flownet" in name}


@pytest.mark.parametrize("how", ["finish", "fail"])
def test_a_job_that_ended_leaves_no_thread_socket_or_process(
    workers: int, how: str, runtime_threads: Callable[[], set[str]], child_pids: Callable[[], set[int]]
) -> None:
    before = (runtime_threads(), sockets(), child_pids())
    env = fn.Environment(parallelism=2)
    env.from_collection(["1", "2", "3" if how == "finish" else "x"]).rebalance().map(int).collect()
    if how == "finish":
        env.execute(workers)
    else:
        with pytest.raises(errors.OperatorError):
            env.execute(workers)
    assert child_pids() == before[2]
    assert sockets() <= before[1]
    until_no_more_than(before[0], runtime_threads)


def test_leaving_the_block_of_a_running_job_ends_it(workers: int, child_pids: Callable[[], set[int]]) -> None:
    before = child_pids()
    job, arrived = endless(workers)
    with job:
        assert arrived.event.wait(30)
    assert child_pids() == before
    job.close()


def test_waiting_for_a_while_leaves_the_job_running(workers: int) -> None:
    job, arrived = endless(workers)
    with job:
        with pytest.raises(TimeoutError, match="still runs after 0.05 s"):
            job.wait(timeout=0.05)
        assert arrived.event.wait(30)
        # Records may arrive before the last worker has said that it runs.
        while job.status().state == "deploying":
            time.sleep(0.01)
        assert job.status().state == "running"


def test_the_status_tells_what_moves(workers: int) -> None:
    job, arrived = endless(workers)
    with job:
        assert arrived.event.wait(30)
        status = job.status()
        while not status.records:
            with pytest.raises(TimeoutError):
                job.wait(timeout=0.1)
            status = job.status()
        assert (status.name, status.workers) == ("job", workers)
        assert [task.parallelism for task in status.tasks] == [1, 2, 1]
        assert status.seconds > 0


def test_the_result_tells_what_moved_and_where_the_time_went(workers: int) -> None:
    env = fn.Environment(parallelism=2, name="squares")
    env.from_collection(range(10_000)).rebalance().map(lambda n: n * n).name("square").collect()
    result = env.execute(workers)
    source, square, collect = result.tasks
    assert (source.records_in, source.records_out) == (10_000, 10_000)
    assert (square.name, square.parallelism, square.records_in, square.records_out) == ("square", 2, 10_000, 10_000)
    assert collect.records_in == 10_000
    assert (result.name, result.workers, result.records) == ("squares", workers, 10_000)
    assert result.records_per_second > 0
    for task in result.tasks:
        assert task.busy + task.back_pressured + task.idle + task.interpreter == pytest.approx(1, abs=0.02)
    assert (result.bytes_tcp > 0) == (workers > 0)
    assert result.bytes_local + result.bytes_tcp > 40_000
    assert "square" in str(result)
    assert "<td>square</td>" in result._repr_html_()


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_ends_the_job_and_its_processes(workers: int) -> None:
    script = ENDLESS.replace("WORKERS", str(workers))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        children = descendants(process.pid)
        assert len(children) == workers
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert not any(is_alive(pid) for pid in children), "workers are gone before execute() raises"
        assert process.wait(30) == 0


SPINNING = (
    IS_WAITED_FOR
    + """
import flownet as fn

def spin(n):
    while not is_waited_for():
        pass
    print("running", flush=True)
    while True:
        try:
            n += 1
        except Exception:
            pass

env = fn.Environment(cancel_timeout="50s", stop_timeout="50s")
env.from_collection([1]).map(spin).print()
try:
    env.execute()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
)


def test_ctrl_c_twice_ends_a_function_of_this_process_that_computes_without_end() -> None:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SPINNING], **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        assert "another Ctrl-C cancels" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait(30) == 0


GIVEN_UP = """
import flownet as fn

def numbers():
    yield "1"
    yield "x"
    while True:
        pass

env = fn.Environment(buffer_timeout="1ms", cancel_timeout="100ms")
env.from_iterable(numbers()).map(int).disable_chaining().collect()
try:
    env.execute()
except fn.errors.OperatorError as error:
    print(error.message)
"""


def test_a_source_that_computes_without_end_does_not_take_the_process_down(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    finished = python("-c", GIVEN_UP)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == "invalid literal for int() with base 10: 'x'\n"


def test_workers_end_when_the_process_that_started_them_is_killed() -> None:
    script = ENDLESS.replace("WORKERS", "2")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        pidfds = [os.pidfd_open(pid) for pid in descendants(process.pid)]
        assert len(pidfds) == 2
        process.kill()
        for pidfd in pidfds:
            # A pidfd is readable once its process has ended.
            with os.fdopen(pidfd) as ended:
                assert select.select([ended], [], [], 30)[0]


def test_two_jobs_run_side_by_side(workers: int) -> None:
    first, first_arrived = endless(workers)
    second, second_arrived = endless(workers)
    with first, second:
        assert first_arrived.event.wait(30)
        assert second_arrived.event.wait(30)


def descendants(pid: int) -> set[int]:
    return {int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()}


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
