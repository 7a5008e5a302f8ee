"""Sinks of streams: files, standard output, custom sinks and Spark."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, overload

from ..api.functions import Sink
from ..connectors.part_files import folder_of
from ..errors import ConfigError, PlanError
from ..planning import spec
from ..planning.dataflow import Origin
from .checks import delimiter_of, kind_of, sink_of
from .collected import CollectedRecords
from .handle import OperatorHandle, StreamSink
from .results import HandOver, Results, collecting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ..api.job import Job
    from ..planning.launcher import Host
    from ..spark import SparkResult

T = TypeVar("T")


class SupportsExtend(Protocol[T]):
    """Protocol of objects that `Stream.collect` can fill: any object with ``extend``, such as a list."""

    def extend(self, records: list[T], /) -> object:
        """Add records that arrived, in order."""


class SinkMethods(OperatorHandle, Generic[T]):
    """The sink methods of a stream."""

    def print(self, prefix: str = "") -> StreamSink:
        """Print each record as ``str(record)``.

        Records appear on the standard output of the process that submitted the job.

        Parameters
        ----------
        prefix
            Written before each record, followed by ``"> "``. With several subtasks, each line also names its subtask.
            Default: ``""``, no prefix.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).print()
        """
        if not isinstance(prefix, str):
            raise ConfigError(f"print(prefix={prefix!r}): must be a text", setting="prefix", value=prefix)
        return self._sink({"print": {"prefix": prefix or None}})

    def collect(self, into: SupportsExtend[T] | None = None) -> CollectedRecords[T]:
        """Collect all records in this process when the job runs.

        `collect` does not run the job. Call ``execute()`` to run it.

        Parameters
        ----------
        into
            An object that gets the records while the job runs, such as a list. A thread of the runtime calls
            ``into.extend(list)`` for each batch. The result then stays empty, so an endless job needs no memory for it.
            Default: None.

        Returns
        -------
        CollectedRecords[T]
            A sequence that holds the records after ``execute()`` has returned.

        Examples
        --------
        >>> numbers = env.from_collection([1, 2, 3]).collect()
        >>> result = env.execute()
        >>> list(numbers)
        [1, 2, 3]
        """
        if into is not None and not callable(getattr(into, "extend", None)):
            raise PlanError(f"collect(into=...) needs an object with extend(list), not {kind_of(into)}")
        return self._collect(into)

    def execute_and_collect(self, workers: int | None = None, *, on: Host | None = None) -> Results[T]:
        """Run the job now and iterate over records as they arrive.

        Other sinks of the environment do not run. If you do not take records, the job waits: some thousands of records
        wait in this process, some in buffers, and the sources pause. So this also works for endless streams.

        Parameters
        ----------
        workers
            Number of worker processes. 0 runs all tasks in this process. Default: None, as the environment says.
        on
            A host that provides workers, as for `Environment.execute`. Default: None.

        Returns
        -------
        Results[T]
            An iterator. If the job still runs at the end of the ``with`` block, it is stopped. Records of one subtask
            are in order. Across subtasks there is no order.

        Raises
        ------
        PlanError
            The dataflow is invalid or needs more resources than there are. Nothing was started.
        LaunchError
            The workers could not be started.

        Notes
        -----
        The job takes no checkpoints, even if the environment enables them. It does not restart after a failure, because
        records that you have taken cannot be taken back. So you get each record once, or the iteration raises the error
        that ended the job.

        Examples
        --------
        >>> import itertools
        >>> squares = env.from_iterable(itertools.count()).map(lambda number: number * number)
        >>> with squares.execute_and_collect() as results:
        ...     print(list(itertools.islice(results, 5)))
        [0, 1, 4, 9, 16]
        """

        def start(handover: HandOver[list[T]]) -> Job:
            dataflow = self._env._dataflow.leading_to(self._origins)
            dataflow.add("collect", inputs=self._origins, **collecting(lambda: handover))
            return self._env._submit(dataflow, workers, on, only_once=True)

        return Results(start)

    def write_text(self, path: str | os.PathLike[str]) -> StreamSink:
        """Write records as lines of text to files in a folder.

        Each line is ``str(record)``.

        Parameters
        ----------
        path
            The folder, which is created if needed. Each subtask *i* writes ``part-<i>.txt``. While the job runs, the
            file is called ``part-<i>.txt.inprogress``, so a file with its final name is complete. A job that succeeds
            removes the files of earlier jobs. A job that fails or is cancelled removes its incomplete files.

        Raises
        ------
        ConfigError
            ``path`` is a file, or another `write_text` of this environment writes there.

        Notes
        -----
        Only one `write_text` at a time may use a folder. If another job uses it, the later job fails.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).write_text("out/")
        """
        return self._files("write_text", path, "text")

    def write_json(self, path: str | os.PathLike[str], *, default: Callable[[Any], Any] | None = None) -> StreamSink:
        """Write records as JSON lines to files in a folder.

        Parameters
        ----------
        path
            The folder, which is created if needed. Files have names such as ``part-<i>.jsonl``. The rules are those of
            `write_text`.
        default
            Called with a value that is neither a JSON value nor a number, bool or string of numpy. Returns a JSON
            value. Examples are ``str`` and ``dataclasses.asdict``. Default: None, such a value fails the job.

        Raises
        ------
        ConfigError
            ``path`` is a file, or another sink of this environment writes such files there.

        Notes
        -----
        Lines are UTF-8 and have the format of ``json.dumps``. Numbers, bools and strings of numpy are written as those
        of Python. Numbers that JSON lacks, such as NaN, fail the job.

        Examples
        --------
        >>> sink = env.from_collection([{"word": "to", "number": 1}]).write_json("out/")
        """
        if default is not None and not callable(default):
            raise ConfigError(
                f"write_json(default={default!r:.60}): must be a function", setting="default", value=default
            )
        from ..connectors.lines import JsonLine

        return self._files("write_json", path, "json", function=JsonLine(default))

    def write_csv(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
    ) -> StreamSink:
        r"""Write records as CSV files in a folder.

        Parameters
        ----------
        path
            The folder, which is created if needed. Files have names such as ``part-<i>.csv``. The rules are those of
            `write_text`.
        columns
            Names of the columns, the first line of each file. Records are mappings with these keys, or sequences of as
            many values. Default: None, files have no header, and records are sequences.
        delimiter
            The separator of values, one character. Default: a comma.

        Raises
        ------
        ConfigError
            ``path`` is a file, or another sink of this environment writes such files there. Or ``columns`` are not
            names, or ``delimiter`` is not one character.

        Notes
        -----
        Values are written and quoted as by Python's ``csv`` module, in UTF-8. Lines end with ``\n``. If you join
        several files with a header, leave out the first line of each.

        Examples
        --------
        >>> sink = env.from_collection([("to", 1)]).write_csv("out/", columns=["word", "number"])
        """
        names = None if columns is None else list(columns)
        if columns is not None and not _are_names(columns):
            raise ConfigError(f"write_csv(columns={columns!r:.60}): must be names", setting="columns", value=columns)
        delimiter = delimiter_of("write_csv", delimiter)
        from ..connectors.lines import CsvLine

        line = CsvLine(names, delimiter)
        header = None if names is None else line.header()
        return self._files("write_csv", path, "csv", header=header, function=line)

    @overload
    def to_spark(
        self,
        schema: str | StructType,
        *,
        run: Literal[True] = True,
        workers: int | None = None,
        launch_timeout: str | timedelta = "60s",
    ) -> DataFrame: ...

    @overload
    def to_spark(self, schema: str | StructType, *, run: Literal[False]) -> SparkResult: ...

    def to_spark(
        self,
        schema: str | StructType,
        *,
        run: bool = True,
        workers: int | None = None,
        launch_timeout: str | timedelta = "60s",
    ) -> DataFrame | SparkResult:
        """Run the dataflow inside Spark and return a Spark DataFrame.

        Spark tasks take the rows from the operators as they arrive, so no process holds all of them. The result is an
        ordinary DataFrame. Reading it again does not run the dataflow again. Spark stores two copies on its executors,
        or a checkpoint if you called ``SparkContext.setCheckpointDir``.

        Parameters
        ----------
        schema
            Columns of the DataFrame, such as ``"carrier string, flights long"``. Records are tuples in the order of
            columns, or dicts by their names. If there is one column, a record may be its value.
        run
            True runs the job now. False returns a `SparkResult` and leaves the job to
            ``execute(on=flownet.spark.cluster(...))``. Its `SparkResult.frame` is set when that returns, so one job can
            have several DataFrames as results. Default: True.
        workers
            Number of Spark tasks to run in. Default: None, as many as Spark can run at once, but at most one for each
            partition of the DataFrames of `Environment.from_spark`. Spark Connect needs a number.
        launch_timeout
            Time limit until all workers run. Default: ``"60s"``.

        Raises
        ------
        ConfigError
            ``schema`` is invalid, there is no Spark session, or the job takes checkpoints.
        OperatorError
            A record does not fit the schema, or your function raised an exception.
        FlownetError
            Another error ended the job. See `flownet.errors`.

        Examples
        --------
        >>> flights = env.from_spark(df, as_dicts=True)  # doctest: +SKIP
        >>> late = flights.filter(lambda flight: flight["delay"] > 60)  # doctest: +SKIP
        >>> by_carrier = late.key_by(lambda flight: flight["carrier"])  # doctest: +SKIP
        >>> by_carrier.count().to_spark("carrier string, late long")  # doctest: +SKIP
        """
        from ..spark import frames

        add = functools.partial(frames.add_sink, origins=self._origins, schema=schema)
        return frames.run(self._env, add, workers, launch_timeout) if run else add(self._env._dataflow)

    def sink_to(self, sink: Sink[T]) -> StreamSink:
        """Write records to a custom sink.

        Parameters
        ----------
        sink
            An instance of a subclass of `Sink`. Each subtask gets a copy.

        Raises
        ------
        PlanError
            ``sink`` is not an instance of `Sink`.

        Examples
        --------
        >>> class Longest(fn.Sink[str]):
        ...     def write(self, records):
        ...         print(max(records, key=len))
        >>> sink = env.from_collection(["to", "be"]).sink_to(Longest())
        """
        return self._sink("sink", function=sink_of(sink), name=type(sink).__name__)

    def _collect(self, into: SupportsExtend[T] | None, brake: float | None = None) -> CollectedRecords[T]:
        collected: CollectedRecords[T] = CollectedRecords()
        self._sink("collect", brake=brake, **collecting(collected._restart if into is None else lambda: into))
        return collected

    def _files(
        self,
        method: str,
        path: str | os.PathLike[str],
        format: spec.LineFormat,
        *,
        header: str | None = None,
        function: object = None,
    ) -> StreamSink:
        folder = folder_of(self._env._dataflow, method, path, format)
        settings: spec.WriteFiles = {"path": folder, "format": format, "header": header}
        return self._sink({"write_files": settings}, name=method, function=function)

    def _sink(self, kind: spec.OperatorKind, **described: Any) -> StreamSink:
        node = self._env._dataflow.add(kind, inputs=self._origins, **described)
        return StreamSink(self._env, (Origin(node),))


def _are_names(given: Any) -> bool:
    return not isinstance(given, str) and len(given) > 0 and all(isinstance(name, str) for name in given)
