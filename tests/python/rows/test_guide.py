"""The programs of the pages about rows print the output that the pages show, and the reference is complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import get_args

import pytest

import flownet as fn
from flownet.rows.aggregates import FunctionName
from flownet.rows.expressions import TextExpr, TimeExpr

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [
    "concepts/rows.md",
    *(f"how-to/{page.name}" for page in sorted((DOCS / "how-to").glob("rows-*.md"))),
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
    (tmp_path / "script.py").write_text("\n".join(programs))
    finished = python("script.py")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout == "".join(outputs)


def functions_in_tables(page: str) -> set[str]:
    """Return the names of the functions in first columns of tables."""
    cells = re.findall(r"^\| (.+?) \|", (DOCS / page).read_text(), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(?:fn\.)?(\w+)\(", cell)}


def test_the_reference_lists_every_expression_function() -> None:
    methods = {name for owner in (fn.Expr, TextExpr, TimeExpr) for name in vars(owner) if not name.startswith("_")}
    assert functions_in_tables("reference/expressions.md") == (methods - {"str", "dt"}) | {
        "col",
        "lit",
        "when",
        "coalesce",
    }


def test_the_reference_lists_every_aggregate() -> None:
    assert functions_in_tables("reference/aggregates.md") == set(get_args(FunctionName))
