"""Where rows may go in the end, beside this process."""

from __future__ import annotations

import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, overload

from ..api.functions import Sink
from ..connectors.part_files import folder_of
from ..errors import ConfigError, PlanError
from ..internal import config
from ..planning import spec
from ..planning.dataflow import Origin
from ..streams.checks import delimiter_of, sink_of
from ..streams.handle import OperatorHandle, StreamSink
from .batches import BatchFormat, known_format
from .parquet_writer import ROW_GROUP_ROWS, ParquetFormat
from .partitions import PartitionBy, partition_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .. import _flownet
    from ..spark import SparkResult

_COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")


class RowSinks(OperatorHandle):
    """The methods of rows that end them."""

    _schema: _flownet.RowSchema

    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by: PartitionBy = None,
        compression: str = "snappy",
        row_group_rows: int = ROW_GROUP_ROWS,
    ) -> StreamSink:
        """Write rows into the Parquet files of a folder. Needs pyarrow.

        With checkpoints each file is of one of them and gets its name when that counts, so readers see each row once;
        else there is one file for each subtask, which gets its name when the job has ended well.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.parquet``, and else as those of
            `Stream.write_text`.
        partition_by
            Columns whose values name folders below that one, outermost first, as Hive has them and `read_parquet`,
            DuckDB, polars, pyarrow and Spark read them: ``country=de/day=2026-11-23/part-0-000001.parquet``. They are
            not in the files again. They are ints, bool, utf8 or dates. Default: None, all files are in the folder
            itself.
        compression
            ``"snappy"``, ``"zstd"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``"none"``. Default: ``"snappy"``.
        row_group_rows
            Rows of a group, which wait in memory until there are so many, or 64 MiB of them. Default: 122,880.

        Raises
        ------
        ConfigError
            ``path`` is a file, another `write_parquet` of this environment writes there, or a setting is none.
        PlanError
            ``partition_by`` names a column that there is not or that names no folders, one twice, or all there are.

        Notes
        -----
        With ``partition_by`` nulls are in the folder ``country=__HIVE_DEFAULT_PARTITION__`` and empty texts in
        ``country=``. flownet, pyarrow, polars and DuckDB read both back; Spark reads both as null. The text
        ``"__HIVE_DEFAULT_PARTITION__"`` fails the job. Characters such as ``/``, ``=`` and ``%`` are escaped, as in
        ``%2F``. Readers guess types from names: name those of texts that look like numbers.

        Each subtask writes files of its own: fewer subtasks (`set_parallelism`) make fewer and larger ones. Its rows
        wait in memory until there are 64 MiB for all folders together; then those of the folder that has most are
        written. It has 48 files open at most: for one more, that which was written longest ago is ended, and its folder
        gets a further file when there are rows for it.

        What runs before left in the folder and in those of partitions by these columns goes, as without.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann"], "country": ["de"], "spent": [1.5]}))
        >>> sink = rows.write_parquet("out/", partition_by="country")
        """
        if compression not in _COMPRESSIONS:
            raise ConfigError(
                f"write_parquet(compression={compression!r}): must be one of {', '.join(map(repr, _COMPRESSIONS))}",
                setting="compression",
                value=compression,
            )
        row_group_rows = config.whole_number("row_group_rows", row_group_rows, 1, 1 << 30)
        import pyarrow.parquet  # noqa: F401 - whoever lacks it is told here

        partitions = partition_columns("write_parquet", partition_by, self._schema)
        format = ParquetFormat(compression, row_group_rows, gathers=not partitions)
        return self._files("write_parquet", path, "parquet", partitions, function=format)

    def write_csv(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by: PartitionBy = None,
        delimiter: str = ",",
        header: bool = True,
    ) -> StreamSink:
        r"""Write rows as lines of comma-separated values into the files of a folder, as `write_parquet` does.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.csv``.
        partition_by
            As of `write_parquet`. Default: None.
        delimiter
            What is between two values, one character of ASCII. Default: a comma.
        header
            Whether each file begins with the names of the columns. Default: True.

        Raises
        ------
        ConfigError
            As of `write_parquet`.
        PlanError
            A column is of lists or structs, which such lines have no form for, or as of `write_parquet`.

        Notes
        -----
        Null is written as nothing and an empty text as ``""``, so `read_csv` gives both back. Times are written as
        ISO 8601 has them, bytes as hexadecimal digits.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sink = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).write_csv("out/")
        """
        delimiter = delimiter_of("write_csv", delimiter, is_ascii=True)
        partitions = partition_columns("write_csv", partition_by, self._schema)
        for name, kind, _ in self._schema.fields():
            if kind.startswith(("list", "struct")):
                raise PlanError(
                    f"write_csv: column {name!r} is {kind}, which such lines have no form for; write_json and "
                    "write_parquet have"
                )
        from ..connectors.lines import CsvLine

        names = [name for name, _, _ in self._schema.fields() if name not in partitions]
        line = CsvLine(names, delimiter).header() if header else None
        return self._files("write_csv", path, "csv", partitions, delimiter=delimiter, header=line)

    def write_json(self, path: str | os.PathLike[str], *, partition_by: PartitionBy = None) -> StreamSink:
        """Write each row as a line of JSON into the files of a folder, as `write_parquet` does.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.jsonl``.
        partition_by
            As of `write_parquet`. Default: None.

        Raises
        ------
        ConfigError, PlanError
            As of `write_parquet`.

        Notes
        -----
        Each line has all columns that name no folder. Null is written as ``null``, times as ISO 8601 has them, bytes as
        hexadecimal digits. JSON has no number for NaN and infinity: a row with one fails the job with `OperatorError`,
        which names the column. Make them null before, or write their texts, by ``.cast("utf8")``.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sink = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).write_json("out/")
        """
        return self._files("write_json", path, "json", partition_columns("write_json", partition_by, self._schema))

    def sink_to(self, sink: Sink[Any], *, format: BatchFormat = "arrow") -> StreamSink:
        """Hand rows to a sink of your own: its records are batches.

        Parameters
        ----------
        sink
            An instance of a subclass of `Sink` or `TransactionalSink`, whose ``write`` is called with lists of batches.
            Each subtask gets a copy.
        format
            What a batch is: ``"arrow"``, a ``pyarrow.RecordBatch``; ``"polars"`` or ``"pandas"``, a data frame;
            ``"numpy"``, a dict of arrays by column. Default: ``"arrow"``.

        Raises
        ------
        PlanError
            ``sink`` is not an instance of `Sink`.
        ConfigError
            There is no such format.

        Examples
        --------
        >>> import pyarrow as pa
        >>> class Total(fn.Sink[pa.RecordBatch]):
        ...     def write(self, records):
        ...         print(sum(batch.num_rows for batch in records), "rows")
        >>> sink = env.from_arrow(pa.table({"user": ["ann", "bob"]})).sink_to(Total())
        """
        known_format("sink_to", format)
        settings: spec.RowsKindSink = {"input": self._schema.planned(), "format": format}
        return self._end(type(sink).__name__, {"sink": settings}, function=sink_of(sink))

    @overload
    def to_spark(
        self, *, run: Literal[True] = True, workers: int | None = None, launch_timeout: str | timedelta = "60s"
    ) -> DataFrame: ...

    @overload
    def to_spark(self, *, run: Literal[False]) -> SparkResult: ...

    def to_spark(
        self, *, run: bool = True, workers: int | None = None, launch_timeout: str | timedelta = "60s"
    ) -> DataFrame | SparkResult:
        """Run the dataflow inside Spark, now, and return these rows as a DataFrame with their columns.

        As `Stream.to_spark`, but for batches: no Python object is made of a row. The columns that stand for maps and
        variants, see `Environment.from_spark`, are those again.

        Parameters
        ----------
        run, workers, launch_timeout
            As of `Stream.to_spark`.

        Raises
        ------
        PlanError
            A column is of a type that Spark has not, such as unsigned integers.
        ConfigError
            There is no Spark session, or the job takes checkpoints.

        Examples
        --------
        >>> flights = env.from_spark(df, as_rows=True)  # doctest: +SKIP
        >>> late = flights.filter(fn.col("delay") > 60).key_by("carrier")  # doctest: +SKIP
        >>> late.window(fn.EndOfInput()).agg(late=fn.count()).to_spark()  # doctest: +SKIP
        """
        from ..spark import frames

        add = functools.partial(frames.add_rows_sink, origins=self._origins, schema=self._schema)
        return frames.run(self._env, add, workers, launch_timeout) if run else add(self._env._dataflow)

    def _files(
        self,
        method: str,
        path: str | os.PathLike[str],
        format: spec.RowFormat,
        partition_by: list[str],
        *,
        function: object = None,
        delimiter: str | None = None,
        header: str | None = None,
    ) -> StreamSink:
        folder = folder_of(self._env._dataflow, method, path, format)
        described: spec.RowsKindWriteFiles = {
            "input": self._schema.planned(),
            "path": folder,
            "format": format,
            "delimiter": delimiter,
            "header": header,
            "partition_by": partition_by,
        }
        return self._end(method, {"write_files": described}, function=function)

    def _end(self, name: str, settings: spec.RowsKind, **described: object) -> StreamSink:
        node = self._env._dataflow.add({"rows": settings}, name=name, inputs=self._origins, **described)
        return StreamSink(self._env, (Origin(node),))
