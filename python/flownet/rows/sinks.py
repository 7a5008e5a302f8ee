"""Where rows may go in the end, beside this process."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import config
from ..dataflow import Origin
from ..errors import ConfigError, PlanError
from ..functions import Sink
from ..part_files import folder_of
from ..streams.checks import delimiter_of, sink_of
from ..streams.handle import OperatorHandle, StreamSink
from .batches import BatchFormat, known_format
from .parquet_writer import ROW_GROUP_ROWS, ParquetFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .. import _flownet

_COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")


class RowSinks(OperatorHandle):
    """The methods of rows that end them."""

    _schema: _flownet.RowSchema

    def write_parquet(
        self,
        path: str | os.PathLike[str],
        *,
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
        compression
            ``"snappy"``, ``"zstd"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``"none"``. Default: ``"snappy"``.
        row_group_rows
            Rows of a group, which wait in memory until there are so many, or 64 MiB of them. Default: 122,880.

        Raises
        ------
        ConfigError
            ``path`` is a file, another `write_parquet` of this environment writes there, or a setting is none.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sink = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).write_parquet("out/")
        """
        if compression not in _COMPRESSIONS:
            raise ConfigError(
                f"write_parquet(compression={compression!r}): must be one of {', '.join(map(repr, _COMPRESSIONS))}",
                setting="compression",
                value=compression,
            )
        row_group_rows = config.whole_number("row_group_rows", row_group_rows, 1, 1 << 30)
        import pyarrow.parquet  # noqa: F401 - whoever lacks it is told here

        return self._files("write_parquet", path, "parquet", function=ParquetFormat(compression, row_group_rows))

    def write_csv(self, path: str | os.PathLike[str], *, delimiter: str = ",", header: bool = True) -> StreamSink:
        r"""Write rows as lines of comma-separated values into the files of a folder, as `write_parquet` does.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.csv``.
        delimiter
            What is between two values, one character of ASCII. Default: a comma.
        header
            Whether each file begins with the names of the columns. Default: True.

        Raises
        ------
        ConfigError
            As of `write_parquet`.
        PlanError
            A column is of lists or structs, which such lines have no form for.

        Notes
        -----
        What is missing is an empty value, as an empty text is; times are written as ISO 8601 has them, bytes as
        hexadecimal digits.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sink = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).write_csv("out/")
        """
        delimiter = delimiter_of("write_csv", delimiter, is_ascii=True)
        for name, kind, _ in self._schema.fields():
            if kind.startswith(("list", "struct")):
                raise PlanError(
                    f"write_csv: column {name!r} is {kind}, which such lines have no form for; write_json and "
                    "write_parquet have"
                )
        from ..lines import CsvLine

        names = [name for name, _, _ in self._schema.fields()]
        line = CsvLine(names, delimiter).header() if header else None
        return self._files("write_csv", path, "csv", delimiter=delimiter, header=line)

    def write_json(self, path: str | os.PathLike[str]) -> StreamSink:
        """Write each row as a line of JSON into the files of a folder, as `write_parquet` does.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.jsonl``.

        Raises
        ------
        ConfigError
            As of `write_parquet`.

        Notes
        -----
        Each line has all columns. What is missing is ``null``, and so are numbers that JSON has not, such as NaN; times
        are written as ISO 8601 has them, bytes as hexadecimal digits.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sink = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).write_json("out/")
        """
        return self._files("write_json", path, "json")

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
        settings = {"sink": {"input": self._schema.planned(), "format": format}}
        return self._end(type(sink).__name__, settings, function=sink_of(sink))

    def to_spark(self, *, workers: int | None = None, launch_timeout: str | timedelta = "60s") -> DataFrame:
        """Run the dataflow inside Spark, now, and return these rows as a DataFrame with their columns.

        As `Stream.to_spark`, but for batches: no Python object is made of a row.

        Parameters
        ----------
        workers, launch_timeout
            As of `Stream.to_spark`.

        Raises
        ------
        PlanError
            A column is of a type that Spark has not, such as unsigned integers.
        ConfigError
            There is no Spark session.

        Examples
        --------
        >>> flights = env.from_spark(df, as_rows=True)  # doctest: +SKIP
        >>> late = flights.filter(fn.col("delay") > 60).key_by("carrier")  # doctest: +SKIP
        >>> late.window(fn.EndOfInput()).agg(late=fn.count()).to_spark()  # doctest: +SKIP
        """
        from ..spark import frames

        return frames.write_rows(self._env, self._origins, self._schema, workers, launch_timeout)

    def _files(
        self, method: str, path: str | os.PathLike[str], format: str, function: object = None, **settings: Any
    ) -> StreamSink:
        folder = folder_of(self._env._dataflow, method, path, format)
        described = {"input": self._schema.planned(), "path": folder, "format": format, **settings}
        return self._end(method, {"write_files": described}, function=function)

    def _end(self, name: str, settings: dict[str, Any], **described: object) -> StreamSink:
        node = self._env._dataflow.add("rows", name=name, settings=settings, inputs=self._origins, **described)
        return StreamSink(self._env, (Origin(node),))
