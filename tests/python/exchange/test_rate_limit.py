"""Sources that go no faster than they are told to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import flownet as fn
from flownet.errors import ConfigError

LINES = [f"line {number}" for number in range(300)]


def serve(lines: list[str]) -> int:
    """Send lines to whoever connects first; returns the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            connection.sendall("".join(f"{line}\n" for line in lines).encode())

    threading.Thread(target=send, daemon=True).start()
    return int(listener.getsockname()[1])


SOURCES: dict[str, Callable[[fn.Environment, Path, float | str], fn.Stream[str]]] = {
    "from_collection": lambda env, _, limit: env.from_collection(LINES, rate_limit=limit),
    "from_iterable": lambda env, _, limit: env.from_iterable(iter(LINES), rate_limit=limit),
    "from_iterable of a function": lambda env, _, limit: env.from_iterable(
        lambda subtask, subtasks: LINES[subtask::subtasks], rate_limit=limit
    ),
    "read_text": lambda env, path, limit: env.read_text(path, rate_limit=limit),
    "socket_text": lambda env, _, limit: env.socket_text("127.0.0.1", serve(LINES), rate_limit=limit),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("limit", [1000, "1000/s", "10kB/s"])
def test_every_source_keeps_its_rate_and_loses_nothing(tmp_path: Path, source: str, limit: float | str) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
    env = fn.Environment(parallelism=2)
    lines = SOURCES[source](env, tmp_path / "lines.txt", limit).collect()
    result = env.execute()
    assert sorted(lines) == sorted(LINES)
    # 300 records at 1000 a second, or some 3.3 kB at 10 kB a second, but for the burst of 100 ms: never faster.
    assert result.seconds > 0.19


def test_a_limited_source_is_cancelled_at_once() -> None:
    env = fn.Environment()
    env.from_iterable(range(100), rate_limit=0.01).collect()
    with env.execute_async() as job:
        while job.status().records == 0:
            time.sleep(0.01)
        job.cancel()
        with pytest.raises(fn.errors.CancelledError):
            job.wait(timeout=10)


def test_what_comes_is_on_its_way_while_the_source_waits() -> None:
    env = fn.Environment(buffer_timeout="1ms")
    numbers = env.from_iterable(range(3), rate_limit=0.05).collect()
    with env.execute_async() as job:
        while len(numbers) == 0:
            time.sleep(0.01)
            job.status()
    assert list(numbers) == [0]


@pytest.mark.parametrize(
    "limit", [0, -1, float("nan"), float("inf"), "fast", "10", "10MB", "0/s", "2 MB/min", True, b"1"]
)
def test_what_is_no_rate_is_refused_before_anything_runs(limit: object) -> None:
    with pytest.raises(ConfigError, match="rate_limit=") as caught:
        fn.Environment().from_collection([1], rate_limit=limit)  # type: ignore[arg-type]
    assert caught.value.setting == "rate_limit"
