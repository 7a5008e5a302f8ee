"""The API as a type checker of a user sees it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "whole_api.py"

Python = Callable[..., subprocess.CompletedProcess[str]]


def check(python: Python, script: Path) -> subprocess.CompletedProcess[str]:
    """Runs mypy as in a user's project: strict, and without the settings of this one."""
    return python("-m", "mypy", "--strict", "--config-file=", "--cache-dir=mypy-cache", str(script))


def test_a_script_that_uses_everything_is_typed_strictly(python: Python, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.read_text())
    finished = check(python, tmp_path / "script.py")
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("numbers.map(str.upper)", "arg-type"),
        ("numbers.count()", "attr-defined"),
        ("numbers.key_by(str).window('5s')", "arg-type"),
        ("fn.Environment(codec='json')", "arg-type"),
        ("numbers.union(env.from_collection(['a']))", "list-item"),
        ("env.read_text('x', errors='loud')", "arg-type"),
    ],
)
def test_what_cannot_work_is_found_before_it_runs(python: Python, tmp_path: Path, line: str, complaint: str) -> None:
    (tmp_path / "script.py").write_text(
        f"import flownet as fn\nenv = fn.Environment()\nnumbers = env.from_collection([1, 2])\n{line}\n"
    )
    finished = check(python, tmp_path / "script.py")
    assert finished.returncode == 1
    assert f"[{complaint}]" in finished.stdout


def test_the_script_that_uses_everything_runs(python: Python, workers: int) -> None:
    finished = python(str(SCRIPT), str(workers))
    assert (finished.returncode, finished.stderr) == (0, "")
    # Each of the two prints has both keys, with its subtask in front.
    totals = sorted(line.split("> ")[-1] for line in finished.stdout.splitlines())
    assert totals == ["('a', 1)", "('a', 1)", "('b', 2)", "('b', 2)"]
