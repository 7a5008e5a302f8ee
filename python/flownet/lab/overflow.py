"""``overflow``: a producer twice as fast as its consumer, and a receive buffer between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..internal import plots
from ..internal.units import format_number, format_value
from . import settings
from .controls import CONTROLS, SEGMENT_BYTES, environment, rate_limit
from .experiment import meters, observe
from .pace import Pace
from .parts import Consumer, Producer, consumed, to_the_same
from .result import Figures, Result, pick
from .scenario import Column, Scenario
from .trace import Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True)
class Overflow(Scenario):
    """Producer and consumer in two workers; late in the run the consumer becomes slower still."""

    name: ClassVar[str] = "overflow"
    question: ClassVar[str] = "A producer is faster than its consumer. What happens when the receive buffer is full?"
    controls: ClassVar[tuple[str, ...]] = tuple(CONTROLS)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("full after", lambda figures: format_value(figures["time_to_full_s"], "s")),
        Column("most in flight", lambda figures: format_value(figures["peak_in_flight_bytes"], "B")),
        Column("dropped", lambda figures: format_value(figures["dropped_bytes"], "B")),
        Column("source/consumer", lambda figures: format_number(figures["settled_rate_ratio"])),
        Column("when slower", lambda figures: format_number(figures["slow_rate_ratio"])),
    )

    produce: float = settings.rate("2MB/s", "speed of the producer")
    consume: float = settings.rate("1MB/s", "speed of the consumer")
    slow: float = settings.rate("250kB/s", "speed of the consumer in the end")
    buffer: int = settings.size("5MB", "receive buffer")
    limit: int = settings.size("12MB", "without bound: memory at which the run is stopped")
    change: float = settings.seconds("15s", "when the consumer becomes slower")
    seconds: float = settings.seconds("25s", "how long the producer goes on")

    def check(self) -> None:
        """Require that something overflows, and before the consumer changes."""
        require = settings.require
        require(self.produce > self.consume, "produce", self.produce, "must exceed consume: nothing would overflow")
        require(self.slow < self.consume, "slow", self.slow, "must be less than consume")
        require(self.buffer >= 4 * SEGMENT_BYTES, "buffer", self.buffer, f"must be at least {4 * SEGMENT_BYTES} bytes")
        require(self.limit > self.buffer, "limit", self.limit, "must exceed buffer")
        full = self.buffer / (self.produce - self.consume)
        require(full < self.change, "change", self.change, f"must be after the buffer is full, at {full:.1f} s")
        require(self.change < self.seconds, "seconds", self.seconds, "must be more than change")

    def duration(self) -> float:
        """Take the time of the producer; what is left then arrives at once."""
        return self.seconds + 2

    def run(self, trace: Trace) -> None:
        """Run it."""
        trace.sources, trace.sinks = ("producer",), ("consumer",)
        produce = Pace([(0, self.produce)], self.seconds)
        consume = Pace([(0, self.consume), (self.change, self.slow)], self.seconds)
        # Only full buffers are sent, so that the receive buffer holds as many bytes as its size says.
        env = environment(trace.control, receive_buffer=self.buffer, receive_limit=self.limit, buffer_timeout=None)
        with meters({"producer": 1, "consumer": 1}) as made:
            source = Producer(made, (("producer", 0),), (produce,), to_the_same)
            sink = Consumer(made, (("consumer", 0),), (consume,))
            limit = rate_limit(trace.control, self.consume)
            produced = env.from_iterable(source, rate_limit=limit).name("producer").place_on(1)
            consumed(produced, sink, "consumer", 2)
            observe(env, 2, made, trace, self.seconds, INTERVAL)

    def figures(self, trace: Trace) -> Figures:
        """Find when it is full, what is lost, and where the source's speed settles."""
        in_flight, seconds = trace.in_flight(), trace.seconds
        full = np.flatnonzero(in_flight >= 0.98 * self.buffer)
        given, taken, dropped = trace.given("producer"), trace.taken("consumer"), trace.drops()
        filled = self.buffer / (self.produce - self.consume)
        # The first half of the time after the buffer is full is for finding a balance.
        settled = (filled + (self.change - filled) / 2, self.change)
        slow = (self.change + (self.seconds - self.change) / 2, trace.end())

        def share(start: float, end: float) -> float | None:
            if trace.stopped and seconds[-1] <= end:
                return None  # The run was stopped before.
            return trace.between(given, start, end) / max(trace.between(taken, start, end), 1.0)

        steady = (seconds >= settled[0]) & (seconds <= settled[1])
        speed = trace.rate(given, 1.0)[steady]
        return {
            "time_to_full_s": float(seconds[full[0]]) if full.size else None,
            "dropped_bytes": int(dropped[-1]),
            "dropped_before_change_bytes": int(np.interp(self.change, seconds, dropped)),
            "settled_rate_ratio": share(*settled),
            "slow_rate_ratio": share(*slow),
            "unevenness": float(speed.std() / max(speed.mean(), 1.0)) if speed.size else None,
            "peak_in_flight_bytes": int(in_flight.max()),
            "sent_bytes": int(given[-1]),
            "lost_bytes": None if trace.stopped else trace.lost_bytes(),
            "stopped_after_s": float(seconds[-1]) if trace.stopped else None,
        }

    def verdict(self, figures: Figures) -> str:
        """Say what became of the bytes."""
        dropped, sent = figures["dropped_bytes"], figures["sent_bytes"]
        if figures["stopped_after_s"] is not None:
            return f"memory grows until the run is stopped at {figures['stopped_after_s']:.0f} s"
        if figures["dropped_before_change_bytes"]:
            return f"loses {dropped / sent:.0%} of what is sent"
        if dropped:
            return f"fine until the consumer slows down; then {format_value(dropped, 'B')} are lost"
        if (figures["unevenness"] or 0.0) > 0.3:
            return "nothing lost; the source stops and goes"
        if figures["settled_rate_ratio"] < 1.1:
            return "nothing lost; the source goes at the consumer's speed"
        return "nothing lost yet; the source is still too fast"

    def finding(self, results: Sequence[Result]) -> str:
        """Say it for the title."""
        credit, others = pick(results, "credit"), [result for result in results if result.figures["dropped_bytes"]]
        parts = []
        if credit:
            most = format_value(credit.figures["peak_in_flight_bytes"], "B")
            parts.append(f"Credit holds {most} at most and loses nothing")
        if others:
            worst = max(others, key=lambda result: result.figures["dropped_bytes"])
            parts.append(f"{worst.control} loses {format_value(worst.figures['dropped_bytes'], 'B')}")
        return "; ".join(parts) or results[0].verdict

    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw a row for each control: what is between the two, and how fast they are."""
        panels = picture.grid(
            results,
            self.finding(results),
            f"producer {self.produce / 1e6:g} MB/s, consumer {self.consume / 1e6:g} MB/s and from {self.change:g} s "
            f"{self.slow / 1e6:g} MB/s, receive buffer {self.buffer / 1e6:g} MB",
            ("in flight, MB", "speed, MB/s"),
        )
        for result, (left, right) in zip(results, panels, strict=True):
            picture.in_flight(left, result.trace, self.buffer, "receive buffer")
            producer, consumer = result.trace.given("producer"), result.trace.taken("consumer")
            named = [("producer", producer, plots.ORANGE), ("consumer", consumer, plots.GREEN)]
            picture.speeds(right, result.trace, named, 0.5)
            picture.moment(left, self.change)
            picture.moment(right, self.change, "consumer slower")


INTERVAL = 0.05
