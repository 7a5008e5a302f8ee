"""Trace: what was sampled in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .meters import Count

Series = NDArray[np.float64]


class Row(NamedTuple):
    """One observation."""

    scenario: str
    control: str
    seconds: float | None
    """Since the beginning of the run; None for what holds for all of it."""
    task: str
    """What was observed; ``flow`` for the whole."""
    measure: str
    """What of it, with the unit: ``in_bytes``, ``out_bytes`` (both since the beginning), ``in_flight_bytes``, ..."""
    value: float


class Engine(NamedTuple):
    """What the engine says of itself at one time, by `Job.sample`: as its workers last reported."""

    dropped_bytes: int
    """Bytes of records dropped so far."""
    queued_bytes: int
    """Bytes in buffers of senders and receivers."""
    resident_bytes: int
    """Memory of all workers that is in RAM."""


@dataclass(slots=True)
class Trace:
    """Samples of one run, while it goes on and afterwards.

    What is in flight is what `sources` have handed over and `sinks` have not taken, without what was dropped.
    """

    scenario: str
    control: str
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    times: list[float] = field(default_factory=list)
    counts: list[dict[str, Count]] = field(default_factory=list)
    engine: list[Engine] = field(default_factory=list)
    until: float = 0.0
    """When the sources stop."""
    stopped: str | None = None
    """Why the engine ended the run before its time, if it did."""
    rows_only: list[Row] = field(default_factory=list)
    """Of scenarios that are not sampled over time."""

    def add(self, seconds: float, counts: dict[str, Count], engine: Engine) -> None:
        """Add a sample."""
        self.times.append(seconds)
        self.counts.append(counts)
        self.engine.append(engine)

    @property
    def seconds(self) -> Series:
        """Times of the samples."""
        return np.array(self.times)

    def taken(self, task: str) -> Series:
        """Tell the bytes that a task has taken, by sample."""
        return np.array([counts[task].bytes_in for counts in self.counts], float)

    def given(self, task: str) -> Series:
        """Tell the bytes that a task has handed on, by sample."""
        return np.array([counts[task].bytes_out for counts in self.counts], float)

    def in_flight(self) -> Series:
        """Tell the bytes between sources and sinks, by sample."""
        given = sum((self.given(task) for task in self.sources), np.zeros(len(self.times)))
        taken = sum((self.taken(task) for task in self.sinks), np.zeros(len(self.times)))
        # A record can be taken a moment before its producer has counted it.
        return np.maximum(given - taken - self.drops(), 0.0)

    def drops(self) -> Series:
        """Tell the bytes dropped, by sample."""
        return np.array([engine.dropped_bytes for engine in self.engine], float)

    @property
    def dropped_bytes(self) -> int:
        """Bytes dropped until the last sample."""
        return self.engine[-1].dropped_bytes

    def lost_bytes(self) -> int:
        """Count the bytes that have neither arrived nor been counted as dropped, after the end."""
        last = self.counts[-1]
        given = sum(last[task].bytes_out for task in self.sources)
        return given - sum(last[task].bytes_in for task in self.sinks) - self.dropped_bytes

    def end(self) -> float:
        """Tell the time of the last sample before the sources stopped: what comes then is not the flow's."""
        times = self.seconds
        return max(float(times[times <= self.until][-1]), 1e-3)

    def between(self, series: Series, start: float, end: float) -> float:
        """Tell by how much a series that only grows grew between two times."""
        first, last = np.interp([start, end], self.seconds, series)
        return float(last - first)

    def rate(self, series: Series, window: float) -> Series:
        """Tell the rate a second of a series that only grows, over the ``window`` seconds around each sample."""
        seconds = self.seconds
        start, end = seconds - window / 2, np.minimum(seconds + window / 2, max(self.end(), window / 2))
        grown = np.interp(end, seconds, series) - np.interp(start, seconds, series)
        rate: Series = grown / np.maximum(end - np.maximum(start, 0.0), window / 2)
        return rate

    def rows(self) -> Iterator[Row]:
        """Give everything, one observation a row."""
        yield from self.rows_only
        in_flight = self.in_flight()
        for position, seconds in enumerate(self.times):

            def row(task: str, measure: str, value: float, seconds: float = seconds) -> Row:
                return Row(self.scenario, self.control, round(seconds, 4), task, measure, value)

            for task, count in self.counts[position].items():
                yield row(task, "in_bytes", count.bytes_in)
                yield row(task, "out_bytes", count.bytes_out)
            yield row("flow", "in_flight_bytes", float(in_flight[position]))
            for measure, value in self.engine[position]._asdict().items():
                yield row("flow", measure, value)
