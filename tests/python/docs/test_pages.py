"""The programs of a page, run one after the other, print the output that the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [
    *sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("how-to/rows-*.md")),
    *sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("coming-from/*.md")),
    "concepts/rows.md",
    "reference/aggregates.md",
    "reference/column-types.md",
    "reference/expressions.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_print_its_output(
    page: str, python: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    text = (DOCS / page).read_text()
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    outputs = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert programs
    assert outputs
    (tmp_path / "script.py").write_text("\n".join(programs))
    finished = python("script.py")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == "".join(outputs)
