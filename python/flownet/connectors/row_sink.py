"""What sinks that write rows into a table of a database have in common."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..api.functions import TransactionalSink
from ..errors import ConfigError
from ..internal.numpy_scalars import plain

Row = tuple[Any, ...]

Prepared = tuple[str, list[Row]]
"""The name of a batch, and its rows."""

BATCHES = "flownet_batches"
"""The table of what was committed: a name for each subtask and checkpoint in which something was written."""


class RowSink(TransactionalSink[Any]):
    """Keeps the rows of a checkpoint, and commits them under a name that is there once.

    Parameters
    ----------
    table
        The table.
    columns
        Its columns. Records are mappings with these keys, or sequences of as many values.
    key
        Columns that a row is replaced by. None: rows are added.

    Raises
    ------
    ConfigError
        A name is empty or not a text, a column is there twice, or a key is no column.
    """

    def __init__(self, table: str, columns: Sequence[str], key: Sequence[str] | None) -> None:
        self._table = self._names("table", [table])[0]
        self._columns = self._names("columns", columns)
        self._key = [] if key is None else self._names("key", key)
        if unknown := [name for name in self._key if name not in self._columns]:
            raise ConfigError(
                f"{type(self).__name__}(key={key!r}): {unknown[0]!r} is none of the columns", setting="key", value=key
            )
        self._rows: list[Row] = []

    def write(self, records: list[Any]) -> None:
        """Take rows."""
        self._rows.extend(map(self._row, records))

    def prepare_commit(self) -> Prepared | None:
        """Hand the rows to the checkpoint, under a name."""
        rows, self._rows = self._rows, []
        return (uuid.uuid4().hex, rows) if rows else None

    def abort(self) -> None:
        """Forget the rows."""
        self._rows = []

    def _refusal(self, value: Any) -> str | None:
        """Say why a value cannot be written; None if it can."""
        raise NotImplementedError

    def _row(self, record: Any) -> Row:
        columns = self._columns
        if isinstance(record, Mapping):
            if record.keys() - columns:
                raise ValueError(
                    f"{record!r:.200} has a column {min(record.keys() - columns)!r}, which the sink has not"
                )
            row = tuple(plain(record[name]) for name in columns)
        elif isinstance(record, Iterable) and not isinstance(record, str | bytes):
            row = tuple(map(plain, record))
        else:
            row = (plain(record),)
        if len(row) != len(columns):
            raise ValueError(f"{record!r:.200} has {len(row)} values for {len(columns)} columns")
        for name, value in zip(columns, row, strict=True):
            # What is refused when it is committed would be refused in every run that goes on from the checkpoint.
            if refusal := self._refusal(value):
                raise TypeError(f"column {name!r} of {record!r:.200}: {refusal}")
        return row

    def _insertion(self, table: str, mark: str, by_key: bool = True) -> str:
        """Write the statement that adds a row, or puts it in the place of the one with the same key."""
        columns = ", ".join(map(quoted, self._columns))
        values = ", ".join(mark for _ in self._columns)
        statement = f"insert into {table} ({columns}) values ({values})"
        if not (self._key and by_key):
            return statement
        others = [quoted(name) for name in self._columns if name not in self._key]
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        update = f"do update set {changes}" if changes else "do nothing"
        return f"{statement} on conflict ({', '.join(map(quoted, self._key))}) {update}"

    def _names(self, setting: str, given: Any) -> list[str]:
        names = [] if isinstance(given, str) else list(given)
        said = f"{type(self).__name__}({setting}={given!r:.100})"
        if not names or not all(isinstance(name, str) and name and "\0" not in name for name in names):
            raise ConfigError(f"{said}: needs names", setting=setting, value=given)
        if len({name.lower() for name in names}) < len(names):
            raise ConfigError(f"{said}: a name is there twice", setting=setting, value=given)
        return names


def quoted(name: str) -> str:
    """Write a name so that it is one, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
