"""What the tests of the Python side share. No engine is mocked: every job runs through the real extension."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import flownet as fn
from flownet.internal import serialise

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

IN_ONE_PROCESS = (
    "tests/python/spark/",
    "tests/python/exactly_once/kafka/",
    "tests/python/exactly_once/test_postgres.py",
    "tests/python/exactly_once/test_how_to_postgres.py",
    "tests/python/meta/test_typing.py",
)
"""Tests that share what takes seconds to make (Sparks, servers, a run of mypy): beside others, in one process."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out to processes one by one, but for those that stay together, which come first.

    Not by the marker of pytest-xdist: version 3.8 writes into tests what pytest 9.2 no longer reads, so each of two
    processes had a Spark of its own.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return next((start for start in IN_ONE_PROCESS if nodeid.startswith(start)), nodeid)

    return Scheduling(config, log)


class Run(Protocol):
    """Runs a dataflow up to a stream and returns the records of that stream."""

    def __call__(self, stream: fn.Stream[Any], workers: int = ...) -> list[Any]: ...


@pytest.fixture(params=[0, 2], ids=["embedded", "two_workers"])
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def env() -> fn.Environment:
    return fn.Environment(parallelism=2, buffer_timeout="5ms")


@pytest.fixture
def run(env: fn.Environment, workers: int) -> Run:
    def run(stream: fn.Stream[Any], workers: int = workers) -> list[Any]:
        collected = stream.collect()
        env.execute(workers)
        return list(collected)

    return run


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_not_ignored() -> None:
    """A run in the background of a shell ignores it, and processes inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _temporary_files_are_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What other processes leave in the temporary folder, and which cores they hold, is no matter of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(autouse=True)
def _ship_test_module_by_value(request: pytest.FixtureRequest) -> None:
    """Workers cannot import test modules, so what these define travels by value."""
    serialise.ship_by_value(request.module)


@pytest.fixture(autouse=True)
def _no_setting_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("FLOWNET_")]:
        monkeypatch.delenv(variable)


@pytest.fixture(autouse=True)
def _leaves_no_process(_ship_test_module_by_value: None) -> Iterator[None]:
    before = children()
    yield
    assert children() <= before, "a test left worker processes behind"


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python in a process of its own, in an empty folder."""

    def python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        settings = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 200, **options}
        return subprocess.run([sys.executable, *arguments], check=False, **settings)

    return python


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nobody listens, nor can: for tests that want a refused connection."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    """Chooses ports for servers that are told theirs.

    Of those that the system gives nobody who asks for any, as every connection does: one of them might be taken before
    the server is there. Each process of tests begins elsewhere.
    """
    first, end = 10_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    numbers = itertools.count(os.getpid() * 101)

    def is_free(port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return True
        return False

    candidates = (first + number % (end - first) for number in numbers)
    return lambda count: list(itertools.islice(filter(is_free, candidates), count))


@pytest.fixture
def free_port(free_ports: Callable[[int], list[int]]) -> int:
    """A port for a server that is told its own."""
    (port,) = free_ports(1)
    return port


@pytest.fixture
def child_pids() -> Callable[[], set[int]]:
    return children


@pytest.fixture
def runtime_threads() -> Callable[[], set[str]]:
    return named_threads


def named_threads() -> set[str]:
    """Names of the threads of this process that are the runtime's, cut off by the system at 15 characters."""
    found = set[str]()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if name.startswith("flownet"):
            found.add(name)
    return found


def children(pid: int | None = None) -> set[int]:
    """Process ids of the children of a process, by default of this one."""
    found = set[int]()
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended meanwhile
    return found


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    """The client of a notebook kernel that runs."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)
