"""Records into a table of SQLite, once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from typing import Any

from ..api.context import TaskContext
from .row_sink import BATCHES, Prepared, Row, RowSink, quoted

_WAIT_SECONDS = 30
"""How long a commit waits for others that write to the database: the sink's other subtasks, for one."""

_LARGEST = 2**63


class SqliteSink(RowSink):
    """Writes records into a table of a SQLite database. Pass an instance to `Stream.sink_to`.

    With checkpoints the rows of each are committed in one transaction, when the checkpoint counts, and once: the names
    of what was committed are in a table beside it, ``flownet_batches``, which grows by a row for each subtask and
    checkpoint. Until then the rows are part of the checkpoint. Without checkpoints all rows are committed at the end of
    the input. All workers must see the file, so they run on one machine.

    If the table has constraints or triggers of its own, the rows of a checkpoint are inserted and rolled back before
    the checkpoint counts: rows that the table refuses fail the job then. A row that conflicts with one that another
    subtask has not committed yet is found at the commit alone.

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
            database.execute("begin immediate")
            database.execute(f"create table if not exists {self._definition()}")
            database.execute(f"create table if not exists {BATCHES} (name text primary key) without rowid")
            # What does not fit the table that is there is told before the first record.
            database.execute(f"explain {self._insertion(quoted(self._table), '?')}", (None,) * len(self._columns))

    def prepare_commit(self) -> Prepared | None:
        """Hand the rows to the checkpoint, if the table takes them."""
        prepared = super().prepare_commit()
        if prepared is not None:
            self._try(prepared[1])
        return prepared

    def _try(self, rows: list[Row]) -> None:
        """Insert rows and roll that back, if the table may refuse them."""
        statement, refused = self._insertion(quoted(self._table), "?"), None
        with _Database(self._path) as database:
            if not self._may_refuse(database):
                return
            database.execute("begin immediate")
            for row in rows:
                try:
                    database.execute(statement, row)
                except sqlite3.Error as error:
                    refused = f"table {self._table!r} refuses row {row!r:.200}: {error}", error
                    break
            database.execute("rollback")
        if refused is not None:
            raise ValueError(refused[0]) from refused[1]

    def _may_refuse(self, database: sqlite3.Connection) -> bool:
        """Tell whether the table is another one than the sink makes, or has an index or a trigger."""
        found = database.execute(
            "select type, sql from sqlite_master where tbl_name = ? collate nocase and sql is not null", (self._table,)
        )
        return [tuple(each) for each in found] != [("table", f"CREATE TABLE {self._definition()}")]

    def _definition(self) -> str:
        """Write the table that the sink makes."""
        columns = ", ".join(map(quoted, self._columns))
        unique = f", primary key ({', '.join(map(quoted, self._key))})" if self._key else ""
        return f"{quoted(self._table)} ({columns}{unique})"

    def commit(self, prepared: Prepared) -> None:
        """Write rows, unless those of that name are there."""
        name, rows = prepared
        with _Database(self._path) as database:
            database.execute("begin immediate")
            if database.execute(f"insert or ignore into {BATCHES} values (?)", (name,)).rowcount:
                database.executemany(self._insertion(quoted(self._table), "?"), rows)

    def _refusal(self, value: Any) -> str | None:
        if isinstance(value, str) and not _is_encodable(value):
            return f"SQLite has no value for a text with half of a surrogate pair, {value!r:.60}"
        if isinstance(value, _KINDS) and not (isinstance(value, int) and not -_LARGEST <= value < _LARGEST):
            return None
        return f"SQLite has no value for {type(value).__name__} {value!r:.60}"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
