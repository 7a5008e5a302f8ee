"""The reference pages of rows list all functions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import flownet as fn
from flownet.rows.aggregates import FunctionName
from flownet.rows.expressions import TextExpr, TimeExpr

DOCS = Path(__file__).parents[3] / "docs"


def functions_in_tables(page: str) -> set[str]:
    """Return the names of the functions in first columns of tables."""
    cells = re.findall(r"^\| (.+?) \|", (DOCS / page).read_text(), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(?:fn\.)?(\w+)\(", cell)}


def test_the_reference_lists_every_expression_function() -> None:
    methods = {name for owner in (fn.Expr, TextExpr, TimeExpr) for name in vars(owner) if not name.startswith("_")}
    listed = functions_in_tables("reference/expressions.md") | functions_in_tables("reference/functions.md")
    assert listed >= (methods - {"str", "dt"}) | {"col", "lit", "when", "coalesce"}


def test_the_reference_lists_every_aggregate() -> None:
    assert functions_in_tables("reference/aggregates.md") == set(get_args(FunctionName))
