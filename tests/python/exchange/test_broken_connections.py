"""What a job says when a connection, a thread or an error is not what it should be: real processes, real faults."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import flownet as fn
from flownet import errors

RUNS = 8
MEGABYTES = 50
# The kind of frame.
EVENT = 2
# Of the thread that builds chains.
STACK_KILOBYTES = 8 << 10


class CutConnections:
    """Shuts down the data connections that the process accepted, when it has seen enough records."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, value: int) -> int:
        self.seen += 1
        if self.seen == 3000:
            cut_connections()
        return value


class BreakProtocol:
    """Sends an event that is out of sequence to whoever reads the first channel of a connection to this process."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, value: int) -> int:
        self.seen += 1
        if self.seen == 100:
            channel, sequence, backlog, watermark = 0, 1 << 31, 0, 1
            body = struct.pack("<IIIBq", channel, sequence, backlog, watermark, 0)
            for connection in accepted_connections():
                connection.send(struct.pack("<BBHI", EVENT, 0, 0, len(body)) + body)
        return value


def cut_connections() -> None:
    for connection in accepted_connections():
        # Another subtask may have been faster.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def accepted_connections() -> Iterator[socket.socket]:
    """The TCP connections that others opened to this process, each as a duplicate."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptor = int(name)
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                found.append(socket.socket(fileno=os.dup(descriptor)))
        except OSError:
            continue
    tcp = [one for one in found if one.family == socket.AF_INET]
    listens = {one: one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for one in tcp}
    ports = {one.getsockname()[1] for one in tcp if listens[one]}
    for one in tcp:
        if not listens[one] and one.getsockname()[1] in ports:
            yield one
    for one in found:
        one.close()


def endless(subtask: int, subtasks: int) -> Iterator[int]:
    number = subtask
    while True:
        yield number
        number += subtasks


def test_a_connection_that_breaks_between_workers_is_told_as_such_every_time() -> None:
    for _ in range(RUNS):
        env = fn.Environment(parallelism=4, buffer_timeout="5ms")
        numbers = env.from_iterable(endless).set_parallelism(2)
        numbers = numbers.key_by(lambda n: n % 64).map(CutConnections())
        numbers = numbers.key_by(lambda n: n % 32).map(lambda n: n)
        numbers.key_by(lambda n: n % 16).filter(lambda _: False).collect()
        with pytest.raises(errors.ConnectionLostError) as caught:
            env.execute(workers=2)
        assert caught.value.peer is not None
        assert caught.value.peer.startswith("127.0.0.1:")
        assert caught.value.peer in str(caught.value)


def test_a_worker_that_breaks_the_protocol_is_named_with_the_channel() -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="5ms")
    # Slow enough for no frame to be half written when the forged one is.
    numbers = env.from_iterable(endless, rate_limit=1000).set_parallelism(2).map(BreakProtocol())
    numbers.key_by(lambda n: n % 64).filter(lambda _: False).collect()
    with pytest.raises(errors.ProtocolViolationError, match="sequence number 2147483648") as caught:
        env.execute(workers=2)
    error = caught.value
    assert error.peer is not None
    assert error.peer.startswith("127.0.0.1:")
    assert error.channel is not None
    assert error.partition is not None
    assert f"{error.peer} broke the protocol on input channel {error.channel}" in str(error)


def test_an_exception_with_a_text_of_megabytes_stays_an_operator_error(env: fn.Environment, workers: int) -> None:
    def complain(_: int) -> int:
        raise ValueError("begin " + "é" * (MEGABYTES << 20) + " end")

    # Those behind it hear of the failure long before 50 MB could have been told.
    env.from_collection([1]).map(complain).name("complain").key_by(lambda n: n).map(lambda n: n).print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute(workers)
    error = caught.value
    assert (error.operator, error.error_type) == ("complain", "ValueError")
    assert error.message.startswith("begin é")
    assert error.message.endswith("é end")
    assert "bytes left out" in error.message
    assert len(str(error)) < 1 << 20


def test_where_no_thread_can_be_started_the_job_says_so_and_ends() -> None:
    # Memory for everything else, and none for the stack of one thread more: where that is depends on the machine.
    job = textwrap.dedent(
        """
        import flownet as fn
        env = fn.Environment(network_memory="1MiB")
        env.from_collection(range(10)).key_by(lambda n: n).map(lambda n: n).collect()
        try:
            env.execute(workers=2)
            print("finished")
        except fn.errors.FlownetError as error:
            print(type(error).__name__, error)
        """
    )

    def run(kilobytes: int) -> str:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))

        command = [sys.executable, "-c", job]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)
        assert "panicked" not in ended.stderr, f"{kilobytes} KiB: {ended.stderr}"
        return ended.stdout.strip() or ended.stderr.strip().split("\n")[-1]

    too_little, enough = 20_000, 1_000_000
    while enough - too_little > STACK_KILOBYTES // 2:
        middle = (too_little + enough) // 2
        if run(middle) == "finished":
            enough = middle
        else:
            too_little = middle
    # The stack of one thread is the largest of the last things that a job takes, with little memory for its buffers.
    told = [run(too_little - step * STACK_KILOBYTES // 2) for step in range(6)]
    assert any("thread" in line for line in told), told
