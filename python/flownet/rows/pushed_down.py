"""Filters of files as pyarrow has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any


def pushed_down(tree: Any) -> Any:
    """Say an expression in pyarrow's terms, so that what cannot be wanted is not read; None where it has none for it.

    Rows are asked again by the expression itself: of an ``and`` one side is enough here.
    """
    import pyarrow.compute as pc

    match tree:
        case {"binary": {"op": "and", "left": left, "right": right}}:
            one, other = pushed_down(left), pushed_down(right)
            return one if other is None else other if one is None else one & other
        case {"binary": {"op": "or", "left": left, "right": right}}:
            one, other = pushed_down(left), pushed_down(right)
            return None if one is None or other is None else one | other
        case {"binary": {"op": op, "left": {"column": name}, "right": {"literal": value}}} if op in _COMPARED:
            written = _written(value)
            return None if written is None else _COMPARED[op](pc.field(name), pc.scalar(written))
    return None


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda one, other: one == other,
    "lt": lambda one, other: one < other,
    "le": lambda one, other: one <= other,
    "gt": lambda one, other: one > other,
    "ge": lambda one, other: one >= other,
}
"""What files have statistics for."""


def _written(literal: Any) -> Any:
    match literal:
        case {"int": value} | {"text": value}:
            return value
        case {"date": days}:
            return date(1970, 1, 1) + timedelta(days=days)
    return None
