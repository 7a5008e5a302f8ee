"""The door between a Spark task and the operators of the worker in it: Arrow batches in, Arrow batches out.

The operators run in threads of the process that Spark made for the task, so they find the door as a global of it. Both
ways are back-pressured: input is pulled from Spark as the source needs it, and a sink waits while Spark has not taken
what it gave before.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow

from ..errors import FlownetError
from .column_types import has_maps
from .shared_input import SharedInput


class TaskBridge:
    """Input and output of one Spark task.

    Parameters
    ----------
    batches
        What Spark hands to the task.
    is_packed
        Whether these are the rows of several DataFrames, or of one that was dealt out to the workers.
    """

    def __init__(self, batches: Iterator[pyarrow.RecordBatch], is_packed: bool) -> None:
        self._batches = batches
        self._shared = SharedInput(batches) if is_packed else None
        self._results = queue.Queue[tuple[int, pyarrow.RecordBatch]](_MAX_QUEUED)
        self._is_shut = threading.Event()

    def batches(self, source: int) -> Iterator[pyarrow.RecordBatch]:
        """Read the input of a source as it is."""
        return self._batches if self._shared is None else self._shared.batches(source)

    def records(self, source: int, as_dicts: bool) -> Iterable[Any]:
        """Read the rows of a source's input, converted a batch at a time: tuples, or dicts by column name."""
        return chain.from_iterable(rows_of(batch, as_dicts) for batch in self.batches(source))

    def give(self, result: int, batch: pyarrow.RecordBatch) -> None:
        """Hand a batch of a result to Spark; waits while it is busy with earlier ones.

        Raises
        ------
        FlownetError
            Spark takes no more: the task is ending.
        """
        while not self._is_shut.is_set():
            try:
                return self._results.put((result, batch), timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
        raise FlownetError("Spark ended the task that takes the results")

    def results(self, worker: threading.Thread) -> Iterator[tuple[int, pyarrow.RecordBatch]]:
        """Yield what the sinks give, until the worker has ended and all is out."""
        try:
            while worker.is_alive() or not self._results.empty():
                try:
                    yield self._results.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
        finally:
            self._is_shut.set()
            if self._shared is not None:
                self._shared.close()


def rows_of(batch: pyarrow.RecordBatch, as_dicts: bool) -> Iterable[Any]:
    """Return the rows of a batch: tuples, or dicts by column name."""
    columns = [_values_of(column) for column in batch.columns]
    if as_dicts:
        names = batch.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return zip(*columns, strict=True)


def _values_of(column: pyarrow.Array) -> list[Any]:
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict") if has_maps(column.type) else column.to_pylist()
    return values


def hang(door: TaskBridge) -> None:
    """Make this the door of the process."""
    global _door
    _door = door


def the_door() -> TaskBridge:
    """Return the door of this process.

    Raises
    ------
    FlownetError
        The process is no task of Spark that brings or takes rows.
    """
    if _door is None:
        raise FlownetError("this worker is not in a Spark task that has a DataFrame for it")
    return _door


_door: TaskBridge | None = None
_MAX_QUEUED = 4
"""Batches that wait for Spark, beyond which sinks wait."""
_LOOK_SECONDS = 0.05
