"""Programs on pages run as they stand, and print the output that the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PROGRAM = re.compile(r"```python\n(?P<program>.*?)```\n(?:\n```text\n(?P<output>.*?)```)?", re.DOTALL)
PAGES = [
    "index.md",
    "get-started/quickstart.md",
    "concepts/streams-and-rows.md",
    "concepts/keys-and-state.md",
    "concepts/time-and-windows.md",
    "concepts/parallelism.md",
    "concepts/back-pressure.md",
    "reference/settings.md",
    "reference/types.md",
]


def programs(page: str) -> list[tuple[str, str | None]]:
    found = [(match["program"], match["output"]) for match in PROGRAM.finditer((DOCS / page).read_text())]
    assert found, f"{page} shows no program"
    return found


@pytest.mark.parametrize("page", PAGES)
def test_programs_print_the_output_that_the_page_shows(
    python: Callable[..., CompletedProcess[str]], tmp_path: Path, page: str
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("to be or not to be\n")
    for number, (program, output) in enumerate(programs(page)):
        (tmp_path / f"{number}.py").write_text(program)
        finished = python(f"{number}.py")
        assert (finished.returncode, finished.stderr) == (0, ""), program
        if output is not None:
            assert finished.stdout == output, program
