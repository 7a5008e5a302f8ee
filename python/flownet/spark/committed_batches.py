"""What one subtask of an outlet holds for Spark: numbered batches, kept until Spark has committed them.

Structured Streaming asks for the newest number, reads a range as often as it likes, and commits. It commits the range
of a micro-batch only when it begins the next, and begins one only when the number has moved. So that a full shelf, or
the last one of a job, does not wait for a micro-batch that waits for it, the number then moves without a batch.

Records come one at a time, and a batch of one would cost a kilobyte and Spark more than that. So they are gathered, and
made a batch when they are many or when Spark asks what is there.

Invariants
----------
- S1: numbers below `first` are committed and gone; those from `first` to below `next` give the same rows every time.
- S2: `held_bytes` is the sum of the batches on the shelf, at most the limit, or one batch that alone is larger.
- S3: whoever waits is woken by a commit or by the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow

from ..errors import FlownetError


class CommittedBatches:
    """Batches between a job that writes and a query that reads.

    Parameters
    ----------
    limit_bytes
        Beyond this the writer waits.
    to_batch
        Makes a batch of records; raises `TypeError` if one does not fit.
    """

    def __init__(self, limit_bytes: int, to_batch: Callable[[list[Any]], pyarrow.RecordBatch]) -> None:
        self._limit = limit_bytes
        self._to_batch = to_batch
        self._gathered = list[Any]()
        self._changed = threading.Condition()
        self._batches = dict[int, pyarrow.RecordBatch]()
        self._first = self._next = self._told = self._data = 0
        self._held = self._peak = self._waits = 0
        self._is_waiting = self._is_ended = self._is_end_known = False
        self._closed: str | None = None

    def put(self, records: list[Any]) -> None:
        """Add records; waits while there is no room for the batch that they fill.

        Raises
        ------
        FlownetError
            The shelf was closed.
        TypeError
            A record does not fit.
        """
        with self._changed:
            self._check_open()
            self._gathered += records
            while len(self._gathered) >= _ROWS_PER_BATCH:
                self._wait_and_add()

    def finish(self) -> tuple[int, int]:
        """Wait until Spark has committed everything and knows that nothing follows.

        Returns the next number, and the one behind the last batch.

        Raises
        ------
        FlownetError
            The shelf was closed before.
        TypeError
            A record does not fit.
        """
        with self._changed:
            if self._gathered:
                self._wait_and_add()
            self._is_ended = True
            self._changed.wait_for(lambda: self._closed is not None or self._is_end_known)
            if not self._is_end_known:
                self._check_open()
            return self._next, self._data

    def latest(self) -> int:
        """Return the number behind the newest batch; moves it without one where a commit has to be brought about.

        Raises
        ------
        FlownetError
            A record of the job does not fit.
        """
        with self._changed:
            if self._gathered and not self._is_waiting:
                self._add_what_fits()
            is_full = bool(self._gathered)
            if self._told == self._next and self._batches and (is_full or self._is_ended):
                self._next += 1
            self._told = self._next
            return self._told

    def final(self) -> tuple[int, int] | None:
        """Return what `finish` does if nothing follows; whoever asks then knows, and the job may end."""
        with self._changed:
            if not self._is_ended or self._batches:
                return None
            self._is_end_known = True
            self._changed.notify_all()
            return self._next, self._data

    def read(self, start: int, end: int) -> tuple[pyarrow.RecordBatch | None, int]:
        """Return the first rows of a range of numbers, as one batch, and the number to go on from.

        Raises
        ------
        FlownetError
            Part of the range is committed and gone, or has never been.
        """
        with self._changed:
            self._check_range(start, end)
            found = list[pyarrow.RecordBatch]()
            rows = size = 0
            while start < end and rows < _ROWS_PER_READ and size < _BYTES_PER_READ:
                if (batch := self._batches.get(start)) is not None:
                    found.append(batch)
                    rows += batch.num_rows
                    size += batch.nbytes
                start += 1
        if len(found) < 2:
            return (found[0] if found else None), start
        [joined] = pyarrow.Table.from_batches(found).combine_chunks().to_batches()
        return joined, start

    def has_rows(self, start: int, end: int) -> bool:
        """Whether there are batches in a range. Raises as `read` does."""
        with self._changed:
            self._check_range(start, end)
            return any(number in self._batches for number in range(start, end))

    def commit(self, end: int) -> None:
        """Forget what is below ``end``.

        Raises
        ------
        FlownetError
            There has never been as much.
        """
        with self._changed:
            if end > self._next:
                raise FlownetError(f"commit up to batch {end}, but the newest is {self._next}")
            for number in range(self._first, end):
                if (batch := self._batches.pop(number, None)) is not None:
                    self._held -= batch.nbytes
            self._first = max(self._first, end)
            self._assert_invariants()
            self._changed.notify_all()

    def close(self, reason: str) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def status(self) -> dict[str, Any]:
        """Count what is here."""
        with self._changed:
            return {
                "held_bytes": self._held,
                "peak_bytes": self._peak,
                "limit_bytes": self._limit,
                "waits": self._waits,
                "is_waiting": self._is_waiting,
            }

    def _wait_and_add(self) -> None:
        """Make a batch of what is gathered, at most a full one. What is gathered stays so until there is room."""
        batch = self._to_batch(self._gathered[:_ROWS_PER_BATCH])
        if not self._has_room(batch.nbytes):
            self._waits += 1
            self._is_waiting = True
            self._changed.wait_for(lambda: self._closed is not None or self._has_room(batch.nbytes))
            self._is_waiting = False
        self._check_open()
        self._add(batch)

    def _add_what_fits(self) -> None:
        try:
            batch = self._to_batch(self._gathered)
        except TypeError as error:
            # The job learns it too, with the next record or at its end.
            raise FlownetError(str(error)) from error
        if self._has_room(batch.nbytes):
            self._add(batch)

    def _add(self, batch: pyarrow.RecordBatch) -> None:
        del self._gathered[: batch.num_rows]
        self._batches[self._next] = batch
        self._next += 1
        self._data = self._next
        self._held += batch.nbytes
        self._peak = max(self._peak, self._held)
        self._assert_invariants()

    def _has_room(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self._limit

    def _check_open(self) -> None:
        if self._closed is not None:
            raise FlownetError(self._closed)

    def _check_range(self, start: int, end: int) -> None:
        if start < self._first and start < end:
            raise FlownetError(
                f"batches {start} to {end - 1} are asked for, but Spark has committed those below {self._first} and "
                "they are gone: the checkpoint is older than what the job has given, so rows would be missing"
            )
        if end > self._next:
            raise FlownetError(f"batches {start} to {end - 1} are asked for, but the newest is {self._next - 1}")

    def _assert_invariants(self) -> None:
        assert self._first <= self._next, "S1"
        assert self._held <= self._limit or len(self._batches) <= 1, "S2"


_ROWS_PER_BATCH = 8192
_ROWS_PER_READ = 8192
_BYTES_PER_READ = 4 << 20
