"""Methods that bring rows to this process, after the job or while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from .. import _flownet
from ..errors import PlanError
from ..planning import spec
from ..planning.dataflow import Dataflow
from ..streams.checks import kind_of
from ..streams.handle import OperatorHandle
from ..streams.results import Batches, HandOver, collecting
from .collected import CollectedRows

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas
    import polars
    import pyarrow

    from ..api.job import Job
    from ..planning.launcher import Host


class SupportsAppend(Protocol):
    """Protocol of objects that `Rows.collect` can fill: any object with ``append``, such as a list."""

    def append(self, batch: _flownet.RowBatch, /) -> object:
        """Add a batch of rows that arrived."""


class RowResults(Batches[_flownet.RowBatch], Iterator[_flownet.RowBatch]):
    """Result of `Rows.execute_and_collect`, an iterator over the batches of a running job.

    Each batch has the Arrow PyCapsule interface, and so has the iterator. ``pyarrow.RecordBatchReader.from_stream`` and
    DuckDB read it batch by batch. ``polars.DataFrame`` and ``pyarrow.table`` read it to the end. If the job fails,
    these libraries raise their own errors with its text. If you iterate yourself, you get the job's error.

    The job waits if you do not take batches. It ends when you leave the ``with`` block, or when the iterator is garbage
    collected.
    """

    def __init__(self, schema: _flownet.RowSchema, start: Callable[[HandOver[_flownet.RowBatch]], Job]) -> None:
        super().__init__(start)
        self._schema = schema

    def __next__(self) -> _flownet.RowBatch:
        """Wait for the next batch. Raises as `Results.__next__`."""
        return self._next_batch()

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        return _flownet.rows_of(self._schema, self)


class ToThisProcess(OperatorHandle):
    """The methods of rows that bring them to this process."""

    _schema: _flownet.RowSchema

    def collect(self, into: SupportsAppend | None = None) -> CollectedRows:
        """Collect all rows in this process when the job runs.

        `collect` does not run the job. Call ``execute()`` to run it.

        Parameters
        ----------
        into
            An object that gets the rows while the job runs, such as a list. A thread of the runtime calls
            ``into.append(batch)`` for each batch, which has the Arrow PyCapsule interface. The result then stays empty,
            so an endless job needs no memory for it. Default: None.

        Returns
        -------
        CollectedRows
            Holds the rows after ``execute()`` has returned.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).collect()
        >>> result = env.execute()
        >>> rows.to_arrow().to_pylist()
        [{'user': 'ann', 'spent': 1.5}]
        """
        if into is not None and not callable(getattr(into, "append", None)):
            raise PlanError(f"collect(into=...) needs an object with append(batch), not {kind_of(into)}")
        result = CollectedRows(self._schema)
        self._collect_into(self._env._dataflow, result._restart if into is None else lambda: into)
        return result

    def execute_and_collect(self, workers: int | None = None, *, on: Host | None = None) -> RowResults:
        """Run the job now and iterate over batches of rows as they arrive.

        As `Stream.execute_and_collect`, but in batches. Other sinks of the environment do not run.

        Parameters
        ----------
        workers
            Number of worker processes. 0 runs all tasks in this process. Default: None, as the environment says.
        on
            A host that provides workers, as for `Environment.execute`. Default: None.

        Returns
        -------
        RowResults
            An iterator over batches, and an Arrow stream. If the job still runs at the end of the ``with`` block, it is
            stopped.

        Raises
        ------
        PlanError
            The dataflow is invalid or needs more resources than there are. Nothing was started.
        LaunchError
            The workers could not be started.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann", "bob"], "spent": [1.5, 0.5]}))
        >>> with rows.filter(fn.col("spent") > 1).execute_and_collect() as batches:
        ...     for batch in pa.RecordBatchReader.from_stream(batches):
        ...         print(batch.to_pylist())
        [{'user': 'ann', 'spent': 1.5}]
        """

        def start(handover: HandOver[_flownet.RowBatch]) -> Job:
            dataflow = self._env._dataflow.leading_to(self._origins)
            self._collect_into(dataflow, lambda: handover)
            return self._env._submit(dataflow, workers, on, only_once=True)

        return RowResults(self._schema, start)

    def to_arrow(self, workers: int | None = None, *, on: Host | None = None) -> pyarrow.Table:
        """Run the job now and return all rows as a pyarrow table.

        Needs pyarrow. Nothing is copied. Parameters and errors are those of `execute_and_collect`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]}))
        >>> rows.to_arrow().to_pylist()
        [{'user': 'ann', 'spent': 1.5}]
        """
        return self._gathered(workers, on).to_arrow()

    def to_polars(self, workers: int | None = None, *, on: Host | None = None) -> polars.DataFrame:
        """Run the job now and return all rows as a polars data frame.

        Needs polars. Parameters and errors are those of `execute_and_collect`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]}))
        >>> rows.to_polars().to_dicts()
        [{'user': 'ann', 'spent': 1.5}]
        """
        return self._gathered(workers, on).to_polars()

    def to_pandas(self, workers: int | None = None, *, on: Host | None = None) -> pandas.DataFrame:
        """Run the job now and return all rows as a pandas data frame.

        Needs pandas and pyarrow. Parameters and errors are those of `execute_and_collect`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]}))
        >>> rows.to_pandas().to_dict("records")
        [{'user': 'ann', 'spent': 1.5}]
        """
        return self._gathered(workers, on).to_pandas()

    def _gathered(self, workers: int | None, on: Host | None) -> CollectedRows:
        gathered = CollectedRows(self._schema)
        with self.execute_and_collect(workers, on=on) as batches:
            gathered._restart().extend(batches)
        return gathered

    def _collect_into(self, dataflow: Dataflow, prepare: Callable[[], object]) -> None:
        settings: spec.RowsKind = {"collect": {"input": self._schema.planned()}}
        dataflow.add({"rows": settings}, name="collect", inputs=self._origins, **collecting(prepare))
