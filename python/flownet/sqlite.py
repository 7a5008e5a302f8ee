"""Records into a table of SQLite, once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from .context import TaskContext
from .row_sink import BATCHES, Prepared, RowSink, quoted

_WAIT_SECONDS = 30
"""How long a commit waits for others that write to the database: the sink's other subtasks, for one."""

_LARGEST = 2**63


class SqliteSink(RowSink):
    """Writes records into a table of a SQLite database. Pass an instance to `Stream.sink_to`.

    With checkpoints the rows of each are committed in one transaction, when the checkpoint counts, and once: the names
    of what was committed are in a table beside it, ``flownet_batches``, which grows by a row for each subtask and
    checkpoint. Until then the rows are part of the checkpoint. Without checkpoints all rows are committed at the end of
    the input. All workers must see the file, so they run on one machine.

    Parameters
    ----------
    path
        The database; made if need be.
    table
        The table; made if there is none, with columns without types.
    columns
        Its columns. Records are mappings with these keys, or sequences of as many values, each an int of 64 bits,
        float, str, bytes, bool, None, or a scalar of numpy that is one of these.
    key
        Columns that a row is replaced by: of several with the same the last one stays. None: rows are added.

    Raises
    ------
    ConfigError
        A name is empty or not a text, a column is there twice, or a key is no column.

    Examples
    --------
    >>> import flownet as fn, os, sqlite3, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "words.db")
    >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).count()
    >>> sink = counts.sink_to(fn.SqliteSink(path, "words", columns=["word", "number"], key=["word"]))
    >>> result = env.execute()
    >>> sqlite3.connect(path).execute("select word, number from words order by word").fetchall()
    [('be', 1), ('to', 2)]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        *,
        columns: Sequence[str],
        key: Sequence[str] | None = None,
    ) -> None:
        super().__init__(table, columns, key)
        self._path = os.path.abspath(os.fspath(path))
        self.target = f"table {table!r} of {os.path.realpath(self._path)}"

    def open(self, ctx: TaskContext) -> None:
        """Make the tables."""
        self._rows = []
        with _Database(self._path) as database:
            columns = ", ".join(map(quoted, self._columns))
            unique = f", primary key ({', '.join(map(quoted, self._key))})" if self._key else ""
            database.execute("begin immediate")
            database.execute(f"create table if not exists {quoted(self._table)} ({columns}{unique})")
            database.execute(f"create table if not exists {BATCHES} (name text primary key) without rowid")
            # What does not fit the table that is there is told before the first record.
            database.execute(f"explain {self._insertion(quoted(self._table), '?')}", (None,) * len(self._columns))

    def commit(self, prepared: Prepared) -> None:
        """Write rows, unless those of that name are there."""
        name, rows = prepared
        with _Database(self._path) as database:
            database.execute("begin immediate")
            if database.execute(f"insert or ignore into {BATCHES} values (?)", (name,)).rowcount:
                database.executemany(self._insertion(quoted(self._table), "?"), rows)

    def _refusal(self, value: Any) -> str | None:
        if isinstance(value, _KINDS) and not (isinstance(value, int) and not -_LARGEST <= value < _LARGEST):
            return None
        return f"SQLite has no value for {type(value).__name__} {value!r:.60}"


_KINDS = (int, float, str, bytes, type(None))


class _Database:
    """A connection for one transaction: committed where the block ends well, rolled back and closed in any case."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)

    def __enter__(self) -> sqlite3.Connection:
        return self._database

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if self._database.in_transaction:
                self._database.execute("commit" if error is None else "rollback")
        finally:
            self._database.close()
