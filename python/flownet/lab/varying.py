"""``varying``: a consumer whose speed wanders, and a producer that always has more."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..internal import plots
from ..internal.units import format_share, format_value, listed
from . import settings
from .controls import CONTROLS, environment, pool_bound_bytes, rate_limit
from .experiment import meters, observe
from .pace import Pace
from .parts import Consumer, Producer, consumed, to_the_same
from .result import Figures, Result, pick
from .scenario import Column, Scenario
from .trace import Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True)
class VaryingScenario(Scenario):
    """Producer and consumer in two workers; the consumer's speed is a random walk, the same for every control."""

    name: ClassVar[str] = "varying"
    question: ClassVar[str] = "The consumer's speed wanders. How much of it is used, and what does that take in memory?"
    controls: ClassVar[tuple[str, ...]] = tuple(CONTROLS)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("efficiency", lambda figures: format_share(figures["efficiency"])),
        Column("most in flight", lambda figures: format_value(figures["peak_in_flight_bytes"], "B")),
        Column("bound", lambda figures: format_value(figures["bound_bytes"], "B")),
        Column("dropped", lambda figures: format_value(figures["dropped_bytes"], "B")),
    )

    slowest: float = settings.rate("500kB/s", "the consumer is never slower")
    fastest: float = settings.rate("2MB/s", "the consumer is never faster")
    step: float = settings.seconds("500ms", "how often its speed changes")
    seed: int = settings.count(7, "of the walk", 0, 2**31)
    produce: float = settings.rate("3MB/s", "speed of the producer")
    buffer: int = settings.size("1MB", "receive buffer")
    limit: int = settings.size("8MB", "without bound: memory at which the run is stopped")
    seconds: float = settings.seconds("15s", "how long the producer goes on")

    def check(self) -> None:
        """Require that the producer always has more than the consumer takes."""
        require = settings.require
        require(self.slowest < self.fastest, "slowest", self.slowest, "must be less than fastest")
        require(self.produce > self.fastest, "produce", self.produce, "must exceed fastest")
        require(self.step > 0, "step", self.step, "must be more than 0 s")
        require(self.seconds > 2 * SETTLED, "seconds", self.seconds, f"must be more than {2 * SETTLED:g}")

    def duration(self) -> float:
        """Take the time of the producer; what is left then arrives at once."""
        return self.seconds + 2

    def walk(self) -> Pace:
        """Make the consumer's speed: it goes up or down by a tenth to a half at each step, between its limits."""
        chance = random.Random(self.seed)
        speed, steps = math.sqrt(self.slowest * self.fastest), []
        for number in range(math.ceil(self.seconds / self.step)):
            steps.append((number * self.step, speed))
            factor = 1 + chance.uniform(0.1, 0.5)
            wanted = speed * factor if chance.random() < 0.5 else speed / factor
            # What would leave the limits turns back instead.
            speed = wanted if self.slowest <= wanted <= self.fastest else speed * speed / wanted
            speed = min(max(speed, self.slowest), self.fastest)
        return Pace(steps, self.seconds)

    def run(self, trace: Trace) -> None:
        """Run it."""
        trace.sources, trace.sinks = ("producer",), ("consumer",)
        produce = Pace([(0, self.produce)], self.seconds)
        env = environment(trace.control, receive_buffer=self.buffer, receive_limit=self.limit)
        # Who sets a limit beforehand knows the consumer's mean speed, at best.
        limit = rate_limit(trace.control, self.walk().amount(self.seconds) / self.seconds)
        with meters({"producer": 1, "consumer": 1}) as made:
            source = Producer(made, (("producer", 0),), (produce,), to_the_same)
            sink = Consumer(made, (("consumer", 0),), (self.walk(),))
            produced = env.from_iterable(source, rate_limit=limit).name("producer").place_on(1)
            consumed(produced, sink, "consumer", 2)
            observe(env, 2, made, trace, self.seconds, INTERVAL)

    def figures(self, trace: Trace) -> Figures:
        """Compare what was delivered with what could have been, once the flow has begun."""
        end = trace.end()
        walk, begin = self.walk(), min(SETTLED, end / 2)
        delivered = trace.between(trace.taken("consumer"), begin, end)
        return {
            "efficiency": delivered / (walk.amount(end) - walk.amount(begin)),
            "peak_in_flight_bytes": int(trace.in_flight().max()),
            "bound_bytes": pool_bound_bytes(trace.control, receive_buffer=self.buffer),
            "dropped_bytes": trace.dropped_bytes,
            "sent_bytes": trace.counts[-1]["producer"].bytes_out,
            "lost_bytes": None if trace.stopped else trace.lost_bytes(),
            "stopped_after_s": end if trace.stopped else None,
        }

    def verdict(self, figures: Figures) -> str:
        """Say how much of the consumer was used, and at what price."""
        used = f"uses {figures['efficiency']:.1%} of the consumer"
        if figures["stopped_after_s"] is not None:
            return f"{used}; memory grows until the run is stopped at {figures['stopped_after_s']:.0f} s"
        if figures["dropped_bytes"]:
            return f"{used}; loses {figures['dropped_bytes'] / figures['sent_bytes']:.0%} of what is sent"
        return f"{used}; nothing lost, {format_value(figures['peak_in_flight_bytes'], 'B')} at most in flight"

    def finding(self, results: Sequence[Result]) -> str:
        """Say it for the title."""
        credit = pick(results, "credit")
        lossy = [result.control for result in results if result.figures["dropped_bytes"]]
        parts = [f"Credit {credit.verdict}"] if credit else [results[0].verdict]
        if lossy:
            parts.append(f"records are lost under {listed(lossy)}")
        return "; ".join(parts)

    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw a row for each control: what the consumer could do and did, and what was in flight."""
        panels = picture.grid(
            results,
            self.finding(results),
            f"the consumer's speed changes every {self.step:g} s, between {self.slowest / 1e6:g} and "
            f"{self.fastest / 1e6:g} MB/s; the producer has {self.produce / 1e6:g} MB/s",
            ("taken, MB/s", "in flight, MB"),
        )
        walk = self.walk()
        for result, (left, right) in zip(results, panels, strict=True):
            trace = result.trace
            possible = np.array([walk.amount(second) for second in trace.seconds])
            named = [("possible", possible, plots.GREY), ("taken", trace.taken("consumer"), plots.GREEN)]
            picture.speeds(left, trace, named, 0.3)
            bound = result.figures["bound_bytes"]
            picture.in_flight(right, trace, bound or self.buffer, "bound of the pools" if bound else "receive buffer")


INTERVAL = 0.05
SETTLED = 0.5
"""Seconds after which the flow has begun."""
