"""Where the records of a stream may go in the end."""

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
    """What `Stream.collect` can fill: anything with ``extend``, such as a list."""

    def extend(self, records: list[T], /) -> object:
        """Take records that have arrived, in their order."""


class SinkMethods(OperatorHandle, Generic[T]):
    """The methods of a stream that end it."""

    def print(self, prefix: str = "") -> StreamSink:
        """Write each record to the standard output of the process that submitted the job, as ``str(record)``.

        Parameters
        ----------
        prefix
            Written before each record, followed by ``"> "``. With several subtasks, each line also names its subtask.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).print()
        """
        if not isinstance(prefix, str):
            raise ConfigError(f"print(prefix={prefix!r}): must be a text", setting="prefix", value=prefix)
        return self._sink({"print": {"prefix": prefix or None}})

    def collect(self, into: SupportsExtend[T] | None = None) -> CollectedRecords[T]:
        """Bring all records to this process.

        Parameters
        ----------
        into
            Also hand the records over while the job runs: ``into.extend(list)`` is called for each batch, from a
            thread of the runtime. The result then stays empty, so that a job without end needs no memory for it.

        Returns
        -------
        CollectedRecords[T]
            A sequence that holds the records once ``execute()`` has returned.

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
        """Run what leads to this stream, now, and give its records as they come.

        Other sinks of the environment do not run. The job waits for whoever iterates: what he has not taken stays with
        its sources, but for some thousands of records and what fits into the buffers. So it is also for streams without
        an end.

        Parameters
        ----------
        workers
            Number of worker processes; 0 runs all tasks in this process. None: as the environment says.
        on
            What brings workers of its own, as of `Environment.execute`.

        Returns
        -------
        Results[T]
            An iterator; at the end of its ``with`` block the job ends, if it still runs. Records of one subtask are in
            their order; across subtasks there is none.

        Raises
        ------
        PlanError
            The dataflow cannot be run, or does not fit. Nothing was started.
        LaunchError
            The workers could not be started.

        Notes
        -----
        The job takes no checkpoints, whatever the environment says, and what fails is not begun again: who has records
        cannot give them back. So each record comes once, or the iteration raises what ended the job.

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
        """Write ``str(record)`` and a newline for each record into the files of a folder.

        Parameters
        ----------
        path
            The folder; made if need be. Each subtask *i* writes ``part-<i>.txt``. While the job runs the file is called
            ``part-<i>.txt.inprogress``, so a file with its final name is complete. When the job has ended well, no part
            of a job before is left; one that fails or is cancelled removes what it has not completed.

        Raises
        ------
        ConfigError
            ``path`` is a file, or another `write_text` of this environment writes there.

        Notes
        -----
        A folder is for one `write_text` at a time: with another job in it, the job that came second fails.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).write_text("out/")
        """
        return self._files("write_text", path, "text")

    def write_json(self, path: str | os.PathLike[str], *, default: Callable[[Any], Any] | None = None) -> StreamSink:
        """Write each record as a line of JSON into the files of a folder: `write_text` with other lines.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.jsonl``, and else as those of `write_text`.
        default
            Called with a value that is neither JSON's nor a number, bool or string of numpy. Returns one that is:
            ``str``, or ``dataclasses.asdict``.
            Default: None, that fails the job.

        Raises
        ------
        ConfigError
            ``path`` is a file, or another sink of this environment writes such files there.

        Notes
        -----
        Lines are UTF-8 and as ``json.dumps`` writes them. Numbers, bools and strings of numpy are written as Python's.
        Numbers that JSON has not, such as NaN, fail the job.

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
        r"""Write each record as a line of comma-separated values into the files of a folder.

        Parameters
        ----------
        path
            The folder; made if need be. Files are called ``part-<i>.csv``, and else as those of `write_text`.
        columns
            Names of the values, which each file begins with; records are mappings with these keys, or sequences of as
            many values. None: files begin with the first record, and records are sequences. Default: None.
        delimiter
            What is between two values, one character. Default: a comma.

        Raises
        ------
        ConfigError
            ``path`` is a file, another sink of this environment writes such files there, ``columns`` are no names, or
            ``delimiter`` is not one character.

        Notes
        -----
        Values are written and quoted as Python's ``csv`` module does, in UTF-8, with ``\n`` behind each line. Who
        reads several parts leaves out the first line of each.

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
        """Run the dataflow inside Spark, now, and return this stream's records as a DataFrame.

        Spark's tasks take the rows from the operators as they come, so nothing is gathered in one place. The result
        is an ordinary DataFrame, and reading it again does not run the dataflow again: Spark keeps two copies on its
        executors, or a checkpoint if ``SparkContext.setCheckpointDir`` was called.

        Parameters
        ----------
        schema
            Columns of the DataFrame, such as ``"carrier string, flights long"``. Records are tuples in their order,
            dicts by their names, or the value itself if there is one column.
        run
            False leaves the job to ``execute(on=flownet.spark.cluster(...))``, and its `SparkResult.frame` is there
            when that has returned. So one job can have several DataFrames as results. Default: True.
        workers
            Tasks of Spark to run in. None: as many as Spark can run at once, at most one for each partition of the
            DataFrames of `Environment.from_spark`. Over Spark Connect it must be given. Default: None.
        launch_timeout
            How long Spark may take until all workers run. Default: ``"60s"``.

        Raises
        ------
        ConfigError
            The schema is none, there is no Spark session, or the job takes checkpoints.
        OperatorError
            A record does not fit the schema, or a function of the user raised.
        FlownetError
            Anything else that ended the job: see `flownet.errors`.

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
        """Hand the records to a sink of your own.

        Parameters
        ----------
        sink
            An instance of a subclass of `Sink`; each subtask gets a copy.

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
