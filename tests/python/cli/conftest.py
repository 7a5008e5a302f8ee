"""What the tests of commands share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .served import PROGRAM, Serve, Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[subprocess.Popen[str]] = []

    def serve(*names: str, slow: bool = False, actions: bool = False, token: str | None = None) -> Served:
        given = json.dumps([names, slow, actions, token])
        command = [sys.executable, "-c", PROGRAM, given]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        started.append(process)
        assert process.stdout is not None
        return Served(process, tmp_path, process.stdout.readline().strip(), token)

    yield serve
    for process in started:
        # The end of its standard input ends it.
        process.communicate()
