"""`Results`, the iterator of `Stream.execute_and_collect` over the records of a running job."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from ..api.job import Job
    from ..observation.report import JobResult

T = TypeVar("T")
B = TypeVar("B")

_MOST_WAITING = 4
"""Batches that wait for who iterates: enough that neither side waits for the other, and few records in memory."""

_LOOK_SECONDS = 0.05
"""How often who waits looks whether the job still runs."""

_ENDING = frozenset({"failing", "cancelling", "ended"})
"""States of a job in which nobody wants its records any more."""


class HandOver(Generic[B]):
    """A bounded queue of batches from a task of this process to an iterator.

    If the queue is full, the task waits, and so does the job. It does not wait if the iterator was closed or its job is
    ending.
    """

    def __init__(self) -> None:
        self._waiting = deque[B]()
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_ending: Callable[[], bool] = lambda: False

    def belong_to(self, job: Job) -> None:
        """Set the job that the batches belong to."""
        self._is_ending = lambda: job.status().state in _ENDING

    def extend(self, batch: B) -> None:
        """Add a batch. Called by the task."""
        while not self._put(batch):
            # Asked without the lock: the answer takes one of the job's.
            if self._is_ending():
                return

    append = extend

    def _put(self, batch: B) -> bool:
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._is_closed or len(self._waiting) < _MOST_WAITING, _LOOK_SECONDS
            )
            if has_room and not self._is_closed:
                self._waiting.append(batch)
                self._changed.notify_all()
            return has_room

    def take(self, *, waits: bool) -> B | None:
        """Remove and return the next batch; None if there is none, after a short wait if ``waits``."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, _LOOK_SECONDS if waits else 0):
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def close(self) -> None:
        """Close the queue. Later batches are dropped."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()


class Batches(Generic[B]):
    """The batches of a running job. Base of iterators over batches or records, which return each one once."""

    def __init__(self, start: Callable[[HandOver[B]], Job]) -> None:
        handover = HandOver[B]()
        self._handover = handover
        self._job = start(handover)
        handover.belong_to(self._job)
        self._result: JobResult | None = None
        # One that is forgotten must not keep a job waiting for ever.
        weakref.finalize(self, _leave, handover, self._job)

    @property
    def job(self) -> Job:
        """The job, which you can observe and cancel."""
        return self._job

    @property
    def result(self) -> JobResult | None:
        """The job's result after the end of the iteration; None before."""
        return self._result

    def _next_batch(self) -> B:
        """Wait for the next batch, as `Results.__next__` does for the next record."""
        while True:
            # At the end of the job all there will be is there.
            batch = self._handover.take(waits=self._result is None)
            if batch is not None:
                return batch
            if self._result is not None:
                raise StopIteration
            self._result = self._job._result_so_far()

    def close(self) -> None:
        """Stop the job if it still runs, and wait until it is gone. You may call it again."""
        self._handover.close()
        self._job.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._job!r}>"


class Results(Batches[list[T]], Iterator[T]):
    """Result of `Stream.execute_and_collect`, an iterator over the records of a running job.

    If you do not take records, the job waits. At most some thousands of records wait in this process, and others in the
    buffers of the job. The job ends when you leave the ``with`` block, or when the iterator is garbage collected.
    """

    def __init__(self, start: Callable[[HandOver[list[T]]], Job]) -> None:
        super().__init__(start)
        self._records: Iterator[T] = iter(())

    def __next__(self) -> T:
        """Wait for the next record.

        Raises
        ------
        StopIteration
            The job has succeeded, and you have taken all of its records.
        FlownetError
            The job has failed, and you have taken all records that arrived before. See `flownet.errors`.
        """
        while True:
            for record in self._records:
                return record
            self._records = iter(self._next_batch())


def collecting(prepare: Callable[[], object]) -> dict[str, Any]:
    """Describe an operator in this process that sends records to the object that `prepare` returns."""
    return {"prepare": prepare, "parallelism": 1, "is_parallel": False, "on_driver": True}


def _leave(handover: HandOver[Any], job: Job) -> None:
    handover.close()
    job.cancel()
