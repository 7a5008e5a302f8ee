"""Filters of files as pyarrow has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


def pushed_down(tree: Any, schema: pyarrow.Schema) -> Any:
    """Translate an expression into a filter of pyarrow, so that fewer rows are read; None if there is none.

    The expression itself filters the rows again: of an ``and`` one side is enough here.

    Parameters
    ----------
    tree
        The expression.
    schema
        The columns that there are statistics of; nothing is known of others.
    """
    match tree:
        case {"binary": {"op": "and", "left": left, "right": right}}:
            one, other = pushed_down(left, schema), pushed_down(right, schema)
            return one if other is None else other if one is None else one & other
        case {"binary": {"op": "or", "left": left, "right": right}}:
            one, other = pushed_down(left, schema), pushed_down(right, schema)
            return None if one is None or other is None else one | other
        case {"binary": {"op": op, "left": {"column": name}, "right": {"literal": value}}} if op in _COMPARED:
            return _comparison(name, op, value, schema) if name in schema.names else None
    return None


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda one, other: one == other,
    "lt": lambda one, other: one < other,
    "le": lambda one, other: one <= other,
    "gt": lambda one, other: one > other,
    "ge": lambda one, other: one >= other,
}
"""What files have statistics for."""


def _comparison(name: str, op: str, literal: Any, schema: pyarrow.Schema) -> Any:
    import pyarrow
    import pyarrow.compute as pc

    kind = schema.field(name).type
    if pyarrow.types.is_floating(kind) and op in ("gt", "ge"):
        # NaN is above every number here, and pyarrow and the statistics of files leave it out.
        return None
    written = _written(literal, kind)
    return None if written is None else _COMPARED[op](pc.field(name), pc.scalar(written))


def _written(literal: Any, kind: pyarrow.DataType) -> Any:
    """Make a value of the column's type, of which pyarrow can tell which is greater; None where there is none."""
    import pyarrow
    from pyarrow import types

    match literal:
        case {"int": value} if types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
            given = value
        case {"int": value} if types.is_decimal(kind):
            given = Decimal(value)
        case {"text": value} if _is_text(kind):
            kind = pyarrow.string()
            given = value
        case {"date": days} if types.is_date32(kind) or (types.is_timestamp(kind) and kind.tz is None):
            given = date(1970, 1, 1) + timedelta(days=days)
        case _:
            return None
    try:
        return pyarrow.scalar(given, kind)
    except (pyarrow.ArrowException, OverflowError, ValueError):
        # The column cannot have it, or not exactly.
        return None


def _is_text(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or (types.is_dictionary(kind) and types.is_string(kind.value_type))
    )
