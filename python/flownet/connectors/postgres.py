"""Records into a table of PostgreSQL, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..api.context import TaskContext
from ..errors import ConfigError
from ..internal.extras import need
from .row_sink import BATCHES, Prepared, RowSink, quoted

if TYPE_CHECKING:
    import psycopg


class PostgresSink(RowSink):
    """Writes records into a table of PostgreSQL. Pass an instance to `Stream.sink_to`.

    With checkpoints the rows of each are committed in one transaction, when the checkpoint counts, and once: the names
    of what was committed are in a table beside it, ``flownet_batches``, which grows by a row for each subtask and
    checkpoint. Until then the rows are part of the checkpoint. Without checkpoints all rows are committed at the end of
    the input.

    Needs the client of ``pip install 'flownet-streams[postgres]'``.

    Parameters
    ----------
    conninfo
        Where the database is, as libpq has it: ``"postgresql://user@host/database"`` or ``"host=... dbname=..."``. What
        it does not say comes from the environment of the workers, ``PGPASSWORD`` for one.
    table
        The table, which has to be there; with its schema, ``"sales.totals"``, or on the search path.
    columns
        Its columns. Records are mappings with these keys, or sequences of as many values, of any type that psycopg
        writes.
    key
        Columns that a row is replaced by, for which the table has a unique index: of several with the same the last one
        stays. They belong to one subtask each, as behind `Stream.key_by`. None: rows are added.

    Raises
    ------
    ConfigError
        A name is empty or not a text, a column is there twice, a key is no column, or ``conninfo`` is none.
    FlownetError
        The client is not installed.

    Notes
    -----
    Each subtask has one connection. Before rows become part of a checkpoint they are written into a temporary table
    like the real one, with its types and checks, so that a value that does not fit fails the job before it is kept.
    What goes by other rows, foreign keys, unique indexes and triggers, is told when it is committed.

    Examples
    --------
    >>> sink = fn.PostgresSink(  # doctest: +SKIP
    ...     "postgresql://localhost/shop", "totals", columns=["word", "number"], key=["word"]
    ... )
    >>> counts.sink_to(sink)  # doctest: +SKIP
    """

    def __init__(self, conninfo: str, table: str, *, columns: Sequence[str], key: Sequence[str] | None = None) -> None:
        library = need("psycopg", "PostgreSQL", "postgres")
        super().__init__(table, columns, key)
        try:
            database = library.conninfo.conninfo_to_dict(conninfo).get("dbname")
        except (library.ProgrammingError, TypeError) as error:
            raise ConfigError(f"PostgresSink(conninfo=...): {error}", setting="conninfo", value=None) from error
        self._conninfo = conninfo
        # Without the host: the same database may move to another.
        self.target = f"table {table!r} of database {database!r}"
        self._name = ".".join(map(quoted, self._table.split(".")))
        self._database: psycopg.Connection[Any] | None = None

    def open(self, ctx: TaskContext) -> None:
        """Connect, and make the table of batches."""
        library = need("psycopg", "PostgreSQL", "postgres")
        self._rows = []
        self._dumpers = library.adapt.Transformer()
        self._format = library.adapt.PyFormat.AUTO
        self._refused = library.Error
        # What is said of them in conninfo wins.
        limits = {"connect_timeout": 10, "tcp_user_timeout": 30_000}
        given = library.conninfo.conninfo_to_dict(self._conninfo)
        self._database = database = library.connect(self._conninfo, autocommit=True, **{**limits, **given})
        with database.transaction():
            # One subtask makes it, and the others wait.
            database.execute("select pg_advisory_xact_lock(hashtext(%s))", (BATCHES,))
            if database.execute("select 1 where to_regclass(%s) is null", (BATCHES,)).fetchone():
                database.execute(f"create table {BATCHES} (name text primary key)")
        # What does not fit the table that is there is told before the first record.
        empty = (None,) * len(self._columns)
        database.execute(f"explain {self._insertion(self._name, '%s')}", empty)
        database.execute(
            f"create temporary table {_CHECKED} (like {self._name} including defaults including constraints)"
        )

    def prepare_commit(self) -> Prepared | None:
        """Hand the rows to the checkpoint, if the database takes them."""
        prepared = super().prepare_commit()
        if prepared is not None:
            with self._connection().transaction(force_rollback=True):
                self._insert(_CHECKED, prepared[1], by_key=False)
        return prepared

    def commit(self, prepared: Prepared) -> None:
        """Write rows, unless those of that name are there."""
        name, rows = prepared
        with self._connection().transaction() as transaction:
            # Who comes second with a name waits for the first one's end.
            once = f"insert into {BATCHES} values (%s) on conflict do nothing"
            if transaction.connection.execute(once, (name,)).rowcount:
                self._insert(self._name, rows)

    def close(self) -> None:
        """Let go of the connection."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _insert(self, table: str, rows: list[Any], by_key: bool = True) -> None:
        with self._connection().cursor() as cursor:
            cursor.executemany(self._insertion(table, "%s", by_key), rows)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._database is None:
            raise RuntimeError("the sink is not open")
        return self._database

    def _refusal(self, value: Any) -> str | None:
        if value is None:
            return None
        try:
            self._dumpers.get_dumper(value, self._format)
        except self._refused as error:
            return str(error)
        return None


_CHECKED = "pg_temp.flownet_checked"
