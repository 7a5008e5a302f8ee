"""Parts: the operators that scenarios are built of. They run in the workers.

A record is a text of bytes that begins with the number of the subtask it is for, so that one object can serve all
subtasks of a process and each keeps its own pace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ..api.functions import Sink
from ..streams.stream import Stream
from .meters import Meter, Meters
from .pace import Pace, Pacer

RECORD_BYTES: Final = 1000
"""Size of a record."""


def destination(record: bytes) -> int:
    """Subtask that a record is for."""
    return int.from_bytes(record[:2], "big")


def to_destination(record: bytes, subtasks: int) -> int:
    """Partition function: each record to the subtask it is for."""
    return destination(record)


def to_the_same(subtask: int, number: int) -> int:
    """Route of a `Producer` whose subtask *i* writes for subtask *i*."""
    return subtask


@dataclass(frozen=True, slots=True)
class Producer:
    """A source: each subtask offers records at a pace and stops when it ends.

    Parameters
    ----------
    meters
        Of the run.
    tasks
        Name and subtask of the meter of each subtask of the source.
    paces
        Pace of each.
    route
        Given a subtask and the number of a record, from 0: the subtask downstream that it is for.
    """

    meters: Meters
    tasks: tuple[tuple[str, int], ...]
    paces: tuple[Pace, ...]
    route: Callable[[int, int], int]

    def __call__(self, subtask: int, subtasks: int) -> Iterator[bytes]:
        """Offer the records of one subtask."""
        meter = self.meters.of(*self.tasks[subtask])
        pace, padding = self.paces[subtask], bytes(RECORD_BYTES - 2)
        meter.open()
        while meter.clock() < 0:
            time.sleep(0.001)
        pacer, number = Pacer(pace, meter.clock), 0
        while True:
            pacer.work(RECORD_BYTES)
            if meter.clock() >= pace.until:
                return
            yield self.route(subtask, number).to_bytes(2, "big") + padding
            # Back here, so the record is with the exchange.
            meter.give(RECORD_BYTES)
            number += 1


@dataclass(slots=True)
class Consumer:
    """Where records end: takes each, works on it at the pace of its subtask, and passes none on.

    Parameters
    ----------
    meters
        Of the run.
    tasks
        Name and subtask of the meter of each destination.
    paces
        Pace of each.
    """

    meters: Meters
    tasks: tuple[tuple[str, int], ...]
    paces: tuple[Pace, ...]
    _at_work: dict[int, tuple[Meter, Pacer]] = field(default_factory=dict)

    def __call__(self, record: bytes) -> bool:
        """Work on one record."""
        number = destination(record)
        if number not in self._at_work:
            meter = self.meters.of(*self.tasks[number])
            meter.open()
            self._at_work[number] = meter, Pacer(self.paces[number], meter.clock)
        meter, pacer = self._at_work[number]
        meter.take(len(record))
        pacer.work(len(record))
        return False


@dataclass(slots=True)
class Relay:
    """Passes records on as they come, and counts them. For `Stream.map`."""

    meter: Meter

    def __call__(self, record: bytes) -> bytes:
        """Pass one record on."""
        self.meter.take(len(record))
        self.meter.give(len(record))
        return record


class _DiscardSink(Sink[bytes]):
    """The sink behind a `Consumer`, which passes nothing on."""

    def write(self, records: list[bytes]) -> None:
        """Refuse what cannot be."""
        raise AssertionError(f"{len(records)} records have passed a consumer")


def consumed(stream: Stream[bytes], consumer: Consumer, name: str, worker: int) -> None:
    """End a stream in a consumer, in as many subtasks as it has meters.

    A filter, and no sink: that one is handed all records of a batch at once, which would count as in flight until then.
    """
    subtasks = len(consumer.tasks)
    filtered = stream.filter(consumer).name(name).place_on(worker).set_parallelism(subtasks)
    filtered.sink_to(_DiscardSink()).place_on(worker).set_parallelism(subtasks)
