"""What every peer offers: cases of a workload, each of which can be run once and gives samples for its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Unavailable(Exception):
    """A peer cannot be run here; the text says what is missing."""


class Workload(Enum):
    """The work that is compared; the value is its name on the command line."""

    EXCHANGE = "exchange"
    CHANNELS_100 = "channels-100"
    CHANNELS_1000 = "channels-1000"
    CHANNELS_1000_1MS = "channels-1000-1ms"
    SKEWED = "skewed"
    BROADCAST = "broadcast"
    BULK = "bulk"
    LATENCY = "latency"
    OBJECTS = "objects"
    WORDS = "words"

    @property
    def title(self) -> str:
        """What the work is."""
        return _TITLES[self]

    @property
    def unit(self) -> str:
        """What `Sample.value` counts."""
        return {Workload.BULK: "bytes/s", Workload.LATENCY: "us", Workload.WORDS: "words/s"}.get(self, "records/s")

    @property
    def item(self) -> str:
        """What CPU time is counted by."""
        return {Workload.BULK: "payload", Workload.WORDS: "word"}.get(self, "record")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    peer: str
    """Name of the system."""
    name: str
    """Which of its ways to do the work."""
    includes: str
    """Process layout, serialisation, and what the clock covers. The reader judges the figure by this."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run, for one row."""

    value: float
    """Records, bytes or words a second; for latency the median in microseconds."""
    cpu_ns_per_record: float | None = None
    peak_rss_mb: float | None = None
    percentiles_us: tuple[float, float, float] | None = None
    """p50, p99, p99.9 of a latency run."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run is."""

    is_smoke: bool

    def pick(self, full: int, smoke: int) -> int:
        """Choose a size."""
        return smoke if self.is_smoke else full


Run = Callable[[Scale], Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Case:
    """What one run yields: usually one row, two where a program measures a twin in the same call."""

    workload: Workload
    rows: tuple[Row, ...]
    run: Run


@dataclass(frozen=True, slots=True)
class Peer:
    """A system to compare."""

    name: str
    """Name on the command line."""
    prepare: Callable[[], str]
    """Installs and compiles what is missing and returns the versions, or raises `Unavailable`."""
    cases: tuple[Case, ...]


HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
REFERENCE = "flownet"
"""The peer that all others are compared with."""

_TITLES = {
    Workload.EXCHANGE: "8-byte records, one channel, two processes",
    Workload.CHANNELS_100: "8-byte records, 4 writers with 100 channels each, timeout 100 ms",
    Workload.CHANNELS_1000: "8-byte records, 4 writers with 1000 channels each, timeout 100 ms",
    Workload.CHANNELS_1000_1MS: "8-byte records, 4 writers with 1000 channels each, timeout 1 ms",
    Workload.SKEWED: "8-byte records, 10 writers with 1000 channels each, nearly all to the first, timeout 1 ms",
    Workload.BROADCAST: "8-byte records, 4 writers to each of their 100 channels, timeout 100 ms; records that arrive",
    Workload.BULK: "32 KiB payloads, one channel, two processes",
    Workload.LATENCY: "one-way latency at 1,000 records/s, flushed at once",
    Workload.OBJECTS: "Python ints: map -> key_by (100 keys) -> reduce, a result per record",
    Workload.WORDS: "word count over the source text of Python's standard library",
}
