from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_lines_are_read_until_the_server_hangs_up(env: fn.Environment, run: Run, server: socket.socket) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            for piece in (b"to be\nor n", b"ot to ", b"be\r\n", b"end"):
                connection.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    assert run(env.socket_text("127.0.0.1", server.getsockname()[1])) == ["to be", "or not to be", "end"]
    thread.join()


def test_a_line_is_passed_on_while_the_server_is_silent(workers: int, server: socket.socket) -> None:
    env = fn.Environment(buffer_timeout=0)
    arrived = threading.Event()

    class Arrived:
        def extend(self, records: list[str]) -> None:
            assert records == ["first"]
            arrived.set()

    env.socket_text("127.0.0.1", server.getsockname()[1]).collect(into=Arrived())
    with env.execute_async(workers) as job:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"first\n")
            assert arrived.wait(30)
        job.wait()


def test_a_server_that_is_not_there_fails_the_job(env: fn.Environment, run: Run, closed_port: int) -> None:
    with pytest.raises(fn.errors.InputError, match=f"cannot connect to 127.0.0.1:{closed_port}"):
        run(env.socket_text("127.0.0.1", closed_port))


def test_a_server_that_sends_no_text_is_named(env: fn.Environment, workers: int, server: socket.socket) -> None:
    port = server.getsockname()[1]
    env.socket_text("127.0.0.1", port).collect()
    with env.execute_async(workers) as job:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"fine\n\xff\n")
            with pytest.raises(fn.errors.InputError, match="a line is not UTF-8, at byte 0") as caught:
                job.wait(30)
    assert caught.value.path == f"127.0.0.1:{port}"


@pytest.mark.parametrize(("host", "port"), [("", 80), (None, 80), ("localhost", 0), ("localhost", 65_536), ("h", "80")])
def test_addresses_are_checked_at_once(env: fn.Environment, host: Any, port: Any) -> None:
    with pytest.raises(fn.errors.ConfigError):
        env.socket_text(host, port)
