"""What brings rows to this process: when the job has ended, or while it runs."""

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
    """What `Rows.collect` can fill: anything with ``append``, such as a list."""

    def append(self, batch: _flownet.RowBatch, /) -> object:
        """Take rows that have arrived."""


class RowResults(Batches[_flownet.RowBatch], Iterator[_flownet.RowBatch]):
    """Result of `Rows.execute_and_collect`: an iterator over the batches of a job that runs meanwhile.

    Each batch has the Arrow PyCapsule interface, and so has the iterator: ``pyarrow.RecordBatchReader.from_stream`` and
    DuckDB read it batch by batch, ``polars.DataFrame`` and ``pyarrow.table`` to its end. What ends the job then reaches
    them as a text of theirs; who iterates gets the error itself.

    The job is as fast as the batches are taken. Leaving its ``with`` block ends the job, and so does forgetting it.
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
    """The methods of rows that bring them here."""

    _schema: _flownet.RowSchema

    def collect(self, into: SupportsAppend | None = None) -> CollectedRows:
        """Bring all rows to this process.

        Parameters
        ----------
        into
            Also hand the rows over while the job runs: ``into.append(batch)`` is called for each batch, which has the
            Arrow PyCapsule interface, from a thread of the runtime. The result then stays empty, so that a job without
            end needs no memory for it.

        Returns
        -------
        CollectedRows
            Holds the rows once ``execute()`` has returned.
        """
        if into is not None and not callable(getattr(into, "append", None)):
            raise PlanError(f"collect(into=...) needs an object with append(batch), not {kind_of(into)}")
        result = CollectedRows(self._schema)
        self._collect_into(self._env._dataflow, result._restart if into is None else lambda: into)
        return result

    def execute_and_collect(self, workers: int | None = None, *, on: Host | None = None) -> RowResults:
        """Run what leads to these rows, now, and give them as they come: `Stream.execute_and_collect`, in batches.

        Parameters
        ----------
        workers
            Number of worker processes; 0 runs all tasks in this process. None: as the environment says.
        on
            What brings workers of its own, as of `Environment.execute`.

        Returns
        -------
        RowResults
            An iterator over batches, and an Arrow stream; at the end of its ``with`` block the job ends, if it still
            runs.

        Raises
        ------
        PlanError
            The dataflow cannot be run, or does not fit. Nothing was started.
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
        """Run what leads to these rows, now, and give all of them as a table of pyarrow, which has to be installed.

        It is `execute_and_collect` to its end, with the parameters and errors of that. Nothing is copied.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]}))
        >>> rows.to_arrow().to_pylist()
        [{'user': 'ann', 'spent': 1.5}]
        """
        return self._gathered(workers, on).to_arrow()

    def to_polars(self, workers: int | None = None, *, on: Host | None = None) -> polars.DataFrame:
        """Give all rows as a data frame of polars, which has to be installed: `to_arrow`."""
        return self._gathered(workers, on).to_polars()

    def to_pandas(self, workers: int | None = None, *, on: Host | None = None) -> pandas.DataFrame:
        """Give all rows as a data frame of pandas, which has to be installed, and pyarrow too: `to_arrow`."""
        return self._gathered(workers, on).to_pandas()

    def _gathered(self, workers: int | None, on: Host | None) -> CollectedRows:
        gathered = CollectedRows(self._schema)
        with self.execute_and_collect(workers, on=on) as batches:
            gathered._restart().extend(batches)
        return gathered

    def _collect_into(self, dataflow: Dataflow, prepare: Callable[[], object]) -> None:
        settings: spec.RowsKind = {"collect": {"input": self._schema.planned()}}
        dataflow.add({"rows": settings}, name="collect", inputs=self._origins, **collecting(prepare))
