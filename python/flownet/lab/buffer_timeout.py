"""``buffer-timeout``: how long a record may wait for its buffer to fill, and what that buys.

The exchange is measured by the machinery of ``flownet bench``: throughput with many channels, where a buffer fills
slowly, and latency at a steady rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, ClassVar

from .. import bench
from ..internal import plots
from ..internal.units import format_value
from . import settings
from .result import Figures, Result
from .scenario import Column, Scenario
from .trace import Row, Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True)
class BufferTimeout(Scenario):
    """One run of both benches for each timeout."""

    name: ClassVar[str] = "buffer-timeout"
    question: ClassVar[str] = "How long may a record wait for its buffer to fill, and what does waiting buy?"
    controls: ClassVar[tuple[str, ...]] = ("credit",)
    columns: ClassVar[tuple[Column, ...]] = ()

    channels: int = settings.count(400, "channels of the writer, for the throughput", 1, 4000)
    rate: int = settings.count(20000, "records a second over one channel, for the latency", 1, 1_000_000)
    rounds: int = settings.count(3, "how often each is measured; the median counts", 1, 100)
    seconds: float = settings.seconds("1s", "length of each measurement")

    def check(self) -> None:
        """Refuse measurements of no length."""
        settings.require(self.seconds >= 0.05, "seconds", self.seconds, "must be at least 0.05")

    def duration(self) -> float:
        """Count both measurements, and what it takes to find the number of records."""
        return len(TIMEOUTS_MS) * self.rounds * (2 * self.seconds + 0.5)

    def run(self, trace: Trace) -> None:
        """Measure each timeout, then again: what else happens on the machine meets all alike."""
        records = dict.fromkeys(TIMEOUTS_MS, _FIRST_RECORDS)
        for number in range(1, self.rounds + 1):
            for timeout_ms in TIMEOUTS_MS:
                records[timeout_ms], rate = self._throughput(timeout_ms, records[timeout_ms])
                for measure, value in {"records_per_s": rate, **self._latency(timeout_ms)}.items():
                    task = f"{_label(timeout_ms)}, round {number}"
                    trace.rows_only.append(Row(self.name, trace.control, None, task, measure, value))

    def figures(self, trace: Trace) -> Figures:
        """List each measure by timeout in milliseconds; -1 sends full buffers only."""
        found: dict[str, dict[str, list[float]]] = {"records_per_s": {}, "p50_us": {}, "p99_us": {}}
        keys = {_label(timeout_ms): str(timeout_ms) for timeout_ms in TIMEOUTS_MS}
        for row in trace.rows_only:
            found[row.measure].setdefault(keys[row.task.partition(",")[0]], []).append(row.value)
        return {measure: {key: median(values) for key, values in by.items()} for measure, by in found.items()}

    def verdict(self, figures: Figures) -> str:
        """Say what the ends of the curve are, and the middle."""
        rates, halves = figures["records_per_s"], figures["p50_us"]
        kept, least = rates["10"] / rates["-1"], rates["0"] / rates["-1"]
        return (
            f"10 ms keeps {kept:.0%} of the throughput at {format_value(halves['10'], 'us')} (p50); "
            f"0 ms {least:.0%} at {format_value(halves['0'], 'us')}"
        )

    def finding(self, results: Sequence[Result]) -> str:
        """Say it for the title."""
        return "A buffer timeout of " + results[0].verdict

    def table(self, results: Sequence[Result]) -> list[list[str]]:
        """Write a row for each timeout."""
        figures = results[0].figures
        rows = [["timeout", "throughput", "latency p50", "latency p99"]]
        for timeout_ms in TIMEOUTS_MS:
            rate, half, most = (figures[measure][str(timeout_ms)] for measure in figures)
            latencies = (format_value(microseconds, "us") for microseconds in (half, most))
            rows.append([_label(timeout_ms), format_value(rate, "/s"), *latencies])
        return rows

    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw the trade-off: latency across, throughput up, a point a timeout."""
        figures = results[0].figures
        axes = picture.single(
            self.finding(results),
            f"two processes; throughput: 1 writer, {self.channels} channels, records of 8 bytes; latency: "
            f"{self.rate:,} records/s over one channel; medians of {self.rounds}",
            "throughput, million records/s",
        )
        keys = [str(timeout_ms) for timeout_ms in TIMEOUTS_MS]
        rates = [figures["records_per_s"][key] / 1e6 for key in keys]
        halves, most = ([figures[measure][key] / 1e3 for key in keys] for measure in ("p50_us", "p99_us"))
        plots.logarithmic(axes, axes.xaxis)
        axes.hlines(rates, halves, most, color=plots.SKY, linewidth=3, alpha=0.6)
        axes.plot(halves, rates, color=plots.BLUE, linewidth=1.2, marker="o", markersize=7)
        axes.plot(most, rates, color=plots.BLUE, linewidth=0, marker="|", markersize=9)
        for timeout_ms, half, rate in zip(TIMEOUTS_MS, halves, rates, strict=True):
            axes.annotate(_label(timeout_ms), (half, rate), (-4, 6), textcoords="offset points", ha="right", size=9)
        axes.set_ylim(0, max(rates) * 1.25)
        axes.set_xlabel("latency, ms: the point is the median, the bar ends at the 99th percentile")

    def _throughput(self, timeout_ms: int, records: int) -> tuple[int, float]:
        """Measure with so many records or more, as long as it takes; return their number and the rate."""
        while True:
            given = {"channels": self.channels, "records": records, "buffer_timeout_us": _microseconds(timeout_ms)}
            rate = float(bench.run("exchange", bench.settings("exchange", given))["records_per_s"])
            if records >= 0.4 * rate * self.seconds:
                return records, rate
            records = int(rate * self.seconds)

    def _latency(self, timeout_ms: int) -> dict[str, float]:
        given = {"rate": self.rate, "seconds": self.seconds, "buffer_timeout_us": _microseconds(timeout_ms)}
        run = bench.run("latency", bench.settings("latency", given))
        return {measure: float(run[measure]) for measure in ("p50_us", "p99_us")}


def _microseconds(timeout_ms: int) -> int | None:
    return None if timeout_ms < 0 else timeout_ms * 1000


def _label(timeout_ms: int) -> str:
    return "full only" if timeout_ms < 0 else f"{timeout_ms} ms"


TIMEOUTS_MS = (-1, 100, 10, 5, 1, 0)
_FIRST_RECORDS = 400_000
