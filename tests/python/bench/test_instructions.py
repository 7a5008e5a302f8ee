"""How many instructions a record costs, counted one by one in the extension that ships.

No test of what the exchange does sees that the compiler makes a call of what it used to inline, which once made the
exchange half as slow. Time is no measure of it on a machine with other work, and processors count for few virtual
machines. So a thread of a bench is run step by step, as a process may run its children: on every run the same figure.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flownet import bench

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the bounds are those of x86-64"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module", autouse=True)
def _is_optimised() -> None:
    run = bench.run("exchange", bench.settings("exchange", {"records": 1, "local": True}))
    if run["versions"]["build"] != "release":
        pytest.skip("the bounds are those of a release build")


@pytest.mark.parametrize(("channels", "most"), [(1, 22), (4, 60)], ids=["one channel", "four"])
def test_a_record_is_written_in_few_instructions(channels: int, most: float) -> None:
    few, many = 500, 2000
    # What threads and buffers cost at the start and at the end is in both.
    each = (instructions_of_a_writer(many, channels) - instructions_of_a_writer(few, channels)) / (many - few)
    assert 5 < each < most, "so many more are a call of what was inlined before: see #[inline(always)] in flownet-core"


def instructions_of_a_writer(records: int, channels: int) -> int:
    """Count what the thread does that writes so many records of 8 bytes into an exchange of its own process."""
    spec = bench.settings("exchange", {"records": records, "channels": channels, "local": True})
    with bench_process() as process:
        say(process, {"Begin": {"ExchangeLocal": {"spec": spec}}})
        assert hear(process) == "Ready"
        trace_main_thread(process.pid)
        say(process, "Go")
        # The main thread starts one that starts the writer.
        writer = next_thread_of(next_thread_of(process.pid))
        steps = 0
        while wait(writer) is not None:
            ptrace(SINGLESTEP, writer)
            steps += 1
        assert isinstance(said := hear(process), dict)
        assert "Done" in said
    return steps


@contextmanager
def bench_process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-P", "-m", "flownet.bench_process"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        yield process
        process.kill()


def say(process: subprocess.Popen[str], instruction: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(instruction) + "\n")


def hear(process: subprocess.Popen[str]) -> object:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


CONT, SINGLESTEP, DETACH, GETEVENTMSG, SEIZE = 7, 9, 17, 0x4201, 0x4206
O_TRACECLONE, EVENT_CLONE = 0x8, 3
WALL = 0x40000000


def trace_main_thread(pid: int) -> None:
    """Trace a process' main thread, and the threads that it starts."""
    try:
        ptrace(SEIZE, pid, O_TRACECLONE)
    except PermissionError:
        pytest.skip("this machine lets no process trace its children (ptrace)")


def next_thread_of(thread: int) -> int:
    """Let a traced thread run until it starts another, which is traced from then on in its place."""
    while wait(thread) != signal.SIGTRAP | EVENT_CLONE << 8:
        ptrace(CONT, thread)
    started = ctypes.c_ulong()
    ptrace(GETEVENTMSG, thread, ctypes.addressof(started))
    ptrace(DETACH, thread)
    return started.value


def wait(thread: int) -> int | None:
    """Wait until a traced thread stops, and say why; None once it has ended."""
    _, status = os.waitpid(thread, WALL)
    return status >> 8 if os.WIFSTOPPED(status) else None


def ptrace(request: int, thread: int, data: int = 0) -> None:
    if LIBC.ptrace(request, thread, 0, data) == -1:
        raise OSError(ctypes.get_errno(), "ptrace")


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long] * 4
LIBC.ptrace.restype = ctypes.c_long
