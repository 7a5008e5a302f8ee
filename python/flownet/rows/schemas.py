"""Checks of schemas and columns that users name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .. import _flownet
from ..errors import PlanError

T = TypeVar("T")

SchemaLike = Any
"""A dict of column names and types, ``{"user": "utf8", "spent": "float64"}``, or a schema of pyarrow or the like."""


def checked(call: Callable[..., T], *arguments: object) -> T:
    """Call the planner and convert its errors to `PlanError`."""
    try:
        return call(*arguments)
    except (ValueError, TypeError) as error:
        raise PlanError(str(error)) from None


def schema_of(method: str, given: SchemaLike) -> _flownet.RowSchema:
    """Convert a schema that a method got or found.

    Raises
    ------
    PlanError
        It is not a schema, or a column has a type that rows cannot have.
    """
    try:
        return _flownet.rows_schema(given)
    except (ValueError, TypeError) as error:
        raise PlanError(f"{method}: {error}") from error


def wanted_columns(method: str, columns: Iterable[str] | None, there: list[str], path: str) -> list[str]:
    """Say which of the columns of a file are wanted: these, or all.

    Raises
    ------
    PlanError
        There is none of this name.
    """
    wanted = there if columns is None else list(columns)
    for name in wanted:
        if name not in there:
            shown = ", ".join(map(repr, there))
            raise PlanError(f"{method}: there is no column {name!r} in {path}; there are {shown}")
    return wanted
