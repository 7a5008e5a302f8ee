"""Filters of files as pyarrow has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


def pushed_down(tree: Any, schema: pyarrow.Schema) -> Any:
    """Translate an expression over these columns into a filter of pyarrow, so that fewer rows are read.

    The expression itself filters the rows again: of an ``and`` one side is enough here. Returns None if there is no
    such filter.
    """
    match tree:
        case {"binary": {"op": "and", "left": left, "right": right}}:
            one, other = pushed_down(left, schema), pushed_down(right, schema)
            return one if other is None else other if one is None else one & other
        case {"binary": {"op": "or", "left": left, "right": right}}:
            one, other = pushed_down(left, schema), pushed_down(right, schema)
            return None if one is None or other is None else one | other
        case {"binary": {"op": op, "left": {"column": name}, "right": {"literal": value}}} if op in _COMPARED:
            return _compared(op, name, value, schema)
    return None


def _compared(op: str, name: str, literal: Any, schema: pyarrow.Schema) -> Any:
    import pyarrow
    import pyarrow.compute as pc

    written = _written(literal)
    if written is None:
        return None
    if op in ("gt", "ge") and name in schema.names and pyarrow.types.is_floating(schema.field(name).type):
        # NaN is above every number here, and pyarrow and the statistics of files leave it out.
        return None
    return _COMPARED[op](pc.field(name), pc.scalar(written))


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
