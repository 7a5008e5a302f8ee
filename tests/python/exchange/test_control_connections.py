"""Connections between driver and worker that end, and processes that are killed or frozen."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flownet as fn
from flownet import errors

LOST = r"worker \d at 127.* with pid \d+ was lost: it lost its connection to the driver: "


class Numbers(fn.FlatMapFunction[int, int]):
    """Emits numbers, and says in a file that its process does."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit

    def flat_map(self, value: int) -> Iterator[int]:
        for number in range(self.limit):
            if number == 10:
                (self.folder / f"runs-{os.getpid()}").touch()
            time.sleep(0.001)
            yield number


def job_of(folder: Path, workers: int, limit: int, restart: str) -> fn.Environment:
    env = fn.Environment(parallelism=workers, restart=restart, buffer_timeout="5ms", heartbeat_timeout="30s")
    env.from_collection(list(range(workers))).rebalance().flat_map(Numbers(folder, limit)).write_text(folder / "out")
    return env


def wait_for(found: Callable[[], bool]) -> None:
    while not found():
        time.sleep(0.01)


def runs(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("runs-")) for path in folder.glob("runs-*")]


def sockets() -> dict[int, int]:
    """List the sockets of this process, oldest first: the descriptor of each, by its number in the system."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        # Connections come and go meanwhile.
        with contextlib.suppress(OSError):
            state = os.fstat(int(name))
            if stat.S_ISSOCK(state.st_mode):
                found[state.st_ino] = int(name)
    return dict(sorted(found.items()))


@pytest.fixture
def cut() -> Callable[[int], None]:
    """Shuts down the oldest TCP connections since the test began: control connections come before those of data."""
    of_others = set(sockets())

    def cut(count: int) -> None:
        for number, descriptor in sockets().items():
            with contextlib.suppress(OSError):
                if count == 0 or number in of_others:
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    if connection.family == socket.AF_INET and connection.getpeername():
                        connection.shutdown(socket.SHUT_RDWR)
                        count -= 1

    return cut


@pytest.mark.parametrize(("workers", "count"), [(1, 1), (3, 1), (3, 3)])
def test_a_control_connection_that_ends_is_reported(
    workers: int, count: int, cut: Callable[[int], None], tmp_path: Path
) -> None:
    with job_of(tmp_path, workers, 1_000_000, "none").execute_async(workers=workers) as job:
        wait_for(lambda: len(runs(tmp_path)) > 0)
        cut(count)
        with pytest.raises(errors.WorkerLostError, match=LOST) as caught:
            job.wait()
    assert caught.value.reason is not None
    assert "signal" not in str(caught.value)
    assert str(caught.value.pid) in str(caught.value)


def test_a_worker_that_the_system_kills_is_reported_as_killed(tmp_path: Path) -> None:
    with job_of(tmp_path, 2, 1_000_000, "none").execute_async(workers=2) as job:
        wait_for(lambda: len(runs(tmp_path)) > 0)
        os.kill(runs(tmp_path)[0], signal.SIGKILL)
        with pytest.raises(errors.WorkerLostError, match="its process was killed by signal 9"):
            job.wait()


def test_a_job_restarts_when_a_control_connection_ends(cut: Callable[[int], None], tmp_path: Path) -> None:
    env = job_of(tmp_path, 2, 1000, "fixed:3:10ms")
    with env.execute_async(workers=2) as job:
        wait_for(lambda: len(runs(tmp_path)) > 0)
        cut(1)
        result = job.wait()
    assert result is not None
    assert result.restarted == 1
    assert "it lost its connection to the driver" in result.restarts[0].cause
    assert len(runs(tmp_path)) > 1, "another process took its place"


def test_a_worker_that_is_frozen_is_reported_as_silent(tmp_path: Path) -> None:
    env = fn.Environment(restart="none", heartbeat_interval="100ms", heartbeat_timeout="1s")
    env.from_collection([1]).rebalance().flat_map(Numbers(tmp_path, 1_000_000)).write_text(tmp_path / "out")
    with env.execute_async(workers=1) as job:
        wait_for(lambda: len(runs(tmp_path)) > 0)
        os.kill(runs(tmp_path)[0], signal.SIGSTOP)
        with pytest.raises(errors.WorkerLostError, match="was silent for 1.* raise heartbeat_timeout"):
            job.wait()


FROZEN = """
import os, sys, time
import flownet as fn

def slow(n):
    print(os.getpid(), flush=True)
    while True:
        time.sleep(0.01)

env = fn.Environment(restart="none", cancel_timeout="10s", heartbeat_interval="100ms", heartbeat_timeout="3s")
env.from_collection([1]).rebalance().map(slow).write_text(sys.argv[1])
env.execute(workers=1)
"""


def test_a_driver_that_was_frozen_learns_why_its_worker_left(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FROZEN), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        worker = int(process.stdout.readline().split()[-1])
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: ") Z " in Path(f"/proc/{worker}/stat").read_text())
        process.send_signal(signal.SIGCONT)
        said = process.stderr.read()
    assert "signal 9" not in said
    assert "it lost its connection to the driver: it heard nothing of the driver for 3s" in said
    assert "raise heartbeat_timeout" in said


def test_a_control_connection_that_ends_while_its_worker_launches_is_reported(
    cut: Callable[[int], None], tmp_path: Path
) -> None:
    is_over = threading.Event()

    def cut_all() -> None:
        while not is_over.is_set():
            cut(1)

    cutting = threading.Thread(target=cut_all)
    cutting.start()
    try:
        with pytest.raises((errors.WorkerLostError, errors.LaunchError), match="signal|connection|register") as caught:
            job_of(tmp_path, 1, 10, "none").execute(workers=1)
    finally:
        is_over.set()
        cutting.join()
    assert "signal" not in str(caught.value)
