"""The tutorial's programs run one after the other, on its data, and print what it shows."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

PAGE = (Path(__file__).parents[3] / "docs" / "get-started" / "tutorial.md").read_text()
PROGRAM = re.compile(
    r"```python\n# (?P<name>\w+\.py)\n(?P<program>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL
)
Python = Callable[..., CompletedProcess[str]]


def test_programs_print_what_the_tutorial_shows(python: Python, tmp_path: Path) -> None:
    programs = {match["name"]: (match["program"], match["output"]) for match in PROGRAM.finditer(PAGE)}
    for name, (program, output) in programs.items():
        (tmp_path / name).write_text(program)
        if name == "days.py":
            killed = python(name)
            assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "")
        arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", name) if name.startswith("test_") else (name,)
        finished = python(*arguments)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        if name == "hours.py":
            assert_late(finished.stdout)
            (tmp_path / name).write_text(program.replace('DELAY = "30min"', 'DELAY = "1d"'))
            assert f"```text\n{python(name).stdout}```" in PAGE
        elif output is not None:
            assert finished.stdout == output, name
    assert list(programs) == [
        *("prepare.py", "read.py", "count.py", "hours.py", "fog.py", "days.py", "check.py", "test_days.py")
    ]


def assert_late(output: str) -> None:
    """Some flights are late. How many also depends on the clock: see the page."""
    found = re.fullmatch(r"(\d+) counted, (\d+) late\n", output)
    assert found is not None
    counted, late = map(int, found.groups())
    assert counted + late == 78_146
    assert late > 0


def test_the_deployed_job_is_one_that_the_command_line_finds(python: Python, tmp_path: Path) -> None:
    days = next(match["program"] for match in PROGRAM.finditer(PAGE) if match["name"] == "days.py")
    (tmp_path / "days.py").write_text(days)
    (tmp_path / "flights.csv").write_text("planned,origin,delay\n2013-01-01T10:15:00Z,EWR,2\n")
    (command,) = re.findall(r"^flownet (run days:describe .+) --ui$", PAGE, re.MULTILINE)
    finished = python("-m", "flownet", *command.split())
    assert finished.returncode == 0, finished.stderr
    assert list((tmp_path / "days").glob("*.parquet"))
