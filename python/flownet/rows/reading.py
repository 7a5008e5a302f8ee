"""Sources of rows: the methods of an environment that create `Rows`.

The first call imports the rest of this package, so jobs without rows start faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from .. import rows
from ..errors import PlanError
from ..planning.dataflow import Dataflow, DataflowOwner, Node, Origin

if TYPE_CHECKING:
    from .. import _flownet
    from .expressions import Expr
    from .files import Paths
    from .schemas import SchemaLike
    from .splits import ReadOrder


class RowSources:
    """The methods of an environment that read rows."""

    _dataflow: Dataflow

    def from_arrow(
        self,
        source: Any,
        *,
        schema: SchemaLike | None = None,
        event_time: str | None = None,
        delay: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
    ) -> rows.Rows:
        """Read rows from an Arrow table, data frame or reader.

        Any library with the Arrow PyCapsule interface works.

        Parameters
        ----------
        source
            A table, data frame or reader of pyarrow, polars, pandas, DuckDB or others. One subtask of this process
            reads it, without a copy. Only one run can read a reader, and that run cannot resume after a failure.

            Or a function, which runs in the workers. Each subtask of the source calls it with its index and the number
            of subtasks, and reads the table or reader that it returns. The function must split the work by these two
            numbers. It must return the same rows when it is called again.
        schema
            The columns that the function returns: ``{"user": "utf8", "spent": "float64"}``, or a schema of pyarrow or
            another library. Default: None, for sources that are no function.
        event_time, delay, max_ahead
            As ``column``, ``delay`` and ``max_ahead`` of `Rows.assign_timestamps`. Default: None, rows have no event
            time, no bound on their disorder, and no limit by which they are ahead.

        Raises
        ------
        PlanError
            ``source`` is neither of these, or a column has a type that rows cannot have.

        Examples
        --------
        >>> import pyarrow as pa
        >>> clicks = pa.table({"user": ["ann", "bob", "ann"], "ms": [1_000, 2_000, 61_000]})
        >>> minutes = (
        ...     env.from_arrow(clicks, event_time="ms")
        ...     .key_by("user")
        ...     .window(fn.Tumbling("60s"))
        ...     .agg(clicks=fn.count())
        ...     .collect()
        ... )
        >>> result = env.execute()
        >>> sorted(zip(minutes.to_arrow()["user"].to_pylist(), minutes.to_arrow()["clicks"].to_pylist()))
        [('ann', 1), ('ann', 1), ('bob', 1)]
        """
        from . import sources

        return self._rows(
            sources.from_arrow(self._dataflow, source, schema), _EventTimeOptions(event_time, delay, max_ahead)
        )

    def from_numpy(
        self,
        array: Any,
        *,
        event_time: str | None = None,
        delay: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
    ) -> rows.Rows:
        """Read rows from structured numpy arrays. Fields become columns.

        It needs pyarrow.

        Parameters
        ----------
        array
            A structured array of shape ``(n,)``, or a list or an iterator of such arrays with equal fields. The source
            takes the next array of an iterator when it needs one. Only one run can read an iterator.
        event_time, delay, max_ahead
            As for `from_arrow`.

        Examples
        --------
        >>> import numpy as np
        >>> array = np.array([(1, 2.5)], dtype=[("user", "i8"), ("spent", "f8")])
        >>> rows = env.from_numpy(array)
        >>> endless = env.from_numpy(array for _ in iter(int, 1))
        """
        from . import sources

        return self._rows(sources.from_numpy(self._dataflow, array), _EventTimeOptions(event_time, delay, max_ahead))

    def read_parquet(
        self,
        paths: Paths,
        *,
        columns: Iterable[str] | None = None,
        filter: Expr | None = None,
        partitions: SchemaLike | None = None,
        event_time: str | None = None,
        delay: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
        order: ReadOrder = "event_time",
    ) -> rows.Rows:
        """Read rows from Parquet files.

        Subtasks share the work by row group, or by file if there are 64 files or more. It needs pyarrow, also on the
        workers.

        Parameters
        ----------
        paths
            Files, folders and patterns such as ``"data/2026-*/*.parquet"``. They are listed once, when you call this.
            From folders, all ``*.parquet`` are read. Hidden files and folders are skipped: names that begin with ``.``
            or ``_``, except partitions such as ``_day=1``. Rows have the columns of all files, matched by name, and
            those of subfolders such as ``country=de/day=2026-11-23/``. A column that a file lacks is null there.
        columns
            The columns to read. Default: None, all.
        filter
            As for `Rows.filter`. Row groups are skipped if their statistics or folders show that no row matches. This
            works for comparisons of a column with a constant number, string or date, joined by ``&`` and ``|``.
            Default: None, all rows.
        partitions
            Types of the columns of folders, by name. Default: None, ``int64`` if all values are whole numbers, ``date``
            if all are dates, otherwise ``utf8``.
        event_time, delay, max_ahead
            As for `from_arrow`. Statistics of row groups limit event time, so you need no delay.
        order
            The order in which a subtask reads its row groups. ``"event_time"`` sorts them by the minimum times in their
            statistics. ``"as listed"`` does not use statistics. Results are the same, but windows may stay in state
            longer. Default: ``"event_time"``.

        Raises
        ------
        InputError
            There is no such file or folder, a folder has no such file, or a file is not a Parquet file. Or the types of
            a column in two files have no common type. Or folders have different columns, or a value that does not fit
            its type.
        PlanError
            There is no such column, or it has a type that rows cannot have.
        OperatorError
            When the job runs: a page has a wrong checksum, or a file is damaged. The error names the file.

        Notes
        -----
        If a column has different types in several files, rows get a type that holds all of their values. This is the
        wider of two ints or floats, float64 for ints and floats, and the finer unit of times. A value that this type
        cannot hold exactly fails the job, such as an int above 2^53 beside floats. Timestamps of 96 bits, which older
        writers create, are read in microseconds.

        Examples
        --------
        >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> pq.write_table(pa.table({"user": ["ann", "bob"], "spent": [3, 5]}), f"{folder}/a.parquet")
        >>> rows = env.read_parquet(folder, columns=["spent"], filter=fn.col("spent") > 3).collect()
        >>> result = env.execute()
        >>> rows.to_arrow().to_pylist()
        [{'spent': 5}]
        """
        from . import sources

        source = sources.read_parquet(self._dataflow, paths, columns, filter, partitions, order)
        return self._wanted(source, filter, _EventTimeOptions(event_time, delay, max_ahead))

    def read_csv(
        self,
        paths: Paths,
        *,
        schema: SchemaLike | None = None,
        columns: Iterable[str] | None = None,
        filter: Expr | None = None,
        partitions: SchemaLike | None = None,
        delimiter: str = ",",
        header: bool = True,
        event_time: str | None = None,
        delay: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
        order: ReadOrder = "event_time",
    ) -> rows.Rows:
        r"""Read rows from CSV files.

        Subtasks share the files. One subtask reads a whole file.

        Parameters
        ----------
        paths
            Files, folders and patterns, as for `read_parquet`. From folders, all ``*.csv`` are read, and compressed
            files such as ``*.csv.gz``. Rows have the columns of all files, matched by name, and those of folders.
        schema
            Names and types of the columns of files. Default: None, types are inferred from the first 64 MiB of all
            files together, and at least 64 KiB of each.
        columns
            The columns to read. Default: None, all.
        filter
            As for `Rows.filter`. Files are skipped if their folders show that no row matches. Default: None, all rows.
        partitions
            Types of the columns of folders, as for `read_parquet`. Default: None.
        delimiter
            The separator of values, one ASCII character. Default: a comma.
        header
            Whether files begin with the names of the columns. If not, ``schema`` must give the names. Default: True.
        event_time, delay, max_ahead
            As for `from_arrow`. CSV has no statistics, so without a delay event time waits for the end of the input.
        order
            The order in which a subtask reads its files. ``"event_time"`` with a delay reads several files at once, and
            always continues with the one whose event time is lowest. ``"as listed"`` reads one file after the other.
            Results are the same, but windows may stay in state longer. Default: ``"event_time"``.

        Raises
        ------
        InputError
            There is no such file or folder, a folder has no such file, or a file cannot be read. Or two columns of a
            file have the same name, or no file has a column of ``schema``. Or the types of a column in two files have
            no common type. Or folders have different columns, or a value that does not fit its type.
        PlanError
            There is no such column, or it has a type that rows cannot have.
        OperatorError
            When the job runs: a value does not fit its column, a line has too many or too few values, or a quote is
            never closed. The error names file, line and column.

        Notes
        -----
        Without ``schema``, integers in a column of floats are never rounded. An integer beyond 64 bits, or above 2^53
        beside fractions, is an error. Set a type then, such as ``"decimal128(38, 0)"``.

        Without ``schema``, a column with numbers and strings in the same file is a column of strings. If one file has
        numbers and another one strings, set the type. Types of several files are widened as for `read_parquet`. Times
        with a zone, such as ``2026-11-26T10:00:00Z``, are times in UTC. A type without a zone does not accept them.

        An empty value is null. ``""`` is an empty string, but null in a column of numbers or times. In a file of one
        column, an empty line is null. Quoted values may have several lines. If the schema has such types, dates and
        times are read in ISO 8601, durations as ``PT1.5S``, and bytes as two hexadecimal digits each. `Rows.write_csv`
        writes these forms.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "spent.csv")
        >>> _ = path.write_text("user,spent\nann,3\nbob,5\n")
        >>> rows = env.read_csv(path).filter(fn.col("spent") > 3).collect()
        >>> result = env.execute()
        >>> rows.to_arrow().to_pylist()
        [{'user': 'bob', 'spent': 5}]
        """
        from . import sources
        from .csv_files import csv_format

        format = csv_format(delimiter, header)
        given = (schema, columns, partitions)
        source = sources.read_lines(self._dataflow, "read_csv", format, paths, given, filter, order)
        return self._wanted(source, filter, _EventTimeOptions(event_time, delay, max_ahead))

    def read_json(
        self,
        paths: Paths,
        *,
        schema: SchemaLike | None = None,
        columns: Iterable[str] | None = None,
        filter: Expr | None = None,
        partitions: SchemaLike | None = None,
        event_time: str | None = None,
        delay: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
        order: ReadOrder = "event_time",
    ) -> rows.Rows:
        r"""Read rows from files of JSON lines.

        Subtasks share the files. One subtask reads a whole file.

        Parameters
        ----------
        paths
            Files, folders and patterns, as for `read_parquet`. From folders, all ``*.jsonl``, ``*.ndjson`` and
            ``*.json`` are read.
        schema
            Names and types of the columns. Fields that are not in the schema are ignored. Dates, times, durations and
            bytes are strings, as for `read_csv`. Default: None, the schema is inferred, as for `read_csv`. A field that
            no inferred line has then fails the job.
        columns, filter, partitions, event_time, delay, max_ahead, order
            As for `read_csv`.

        Raises
        ------
        InputError, PlanError, OperatorError
            As for `read_csv`.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "spent.jsonl")
        >>> _ = path.write_text('{"user": "ann", "spent": 3}\n{"user": "bob"}\n')
        >>> rows = env.read_json(path).collect()
        >>> result = env.execute()
        >>> rows.to_arrow().to_pylist()
        [{'user': 'ann', 'spent': 3}, {'user': 'bob', 'spent': None}]
        """
        from . import sources
        from .json_files import JsonFormat

        given = (schema, columns, partitions)
        source = sources.read_lines(self._dataflow, "read_json", JsonFormat(), paths, given, filter, order)
        return self._wanted(source, filter, _EventTimeOptions(event_time, delay, max_ahead))

    def _rows(self, source: tuple[Node, _flownet.RowSchema], timing: _EventTimeOptions | None = None) -> rows.Rows:
        node, schema = source
        read = rows.Rows(cast("DataflowOwner", self), (Origin(node),), schema)
        return read if timing is None else timing.assign(read)

    def _wanted(
        self, source: tuple[Node, _flownet.RowSchema], filter: Expr | None, timing: _EventTimeOptions
    ) -> rows.Rows:
        read = self._rows(source)
        return timing.assign(read if filter is None else read.filter(filter))


class _EventTimeOptions(NamedTuple):
    """Event time of the rows of a source."""

    column: str | None
    delay: str | timedelta | None
    max_ahead: str | timedelta | None

    def assign(self, read: rows.Rows) -> rows.Rows:
        if self.column is not None:
            return read.assign_timestamps(self.column, delay=self.delay, max_ahead=self.max_ahead)
        if self.max_ahead is not None:
            raise PlanError(
                f"max_ahead={self.max_ahead!r} bounds event time, and rows have none: give event_time= and delay=, too"
            )
        return read
