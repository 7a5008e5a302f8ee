"""The records of a stream as they come, to whoever iterates: `Stream.execute_and_collect`."""

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
    """Batches on their way from a task of this process to whoever iterates.

    Few fit in, so a task that has more waits, and the job with it. It does not wait for somebody who has left, nor when
    its job is to end.
    """

    def __init__(self) -> None:
        self._waiting = deque[B]()
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_ending: Callable[[], bool] = lambda: False

    def belong_to(self, job: Job) -> None:
        """Say whose records these are."""
        self._is_ending = lambda: job.status().state in _ENDING

    def extend(self, batch: B) -> None:
        """Put a batch in; called by the task."""
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
        """Take the next batch out; none if there is none, for a while if it waits."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, _LOOK_SECONDS if waits else 0):
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def close(self) -> None:
        """Whoever iterated has left: what comes now is passed over."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()


class Batches(Generic[B]):
    """The batches of a job that runs meanwhile, once each, for who iterates over them or over what is in them."""

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
        """The job, to watch and to cancel."""
        return self._job

    @property
    def result(self) -> JobResult | None:
        """What the job came to, once the iteration has got to its end; None before."""
        return self._result

    def _next_batch(self) -> B:
        """Wait for the next one, as `Results.__next__` does for the next record."""
        while True:
            # At the end of the job all there will be is there.
            batch = self._handover.take(waits=self._result is None)
            if batch is not None:
                return batch
            if self._result is not None:
                raise StopIteration
            self._result = self._job._result_so_far()

    def close(self) -> None:
        """End the job if it still runs, and wait until nothing of it is left. Harmless when called again."""
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
    """Result of ``Stream.execute_and_collect()``: an iterator over the records of a job that runs meanwhile.

    The job is as fast as the records are taken: some thousands of them wait in this process, at most, and what the job
    has room for. Leaving its ``with`` block ends the job, and so does forgetting it.
    """

    def __init__(self, start: Callable[[HandOver[list[T]]], Job]) -> None:
        super().__init__(start)
        self._records: Iterator[T] = iter(())

    def __next__(self) -> T:
        """Wait for the next record.

        Raises
        ------
        StopIteration
            The job has ended well, and all of its records were taken.
        FlownetError
            What ended the job, behind the records that had come before: see `flownet.errors`.
        """
        while True:
            for record in self._records:
                return record
            self._records = iter(self._next_batch())


def collecting(prepare: Callable[[], object]) -> dict[str, Any]:
    """Describe the operator that brings records to what `prepare` gives, in this process."""
    return {"prepare": prepare, "parallelism": 1, "is_parallel": False, "on_driver": True}


def _leave(handover: HandOver[Any], job: Job) -> None:
    handover.close()
    job.cancel()
