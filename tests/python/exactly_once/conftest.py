"""What the tests of checkpoints share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flownet.internal import serialise

from . import failures, nexmark_jobs
from .postgres import Server


@pytest.fixture(autouse=True, scope="session")
def _ship_shared_modules_by_value() -> None:
    """Workers cannot import them."""
    serialise.ship_by_value(failures)
    serialise.ship_by_value(nexmark_jobs)


@pytest.fixture(scope="module")
def server(free_ports: Callable[[int], list[int]]) -> Iterator[Server]:
    """A PostgreSQL server that runs."""
    # The user that the server runs as may read this folder, and the path of its socket is short.
    with tempfile.TemporaryDirectory(prefix="flownet-postgres-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        (port,) = free_ports(1)
        server = Server(Path(folder), port)
        yield server
        server.close()
