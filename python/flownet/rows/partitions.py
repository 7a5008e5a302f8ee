"""Columns whose values name the folders that rows are written into."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import PlanError

if TYPE_CHECKING:
    from .. import _flownet

PartitionBy = str | Iterable[str] | None

_KINDS = ("int", "uint", "bool", "utf8", "date")
"""What names of their types begin with. Floats and times are left out: few of their values are equal, and readers do
not agree how they are written."""


def partition_columns(method: str, partition_by: PartitionBy, schema: _flownet.RowSchema) -> list[str]:
    """Check by which columns a sink is to write, and return their names, outermost folder first.

    Parameters
    ----------
    method
        What users call the sink.
    partition_by
        What they gave it.
    schema
        Of the rows.

    Raises
    ------
    PlanError
        There is no such column, one is named twice or of a type that names no folders, or no other one is left.
    """
    if partition_by is None:
        return []
    called = f"{method}(partition_by={partition_by!r:.60})"
    columns: list[Any] = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    kinds = {name: kind for name, kind, _ in schema.fields()}
    if not columns:
        raise PlanError(f"{called}: name one column at least, or leave it out")
    for column in columns:
        if not isinstance(column, str) or column not in kinds:
            shown = ", ".join(map(repr, kinds))
            raise PlanError(f"{called}: there is no column {column!r}; there are {shown}")
        if columns.count(column) > 1:
            raise PlanError(f"{called}: names column {column!r} twice")
        if not kinds[column].startswith(_KINDS):
            raise PlanError(
                f"{called}: column {column!r} is {kinds[column]}, and folders are named by ints, bool, utf8 and dates: "
                f'make one of it before, such as fn.col("{column}").cast("{_instead(kinds[column])}")'
            )
    if len(columns) == len(kinds):
        raise PlanError(f"{called}: names all columns, and files need one that is left")
    return columns


def _instead(kind: str) -> str:
    if kind.startswith("timestamp"):
        return "date"
    return "int64" if kind.startswith(("float", "decimal")) else "utf8"
