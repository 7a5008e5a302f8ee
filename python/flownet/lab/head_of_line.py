"""``head-of-line``: two channels on one connection, and one of the two consumers slows down to a crawl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..internal import plots
from ..internal.units import format_share, format_value, listed
from . import settings
from .controls import CONTROLS, environment, rate_limit
from .experiment import meters, observe
from .pace import Pace
from .parts import Consumer, Producer, consumed, to_the_same
from .result import Figures, Result, pick
from .scenario import Column, Scenario
from .trace import Series, Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True)
class HeadOfLine(Scenario):
    """A.1 and A.2 in one worker write for B.3 and B.4 in another.

    First B.3 has the connection for itself, then A.2 writes too, then B.4 crawls.
    """

    name: ClassVar[str] = "head-of-line"
    question: ClassVar[str] = (
        "Two pairs of tasks share one connection and B.4 slows down to a crawl. What does B.3 feel?"
    )
    controls: ClassVar[tuple[str, ...]] = tuple(CONTROLS)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("B.3 keeps", lambda figures: format_share(figures["b3_ratio"])),
        Column("B.4 keeps", lambda figures: format_share(figures["b4_ratio"])),
        Column("most in flight", lambda figures: format_value(figures["peak_in_flight_bytes"], "B")),
        Column("dropped", lambda figures: format_value(figures["dropped_bytes"], "B")),
    )

    speed: float = settings.rate("2500kB/s", "what B.3 and B.4 can take")
    crawl: float = settings.rate("20kB/s", "what B.4 can take when it crawls")
    offered: float = settings.rate("2MB/s", "what A.1 and A.2 each have to send")
    buffer: int = settings.size("1MB", "receive buffer of the input of B.3, and of B.4")
    limit: int = settings.size("8MB", "without bound: memory at which the run is stopped")
    alone: float = settings.seconds("3s", "how long B.3 has the connection for itself")
    both: float = settings.seconds("3s", "how long both go at full speed")
    crawling: float = settings.seconds("6s", "how long B.4 crawls")

    def check(self) -> None:
        """Require that all goes well until B.4 becomes slower."""
        settings.require(self.offered <= self.speed, "offered", self.offered, "must not exceed speed")
        settings.require(self.crawl < self.offered, "crawl", self.crawl, "must be less than offered")
        for name in ("alone", "both", "crawling"):
            settings.require(getattr(self, name) > 0, name, getattr(self, name), "must be more than 0 s")

    @property
    def crawls_at(self) -> float:
        """Time at which B.4 begins to crawl."""
        return self.alone + self.both

    @property
    def seconds(self) -> float:
        """How long the producers go on."""
        return self.alone + self.both + self.crawling

    def duration(self) -> float:
        """Add up the phases; what is left then arrives at once."""
        return self.seconds + 2

    def run(self, trace: Trace) -> None:
        """Run it."""
        trace.sources, trace.sinks = ("A.1", "A.2"), ("B.3", "B.4")
        end = self.seconds
        first = Pace([(0, self.offered)], end)
        second = Pace([(0, 0), (self.alone, self.offered)], end)
        steady = Pace([(0, self.speed)], end)
        slowing = Pace([(0, self.speed), (self.crawls_at, self.crawl)], end)
        env = environment(trace.control, receive_buffer=self.buffer, receive_limit=self.limit, parallelism=2)
        with meters(dict.fromkeys((*trace.sources, *trace.sinks), 1)) as made:
            source = Producer(made, (("A.1", 0), ("A.2", 0)), (first, second), to_the_same)
            sink = Consumer(made, (("B.3", 0), ("B.4", 0)), (steady, slowing))
            limit = rate_limit(trace.control, 2 * self.offered)
            produced = env.from_iterable(source, rate_limit=limit).name("A").place_on(1)
            consumed(produced.forward(), sink, "B", 2)
            observe(env, 2, made, trace, end, INTERVAL)

    def figures(self, trace: Trace) -> Figures:
        """Compare what B.3 and B.4 take while B.4 crawls with what they took before."""
        b3, b4 = trace.taken("B.3"), trace.taken("B.4")
        end = trace.end()
        # At the beginning of each phase buffers fill or empty; the rates are those of the rest.
        crawling = (min(self.crawls_at + self.crawling / 2, end - 0.5), end)

        def rate(series: Series, start: float, end: float) -> float:
            return trace.between(series, start, end) / (end - start)

        alone = rate(b3, self.alone / 3, self.alone)
        before = rate(b4, self.alone + self.both / 3, self.crawls_at)
        return {
            "b3_ratio": rate(b3, *crawling) / alone,
            "b3_ratio_both": rate(b3, self.alone + self.both / 3, self.crawls_at) / alone,
            "b4_ratio": rate(b4, *crawling) / max(before, 1.0),
            "b3_alone_bytes_per_s": alone,
            "peak_in_flight_bytes": int(trace.in_flight().max()),
            "dropped_bytes": trace.dropped_bytes,
            "sent_bytes": sum(trace.counts[-1][task].bytes_out for task in trace.sources),
            "lost_bytes": None if trace.stopped else trace.lost_bytes(),
            "stopped_after_s": end if trace.stopped else None,
        }

    def verdict(self, figures: Figures) -> str:
        """Say what B.3 felt, and at what price."""
        kept = figures["b3_ratio"]
        felt = "B.3 feels nothing" if kept >= 0.95 else "B.3 starves" if kept < 0.2 else f"B.3 keeps {kept:.0%}"
        if figures["stopped_after_s"] is not None:
            return f"{felt}; memory grows until the run is stopped"
        if figures["dropped_bytes"]:
            return f"{felt}; {format_value(figures['dropped_bytes'], 'B')} are lost"
        return f"{felt}; nothing lost"

    def finding(self, results: Sequence[Result]) -> str:
        """Say it for the title."""
        credit = pick(results, "credit")
        starved = [result.control for result in results if result.figures["b3_ratio"] < 0.2]
        parts = []
        if credit:
            kept = min(credit.figures["b3_ratio"], 1.0)
            parts.append(f"under credit B.3 keeps {kept:.0%} of its rate beside a crawling neighbour")
        if starved:
            parts.append(f"under {listed(starved)} it starves")
        text = "; ".join(parts) or results[0].verdict
        return text[:1].upper() + text[1:]

    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw a row for each control: how fast the two consumers are, and what is in flight."""
        panels = picture.grid(
            results,
            self.finding(results),
            f"A.1 writes for B.3, A.2 for B.4, {self.offered / 1e6:g} MB/s each, over one connection; both take "
            f"{self.speed / 1e6:g} MB/s, B.4 {self.crawl / 1e3:g} kB/s from {self.crawls_at:g} s on",
            ("taken, MB/s", "in flight, MB"),
        )
        for number, (result, (left, right)) in enumerate(zip(results, panels, strict=True)):
            trace = result.trace
            named = [("B.3", trace.taken("B.3"), plots.BLUE), ("B.4", trace.taken("B.4"), plots.ORANGE)]
            picture.speeds(left, trace, named, 0.3)
            picture.in_flight(right, trace, 2 * self.buffer, "receive buffers")
            for panel in (left, right):
                label = "B.4 crawls" if panel is left and number == 0 else ""
                picture.phase(panel, self.crawls_at, self.seconds, label)
                picture.moment(panel, self.alone)


INTERVAL = 0.05
