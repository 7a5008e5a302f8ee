"""Where rows may come from: the methods of an environment that begin a stream of them.

All that rows are is imported by the first of them, so that a job of objects does not wait for it as it starts.
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
    """The methods of an environment that begin a stream of rows."""

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
        """Start from a table, or a stream of batches, of any library with the Arrow PyCapsule interface.

        Parameters
        ----------
        source
            A table, data frame or reader of pyarrow, polars, pandas, DuckDB and others, read in one subtask of this
            process without a copy. A reader is used up by the first run, and no run goes on within it after a failure.

            Or a function: it is sent to the workers, and every subtask of the source calls it with its own index and
            the number of subtasks and reads what it returns. It has to split the work by these two, and to return the
            same rows when it is called again.
        schema
            The columns of what a function returns: ``{"user": "utf8", "spent": "float64"}``, or a schema of pyarrow or
            another library. Default: None, which is for what is no function.
        event_time, delay, max_ahead
            As ``column``, ``delay`` and ``max_ahead`` of `Rows.assign_timestamps`. Default: None, rows have no event
            time; no delay, nothing is promised of the order of rows; every row moves event time.

        Raises
        ------
        PlanError
            It is no such source, or a column has a type that rows cannot have.

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
        """Start from a structured array of numpy, or several, whose fields are the columns.

        Parameters
        ----------
        array
            Of one dimension; or a list of such, with the same fields, or an iterator, which is asked for the next one
            when that is wanted, and can be read by one run. pyarrow has to be installed.
        event_time, delay, max_ahead
            As of `from_arrow`.

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
        """Start from the rows of Parquet files, which the subtasks share: by row groups, of 64 files or more by files.

        Parameters
        ----------
        paths
            Files, folders and patterns such as ``"data/2026-*/*.parquet"``. Of folders all ``*.parquet`` are read, but
            for hidden files and folders: names that begin with ``.`` or ``_``, unless they are partitions such as
            ``_day=1``. Listed here, once. pyarrow has to be installed, where workers are too. Columns are those of all
            files, matched by name, and those that folders below a given one say, as in ``country=de/day=2026-11-23/``.
            A file without a column has nulls there.
        columns
            The columns that are read. Default: None, all.
        filter
            As `Rows.filter`. Row groups of which statistics, or folders, say that no row is wanted are not read: by
            comparisons of a column with a written number, text or date, joined by ``&`` and ``|``. Default: None, all
            rows.
        partitions
            Types of columns that folders say, by name. Default: None; ``int64`` where all values are whole numbers,
            ``date`` where all are dates, else ``utf8``.
        event_time, delay, max_ahead
            As of `from_arrow`. Statistics of row groups say how far event time may advance, so they need no delay.
        order
            In which order a subtask reads its row groups: ``"event_time"``, by the least times in their statistics, or
            ``"as listed"``, which uses no statistics. Results are the same; how long windows stay in state differs.
            Default: ``"event_time"``.

        Raises
        ------
        InputError
            There is no such file or folder, no file in it, one is not one of Parquet, a column has types in two files
            that have no type in common, or folders do not say the same columns, or no value of its type.
        PlanError
            There is no such column, or it has a type that rows cannot have.
        OperatorError
            When the job runs: a page does not have its checksum, or a file is damaged; the text names the file.

        Notes
        -----
        If files have a column in different types, rows have the type that holds all of their values: the wider of two
        ints or floats, float64 for ints and floats, the finer unit of times. A value that this type cannot hold
        exactly, such as an int above 2^53 beside floats, fails the job. Timestamps of 96 bits, as older writers have
        them, are read in microseconds.

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
        r"""Start from the rows of files of comma-separated values, which the subtasks share: one reads a file whole.

        Parameters
        ----------
        paths
            Files, folders and patterns, as of `read_parquet`. Of folders all ``*.csv`` are read, also packed ones, such
            as ``*.csv.gz``. Columns are those of all files, matched by name, and those of folders.
        schema
            Names and types of the columns of the lines. Default: None: types are inferred from the first 64 MiB of all
            files together, and at least 64 KiB of each.
        columns
            The columns that are read. Default: None, all.
        filter
            As `Rows.filter`. Files of which folders say that no row is wanted are not read. Default: None, all rows.
        partitions
            Types of columns that folders say, as of `read_parquet`. Default: None.
        delimiter
            What is between two values, one character of ASCII. Default: a comma.
        header
            Whether files begin with the names of the columns; else ``schema`` says them. Default: True.
        event_time, delay, max_ahead
            As of `from_arrow`. Lines say nothing of those behind them: without a delay event time waits for the end.
        order
            In which order a subtask reads its files: ``"event_time"``, if there is a delay several at once, the one
            that is furthest behind next; or ``"as listed"``, one after the other. Results are the same; how long
            windows stay in state differs. Default: ``"event_time"``.

        Raises
        ------
        InputError
            There is no such file or folder, no file in it, one cannot be read, two columns of a file have one name, no
            file has a column of ``schema``, a column has types in two files that have no type in common, or folders do
            not say the same columns, or no value of its type.
        PlanError
            There is no such column, or it has a type that rows cannot have.
        OperatorError
            When the job runs: a value does not fit its column, a line has too many or too few values, or a quote is
            never closed; the text names file, line and column.

        Notes
        -----
        Without ``schema``, an integer that a column of floats does not hold is refused, and not rounded: one beyond 64
        bits, or one above 2^53 beside fractions. Name a type then, such as ``"decimal128(38, 0)"``.

        Without ``schema``, a column with numbers and texts in one file is one of texts. If two files differ so, name
        the type. Types of several files are widened as of `read_parquet`. Times with a zone, as in
        ``2026-11-26T10:00:00Z``, are times in UTC; a type without a zone does not take them.

        An empty value is null, and ``""`` is an empty text; in a column of numbers or times it is null. In a file of
        one column an empty line is a null. Values may be of several lines, in quotes. Where the
        schema says so, texts are dates and times, as ISO 8601 has them, durations, such as ``PT1.5S``, and bytes, two
        hexadecimal digits each: as `Rows.write_csv` writes them.

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
        r"""Start from the rows of files with a line of JSON for each, which the subtasks share: one reads a file whole.

        Parameters
        ----------
        paths
            Files, folders and patterns, as of `read_parquet`. Of folders all ``*.jsonl``, ``*.ndjson`` and ``*.json``
            are read.
        schema
            Names and types of the columns; fields of lines that it has not are left out. Dates, times, durations and
            bytes are texts, as of `read_csv`. Default: None: inferred, as of `read_csv`. Then a line with a field that
            no inferred line has fails the job: it is not left out.
        columns, filter, partitions, event_time, delay, max_ahead, order
            As of `read_csv`.

        Raises
        ------
        InputError, PlanError, OperatorError
            As of `read_csv`.

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
