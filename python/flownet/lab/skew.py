"""``skew``: a producer with many channels, one of which gets half of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..internal import plots
from ..internal.units import format_share, format_value
from . import settings
from .controls import CONTROLS, environment, rate_limit
from .experiment import meters, observe
from .pace import Pace
from .parts import RECORD_BYTES, Consumer, Producer, consumed, to_destination
from .result import Figures, Result, pick
from .scenario import Column, Scenario
from .trace import Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True, slots=True)
class HotRoute:
    """Which channel a record is for: the first gets ``share`` of them, the others the rest in turn."""

    channels: int
    share: float

    def __call__(self, subtask: int, number: int) -> int:
        """Choose the channel of a record."""
        others = self.channels - 1
        # Hot when the running share crosses a whole number: spread evenly, the same in every run.
        hot_before, hot_after = int(number * self.share), int((number + 1) * self.share)
        return 0 if hot_after > hot_before else 1 + (number - hot_before) % others


@dataclass(frozen=True)
class Skew(Scenario):
    """One producer in a worker, all consumers in another; each can take the same."""

    name: ClassVar[str] = "skew"
    question: ClassVar[str] = "One of many channels gets half of the records. Who waits for its consumer?"
    controls: ClassVar[tuple[str, ...]] = tuple(CONTROLS)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("hot works", lambda figures: format_share(figures["hot_efficiency"])),
        Column("sent", lambda figures: format_share(figures["sent_ratio"])),
        Column("most in flight", lambda figures: format_value(figures["peak_in_flight_bytes"], "B")),
        Column("dropped", lambda figures: format_value(figures["dropped_bytes"], "B")),
        Column("of the others", lambda figures: format_value(figures["others_dropped_bytes"], "B")),
    )

    channels: int = settings.count(100, "channels", 2, 1000)
    share: float = settings.number(0.5, "share of the records that the hot channel gets", 0.001, 0.999)
    produce: float = settings.rate("2MB/s", "what the producer has to send")
    consume: float = settings.rate("500kB/s", "what each consumer can take")
    buffer: int = settings.size("250kB", "receive buffer of each consumer")
    limit: int = settings.size("2MB", "without bound: memory at which the run is stopped")
    seconds: float = settings.seconds("8s", "how long the producer goes on")

    def check(self) -> None:
        """Require that the hot channel is too much for its consumer, and it alone."""
        hot, other = self.share * self.produce, (1 - self.share) * self.produce / (self.channels - 1)
        require = settings.require
        require(self.consume < hot, "consume", self.consume, f"must be less than the {hot:g} B/s for the hot channel")
        require(self.consume > other, "consume", self.consume, f"must exceed the {other:g} B/s for each other channel")
        require(self.seconds >= 1, "seconds", self.seconds, "must be at least 1")

    def duration(self) -> float:
        """Take the time of the producer; what is left then arrives at once."""
        return self.seconds + 3

    def run(self, trace: Trace) -> None:
        """Run it."""
        trace.sources, trace.sinks = ("producer",), ("hot", "others")
        produce = Pace([(0, self.produce)], self.seconds)
        consume = Pace([(0, self.consume)], self.seconds)
        env = environment(trace.control, receive_buffer=self.buffer, receive_limit=self.limit, segment_size=4096)
        with meters({"producer": 1, "hot": 1, "others": self.channels - 1}) as made:
            route = HotRoute(self.channels, self.share)
            source = Producer(made, (("producer", 0),), (produce,), route)
            tasks = (("hot", 0), *(("others", number) for number in range(self.channels - 1)))
            limit = rate_limit(trace.control, self.consume / self.share)
            sink = Consumer(made, tasks, (consume,) * self.channels)
            produced = env.from_iterable(source, rate_limit=limit).name("producer").place_on(1)
            consumed(produced.partition_custom(to_destination), sink, "consumers", 2)
            observe(env, 2, made, trace, self.seconds, INTERVAL)

    def figures(self, trace: Trace) -> Figures:
        """Find how busy the hot consumer is, how much could be sent, and who lost what."""
        end = trace.end()
        start = end / 4
        last = trace.counts[-1]
        sent = last["producer"].bytes_out
        hot_sent = round(sent / RECORD_BYTES * self.share) * RECORD_BYTES
        dropped = trace.dropped_bytes
        others_dropped = max(0, sent - hot_sent - last["others"].bytes_in) if dropped else 0
        given = trace.given("producer")
        return {
            "hot_efficiency": trace.between(trace.taken("hot"), start, end) / (self.consume * (end - start)),
            "sent_ratio": trace.between(given, start, end) / (self.produce * (end - start)),
            "peak_in_flight_bytes": int(trace.in_flight().max()),
            "dropped_bytes": dropped,
            "others_dropped_bytes": others_dropped,
            "sent_bytes": sent,
            "lost_bytes": None if trace.stopped else trace.lost_bytes(),
            "stopped_after_s": end if trace.stopped else None,
        }

    def verdict(self, figures: Figures) -> str:
        """Say who waits, and who loses."""
        if figures["stopped_after_s"] is not None:
            return f"nobody waits; memory grows until the run is stopped at {figures['stopped_after_s']:.0f} s"
        if figures["dropped_bytes"]:
            of_others = " of its own" if figures["others_dropped_bytes"] < 0.01 * figures["dropped_bytes"] else ""
            return f"nobody waits; the hot channel loses {format_value(figures['dropped_bytes'], 'B')}{of_others}"
        if figures["sent_ratio"] > 0.95:
            return f"nobody waits yet; {format_value(figures['peak_in_flight_bytes'], 'B')} in flight, and growing"
        if figures["hot_efficiency"] > 0.95:
            return "the producer goes as fast as the hot consumer can take its share; nothing lost"
        return f"the hot consumer lacks input {1 - figures['hot_efficiency']:.0%} of the time; nothing lost"

    def finding(self, results: Sequence[Result]) -> str:
        """Say it for the title."""
        credit = pick(results, "credit")
        if credit is None:
            return results[0].verdict[:1].upper() + results[0].verdict[1:]
        figures = credit.figures
        return (
            f"Credit keeps the hot consumer {figures['hot_efficiency']:.0%} at work and the producer at its pace, with "
            f"{format_value(figures['peak_in_flight_bytes'], 'B')} at most in flight"
        )

    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw a row for each control: what arrives where, and what is in flight."""
        panels = picture.grid(
            results,
            self.finding(results),
            f"1 producer, {self.produce / 1e6:g} MB/s; {self.channels} consumers, {self.consume / 1e6:g} MB/s each; "
            f"{self.share:.0%} of the records are for one of them",
            ("taken, MB/s", "in flight, MB"),
        )
        for result, (left, right) in zip(results, panels, strict=True):
            trace = result.trace
            named = [("hot", trace.taken("hot"), plots.ORANGE), ("all others", trace.taken("others"), plots.BLUE)]
            picture.speeds(left, trace, named, 0.3)
            picture.in_flight(right, trace, self.buffer, "buffer of one")


INTERVAL = 0.05
