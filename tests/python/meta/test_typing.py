"""The API as a type checker of a user sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "whole_api.py"
MISTAKES = {
    "numbers.map(str.upper)": "arg-type",
    "numbers.count()": "attr-defined",
    "numbers.key_by(str).window('5s')": "arg-type",
    "fn.Environment(codec='json')": "arg-type",
    "numbers.union(env.from_collection(['a']))": "list-item",
    "env.read_text('x', errors='loud')": "arg-type",
}
"""Lines, and what is to be said of them."""

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says of each script, as in a user's project: strict, and without the settings of this one.

    All in one go: it takes seconds to read what is the same for all, the package and the standard library.
    """
    folder = tmp_path_factory.mktemp("typed")
    scripts = {"whole_api": SCRIPT.read_text()}
    for number, line in enumerate(MISTAKES):
        scripts[f"mistake_{number}"] = (
            f"import flownet as fn\nenv = fn.Environment()\nnumbers = env.from_collection([1, 2])\n{line}\n"
        )
    for name, text in scripts.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache"]
    files = [f"{name}.py" for name in scripts]
    finished = subprocess.run([*command, *files], check=False, cwd=folder, capture_output=True, text=True)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    said: dict[str, list[str]] = {name: [] for name in scripts}
    *lines, last = finished.stdout.splitlines()
    assert last == f"Found {len(lines)} errors in {len(MISTAKES)} files (checked {len(scripts)} source files)"
    for line in lines:
        said[line.partition(".py:")[0]].append(line)
    return said


def test_a_script_that_uses_everything_is_typed_strictly(complaints: dict[str, list[str]]) -> None:
    assert complaints["whole_api"] == []


@pytest.mark.parametrize(("line", "complaint"), MISTAKES.items())
def test_what_cannot_work_is_found_before_it_runs(complaints: dict[str, list[str]], line: str, complaint: str) -> None:
    said = complaints[f"mistake_{list(MISTAKES).index(line)}"]
    assert said
    assert all(":4: error: " in one for one in said), said
    assert any(f"[{complaint}]" in one for one in said), said


def test_the_script_that_uses_everything_runs(python: Python, workers: int) -> None:
    finished = python(str(SCRIPT), str(workers))
    assert (finished.returncode, finished.stderr) == (0, "")
    # Each of the two prints has both keys, with its subtask in front.
    totals = sorted(line.split("> ")[-1] for line in finished.stdout.splitlines())
    assert totals == ["('a', 1)", "('a', 1)", "('b', 2)", "('b', 2)"]
