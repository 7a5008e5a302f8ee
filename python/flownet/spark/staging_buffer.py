"""What one subtask of an inlet takes from Spark: whole partitions of micro-batches, each once.

A task of Spark may fail and be tried again, and a query may stop and repeat its last micro-batch. So rows of a
partition go on to the job only when all of it is here, and a partition that has come is not taken again: (query,
micro-batch, partition) is its name. Until then its bytes lie in a file without a name, which the system takes back
whatever happens.

That needs no memory for large partitions, and no promise that a repeated task gives its rows in the same order, which
Spark does not make behind a shuffle. Passing rows on at once and skipping, in a repetition, as many as were taken would
need that promise.

Invariants
----------
- N1: a partition is passed on once, as a whole.
- N2: `held_bytes` is what the files hold that is not passed on: at most the limit, or beyond it one partition.
- N3: the eldest partition that is not complete may go on when no complete one is left, so waiting always ends.
"""

from __future__ import annotations

import struct
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from ..errors import FlownetError


class Name(NamedTuple):
    """Of a partition."""

    query: str
    batch: int
    partition: int


class Rows(NamedTuple):
    """A part of a partition."""

    name: Name
    payload: bytes


class BatchEnd(NamedTuple):
    """All partitions of a micro-batch have come."""

    query: str
    batch: int


class Attempt:
    """A partition that is coming in."""

    def __init__(self, name: Name) -> None:
        self.name = name
        self.bytes = 0
        # Closed by the intake, when all is passed on or the attempt is given up.
        self.file: IO[bytes] = tempfile.TemporaryFile(prefix="flownet-")  # noqa: SIM115


class StagingBuffer:
    """Partitions between the tasks of a query and the source of a job.

    Parameters
    ----------
    limit_bytes
        Beyond this the tasks wait.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._changed = threading.Condition()
        self._coming = list[Attempt]()
        self._complete = deque[Attempt | BatchEnd]()
        self._newest_end = dict[str, int]()
        self._taken = dict[str, tuple[int, set[int]]]()
        self._held = self._peak = self._waits = self._repeats = 0
        self._waiting = 0
        self._reading: Attempt | None = None
        self._is_closed = False

    def begin(self, name: Name) -> Attempt | None:
        """Start to take a partition; None if it has been taken.

        Raises
        ------
        FlownetError
            The inlet was closed.
        """
        with self._changed:
            if self._is_taken(name):
                self._repeats += 1
                return None
            self._check_open()
            attempt = Attempt(name)
            self._coming.append(attempt)
            return attempt

    def add(self, attempt: Attempt, payload: bytes) -> None:
        """Take a part of a partition; waits while there is no room.

        Raises
        ------
        FlownetError
            The inlet was closed.
        """
        with self._changed:
            if not self._has_room(attempt, len(payload)):
                self._waits += 1
                self._waiting += 1
                self._changed.wait_for(lambda: self._is_closed or self._has_room(attempt, len(payload)))
                self._waiting -= 1
            self._check_open()
            attempt.bytes += len(payload)
            self._held += len(payload)
            self._peak = max(self._peak, self._held)
        # The file is the attempt's own until it is complete.
        attempt.file.write(_LENGTH.pack(len(payload)) + payload)

    def complete(self, attempt: Attempt) -> bool:
        """Pass the partition on; False if another attempt did so before.

        Raises
        ------
        FlownetError
            The inlet was closed.
        """
        attempt.file.flush()
        with self._changed:
            if self._is_taken(attempt.name):
                self._repeats += 1
                self._drop(attempt)
                return False
            self._check_open()
            newest, partitions = self._taken.get(attempt.name.query, (-1, set[int]()))
            if attempt.name.batch > newest:
                newest, partitions = attempt.name.batch, set[int]()
            partitions.add(attempt.name.partition)
            self._taken[attempt.name.query] = newest, partitions
            self._coming.remove(attempt)
            self._complete.append(attempt)
            self._changed.notify_all()
            return True

    def end_batch(self, end: BatchEnd) -> None:
        """Note that all partitions of a micro-batch have come, here and elsewhere; once, if it is said again."""
        with self._changed:
            if end.batch > self._newest_end.get(end.query, -1):
                self._newest_end[end.query] = end.batch
                self._complete.append(end)
                self._changed.notify_all()

    def give_up(self, attempt: Attempt) -> None:
        """Forget a partition whose sender is gone."""
        with self._changed:
            self._drop(attempt)

    def events(self) -> Iterator[Rows | BatchEnd]:
        """Yield complete partitions in parts, and the ends of micro-batches, until the intake is closed and empty."""
        try:
            while (event := self._next()) is not None:
                if isinstance(event, BatchEnd):
                    yield event
                    continue
                event.file.seek(0)
                while length := event.file.read(_LENGTH.size):
                    payload = event.file.read(_LENGTH.unpack(length)[0])
                    yield Rows(event.name, payload)
                    self._pass_on(event, len(payload))
                self._finish(event)
        finally:
            if self._reading is not None:
                self._finish(self._reading)

    def close(self) -> None:
        """Take nothing more. What is complete is passed on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def status(self) -> dict[str, Any]:
        """Count what is here."""
        with self._changed:
            return {
                "held_bytes": self._held,
                "peak_bytes": self._peak,
                "limit_bytes": self._limit,
                "waits": self._waits,
                "is_waiting": self._waiting > 0,
                "repeats": self._repeats,
            }

    def discard(self) -> None:
        """Close, and forget everything."""
        self.close()
        with self._changed:
            for event in [*self._coming, *self._complete]:
                if isinstance(event, Attempt):
                    self._drop(event)
            self._complete.clear()

    def _next(self) -> Attempt | BatchEnd | None:
        with self._changed:
            self._changed.wait_for(lambda: self._complete or self._is_closed)
            event = self._complete.popleft() if self._complete else None
            self._reading = event if isinstance(event, Attempt) else None
            return event

    def _pass_on(self, attempt: Attempt, size: int) -> None:
        with self._changed:
            attempt.bytes -= size
            self._held -= size
            self._changed.notify_all()

    def _finish(self, attempt: Attempt) -> None:
        with self._changed:
            self._reading = None
            self._drop(attempt)

    def _drop(self, attempt: Attempt) -> None:
        if attempt in self._coming:
            self._coming.remove(attempt)
        if attempt in self._complete:
            self._complete.remove(attempt)
        self._held -= attempt.bytes
        attempt.bytes = 0
        attempt.file.close()
        assert self._held >= 0, "N2"
        self._changed.notify_all()

    def _is_taken(self, name: Name) -> bool:
        # Spark begins a micro-batch when every partition of the one before was taken; who comes later is a straggler.
        newest, partitions = self._taken.get(name.query, (-1, set[int]()))
        return name.batch < newest or (name.batch == newest and name.partition in partitions)

    def _has_room(self, attempt: Attempt, size: int) -> bool:
        is_eldest = bool(self._coming) and self._coming[0] is attempt
        return self._held + size <= self._limit or (is_eldest and not self._complete and self._reading is None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise FlownetError("the inlet is closed: its job takes no more rows")


_LENGTH = struct.Struct("!I")
