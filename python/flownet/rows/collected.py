"""`CollectedRows`, the rows that a job brought to this process."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from .. import _flownet

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


_SHOWN_ROWS = 10
"""Rows that a notebook shows."""

_SHOWN_CHARACTERS = 100
"""Characters of a value that a notebook shows."""


class CollectedRows:
    """Result of `Rows.collect`: all rows, in batches, after ``execute()`` has returned.

    It is empty before that. Rows of one subtask are in order. Across subtasks there is no order. Another ``execute()``
    replaces the rows. The object has the Arrow PyCapsule interface, so ``pyarrow.table(rows)``,
    ``polars.DataFrame(rows)`` and DuckDB read it without a copy.
    """

    def __init__(self, schema: _flownet.RowSchema) -> None:
        self._schema = schema
        self._batches: list[_flownet.RowBatch] = []

    def __len__(self) -> int:
        """Count the rows."""
        return sum(len(batch) for batch in self._batches)

    def batches(self) -> Iterator[_flownet.RowBatch]:
        """Iterate over the batches. Each has the Arrow PyCapsule interface."""
        return iter(self._batches)

    def to_arrow(self) -> pyarrow.Table:
        """Return all rows as a pyarrow table, without a copy. Needs pyarrow."""
        import pyarrow

        return pyarrow.table(self)

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a polars data frame. Needs polars."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas data frame. Needs pandas and pyarrow."""
        return self.to_arrow().to_pandas()

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        return _flownet.rows_of(self._schema, self._batches)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {kind}" for name, kind, _ in self._schema.fields())
        return f"CollectedRows({len(self):,} rows of {columns})"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook, if pyarrow is installed."""
        shown = f"<p>{escape(repr(self))}</p>"
        try:
            first = self.to_arrow().slice(0, _SHOWN_ROWS).to_pylist()
        except ModuleNotFoundError:
            return shown
        names = [name for name, _, _ in self._schema.fields()]
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        rows = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in first)
        return f"{shown}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def _restart(self) -> list[_flownet.RowBatch]:
        """Start with an empty list, which the runtime fills in the next run."""
        self._batches = []
        return self._batches


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return f"<td>{escape(shown)}</td>"
