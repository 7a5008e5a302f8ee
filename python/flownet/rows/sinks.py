"""Sinks of rows: files, custom sinks and Spark."""

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
    """The sink methods of rows."""

    _schema: _flownet.RowSchema

    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        partition_by: PartitionBy = None,
        compression: str = "snappy",
        row_group_rows: int = ROW_GROUP_ROWS,
    ) -> StreamSink:
        """Write rows to Parquet files in a folder.

        It needs pyarrow. With checkpoints, each file belongs to one checkpoint and gets its final name when that
        checkpoint completes. So readers see each row once. Without checkpoints, each subtask writes one file, which
        gets its final name when the job succeeds.

        Parameters
        ----------
        path
            The folder, which is created if needed. Files have names such as ``part-<i>.parquet``. See
            `Stream.write_text` for the rules.
        partition_by
            Columns whose values name subfolders, outermost first, as in Hive:
            ``country=de/day=2026-11-23/part-0-000001.parquet``. `read_parquet`, DuckDB, polars, pyarrow and Spark read
            them. Files do not contain these columns. Types are ints, bool, utf8 and dates. Default: None, all files are
            in the folder itself.
        compression
            ``"snappy"``, ``"zstd"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``"none"``. Default: ``"snappy"``.
        row_group_rows
            Rows of a row group. They wait in memory until the group is full, or has 64 MiB. Default: 122,880.

        Raises
        ------
        ConfigError
            ``path`` is a file, another `write_parquet` of this environment writes there, or a setting is invalid.
        PlanError
            ``partition_by`` names a column that does not exist or whose type cannot name folders. Or it names a column
            twice, or all columns.

        Notes
        -----
        With ``partition_by``, nulls go to the folder ``country=__HIVE_DEFAULT_PARTITION__`` and empty strings to
        ``country=``. flownet, pyarrow, polars and DuckDB read both back. Spark reads both as null. The string
        ``"__HIVE_DEFAULT_PARTITION__"`` fails the job. Characters such as ``/``, ``=`` and ``%`` are escaped, as in
        ``%2F``. Readers guess types from folder names. If strings look like numbers, give the reader the type.

        Each subtask writes its own files. To get fewer and larger files, use fewer subtasks (`set_parallelism`). With
        ``partition_by``, rows wait in memory until all folders together have 64 MiB. Then the subtask writes the rows
        of the largest folder. A subtask has at most 48 open files. To open another one, it completes the file that it
        wrote to longest ago. That folder gets another file when more rows arrive for it.

        A job that succeeds removes the files of earlier jobs from the folder and from its folders of partitions by
        these columns.

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
        r"""Write rows to CSV files in a folder.

        Files get their final names as those of `write_parquet` do.

        Parameters
        ----------
        path
            The folder, which is created if needed. Files have names such as ``part-<i>.csv``.
        partition_by
            As for `write_parquet`. Default: None.
        delimiter
            The separator of values, one ASCII character. Default: a comma.
        header
            Whether each file begins with the names of the columns. Default: True.

        Raises
        ------
        ConfigError
            As for `write_parquet`.
        PlanError
            A column has lists or structs, which CSV cannot hold. Or as for `write_parquet`.

        Notes
        -----
        Null is written as an empty value and an empty string as ``""``, so `read_csv` restores both. Times are written
        in ISO 8601, and bytes as hexadecimal digits.

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
        """Write rows as JSON lines to files in a folder.

        Files get their final names as those of `write_parquet` do.

        Parameters
        ----------
        path
            The folder, which is created if needed. Files have names such as ``part-<i>.jsonl``.
        partition_by
            As for `write_parquet`. Default: None.

        Raises
        ------
        ConfigError, PlanError
            As for `write_parquet`.

        Notes
        -----
        Each line has all columns except those of ``partition_by``. Null is written as ``null``, times are in ISO 8601,
        and bytes are hexadecimal digits. JSON has no NaN and no infinity. A row with one fails the job with an
        `OperatorError` that names the column. To avoid this, replace such values with null, or convert them to strings
        with ``.cast("utf8")``.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sink = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).write_json("out/")
        """
        return self._files("write_json", path, "json", partition_columns("write_json", partition_by, self._schema))

    def sink_to(self, sink: Sink[Any], *, format: BatchFormat = "arrow") -> StreamSink:
        """Write batches of rows to a custom sink.

        Parameters
        ----------
        sink
            An instance of a subclass of `Sink` or `TransactionalSink`. Its ``write`` gets lists of batches. Each
            subtask has a copy of the sink.
        format
            The type of a batch. ``"arrow"`` is a ``pyarrow.RecordBatch``, ``"polars"`` and ``"pandas"`` are data
            frames, and ``"numpy"`` is a dict of arrays by column. Default: ``"arrow"``.

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
        """Run the dataflow inside Spark and return a Spark DataFrame.

        As `Stream.to_spark`, but in batches: rows do not become Python objects. Columns that represent maps and
        variants become maps and variants again. See `Environment.from_spark`.

        Parameters
        ----------
        run, workers, launch_timeout
            As for `Stream.to_spark`.

        Raises
        ------
        PlanError
            A column has a type that Spark lacks, such as unsigned integers.
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
