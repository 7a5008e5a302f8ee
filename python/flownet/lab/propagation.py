"""``propagation``: four stages in four workers, and the last one stalls for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..internal import plots
from ..internal.units import format_value
from . import settings
from .controls import CONTROLS, RECEIVE_BYTES, environment, pool_bound_bytes, rate_limit
from .experiment import meters, observe
from .pace import Pace
from .parts import Consumer, Producer, Relay, consumed, to_the_same
from .result import Figures, Result, pick
from .scenario import Column, Scenario
from .trace import Series, Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True)
class Propagation(Scenario):
    """Source, two maps and a sink, each in a worker of its own."""

    name: ClassVar[str] = "propagation"
    question: ClassVar[str] = (
        "The sink of a pipeline stalls. When does each stage feel it, and when is the flow whole again?"
    )
    controls: ClassVar[tuple[str, ...]] = tuple(CONTROLS)
    columns: ClassVar[tuple[Column, ...]] = (
        Column("map 2", lambda figures: format_value(figures["throttled_after_s"]["map 2"], "s")),
        Column("map 1", lambda figures: format_value(figures["throttled_after_s"]["map 1"], "s")),
        Column("source stops after", lambda figures: format_value(figures["throttled_after_s"]["source"], "s")),
        Column("most in flight", lambda figures: format_value(figures["peak_in_flight_bytes"], "B")),
        Column("bound", lambda figures: format_value(figures["bound_bytes"], "B")),
        Column("whole again", lambda figures: format_value(figures["recovered_after_s"], "s")),
        Column("dropped", lambda figures: format_value(figures["dropped_bytes"], "B")),
    )

    speed: float = settings.rate("2MB/s", "speed of the source")
    sink: float = settings.rate("4MB/s", "what the sink can take when it does not stall")
    stall: float = settings.seconds("2s", "when the sink stalls")
    resume: float = settings.seconds("6s", "when it goes on")
    seconds: float = settings.seconds("9s", "how long the source goes on")
    limit: int = settings.size("6MB", "without bound: memory at which the run is stopped")

    def check(self) -> None:
        """Require that the sink can catch up, and that the stall lies within the run."""
        require = settings.require
        require(self.sink > self.speed, "sink", self.sink, "must exceed speed, or it could never catch up")
        require(self.stall >= 1, "stall", self.stall, "must be at least 1 s, to see the speed before")
        require(self.stall < self.resume, "resume", self.resume, "must be after stall")
        require(self.resume + 1 <= self.seconds, "seconds", self.seconds, "must be at least resume and 1 s")

    def duration(self) -> float:
        """Take the time of the source; what is left then arrives at once."""
        return self.seconds + 3

    def run(self, trace: Trace) -> None:
        """Run it."""
        trace.sources, trace.sinks = ("source",), ("sink",)
        source = Pace([(0, self.speed)], self.seconds)
        sink = Pace([(0, self.sink), (self.stall, 0), (self.resume, self.sink)], self.seconds)
        env = environment(trace.control, receive_limit=self.limit)
        with meters(dict.fromkeys(STAGES, 1)) as made:
            producer = Producer(made, (("source", 0),), (source,), to_the_same)
            stream = env.from_iterable(producer, rate_limit=rate_limit(trace.control, self.speed))
            stream = stream.name("source").place_on(1)
            for worker, stage in enumerate(STAGES[1:-1], start=2):
                stream = stream.map(Relay(made.of(stage))).name(stage).place_on(worker)
            consumed(stream, Consumer(made, (("sink", 0),), (sink,)), "sink", len(STAGES))
            observe(env, len(STAGES), made, trace, self.seconds, INTERVAL)

    def figures(self, trace: Trace) -> Figures:
        """Find when each stage stops and goes on, and what is in flight meanwhile."""
        bound = pool_bound_bytes(trace.control, len(STAGES) - 1)
        in_flight = trace.in_flight()
        throttled = {stage: self._throttled_after(trace, trace.given(stage)) for stage in STAGES[:-1]}
        stopped = throttled["source"] is not None
        peak = int(in_flight.max())
        return {
            "throttled_after_s": throttled,
            "drain_s": peak / self.speed,
            "peak_in_flight_bytes": peak,
            "bound_bytes": bound,
            "within_bound": None if bound is None else bool((in_flight <= bound).all()),
            "recovered_after_s": self._recovered_after(trace) if stopped else None,
            "dropped_bytes": trace.dropped_bytes,
            "sent_bytes": trace.counts[-1]["source"].bytes_out,
            "lost_bytes": None if trace.stopped else trace.lost_bytes(),
            "stopped_after_s": float(trace.seconds[-1]) if trace.stopped else None,
        }

    def verdict(self, figures: Figures) -> str:
        """Say how far the stall went, and what it cost."""
        if figures["stopped_after_s"] is not None:
            return "the source never stops; memory grows until the run is stopped"
        lost = f"{format_value(figures['dropped_bytes'], 'B')} are lost" if figures["dropped_bytes"] else "nothing lost"
        stopped, again = figures["throttled_after_s"]["source"], figures["recovered_after_s"]
        if stopped is None:
            return f"the source never stops; {lost}"
        back = (
            "does not get back to its speed"
            if again is None
            else f"is back at full speed {format_value(again, 's')} after it"
        )
        return f"the source stops {format_value(stopped, 's')} after the stall and {back}; {lost}"

    def finding(self, results: Sequence[Result]) -> str:
        """Say it for the title."""
        credit = pick(results, "credit")
        if credit is None or credit.figures["throttled_after_s"]["source"] is None:
            return results[0].verdict[:1].upper() + results[0].verdict[1:]
        figures = credit.figures
        stopped, most = format_value(figures["throttled_after_s"]["source"], "s"), figures["peak_in_flight_bytes"]
        return (
            f"Credit carries the stall to the source in {stopped}, holds {format_value(most, 'B')} at most, and is at "
            f"full speed {format_value(figures['recovered_after_s'], 's')} after it"
        )

    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw a row for each control: how fast each stage is, and what is in flight."""
        panels = picture.grid(
            results,
            self.finding(results),
            f"source -> map 1 -> map 2 -> sink, a worker each; the source goes at {self.speed / 1e6:g} MB/s; the sink "
            f"stalls from {self.stall:g} s to {self.resume:g} s",
            ("passed on, MB/s", "in flight, MB"),
        )
        colours = (plots.BLUE, plots.SKY, plots.PURPLE, plots.ORANGE)
        for number, (result, (left, right)) in enumerate(zip(results, panels, strict=True)):
            trace = result.trace
            series = [trace.given(stage) for stage in STAGES[:-1]] + [trace.taken("sink")]
            named = list(zip(STAGES, series, colours, strict=True))
            picture.speeds(left, trace, named, WINDOW)
            bound = result.figures["bound_bytes"]
            named_bound = "bound of the pools" if bound else "receive buffers"
            picture.in_flight(right, trace, bound or (len(STAGES) - 1) * RECEIVE_BYTES, named_bound)
            for panel in (left, right):
                label = "sink stalls" if panel is left and number == 0 else ""
                picture.phase(panel, self.stall, self.resume, label)

    def _throttled_after(self, trace: Trace, given: Series) -> float | None:
        """Seconds from the stall until a stage passes on less than half of its speed, to the end of the stall."""
        seconds = trace.seconds
        during = (seconds >= self.stall) & (seconds <= min(self.resume, float(seconds[-1])) - WINDOW)
        times, is_slow = seconds[during], self._ahead(trace, given)[during] < 0.5 * self.speed
        began = np.flatnonzero(~is_slow)[-1] + 1 if not is_slow.all() else 0
        return float(times[began] - self.stall) if began < len(times) else None

    def _recovered_after(self, trace: Trace) -> float | None:
        """Seconds from the end of the stall until the last stage that hands on moves, and keeps 95 % of its speed."""
        seconds, found = trace.seconds, []
        for stage in STAGES[:-1]:
            given = trace.given(stage)
            moves = given > np.interp(self.resume, seconds, given)
            whole = moves & (self._ahead(trace, given) >= 0.95 * self.speed)
            times = seconds[whole & (seconds >= self.resume) & (seconds <= self.seconds - WINDOW)]
            if not times.size:
                return None
            found.append(float(times[0] - self.resume))
        return max(found)

    def _ahead(self, trace: Trace, given: Series) -> Series:
        """Speed over the `WINDOW` that begins with each sample."""
        later: Series = np.interp(trace.seconds + WINDOW, trace.seconds, given)
        return (later - given) / WINDOW


STAGES = ("source", "map 1", "map 2", "sink")
INTERVAL = 0.02
WINDOW = 0.2
"""Seconds over which a speed is told: several buffers at the speed of the source."""
