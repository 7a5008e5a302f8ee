"""A million timers that are due at once do not hold up a cancel: it is seen between two of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import flownet as fn
from flownet.errors import CancelledError

KEYS = 20_000
BEFORE = 100
"""So many fire before the job is cancelled. Those behind would take minutes."""


class Firing:
    """Counts what fires, and lets the test know when some has."""

    def __init__(self) -> None:
        self.fired, self.has_begun = 0, threading.Event()

    def __call__(self, result: Any) -> Any:
        self.fired += 1
        if self.fired >= BEFORE:
            self.has_begun.set()
            time.sleep(0.02)
        return result


class Timers(fn.KeyedProcessFunction[int, tuple[int, int], int]):
    """Sets a timer for each record."""

    def __init__(self, firing: Firing, *, by_event_time: bool) -> None:
        self.firing, self.by_event_time = firing, by_event_time

    def process(self, value: tuple[int, int], ctx: Any) -> None:
        if self.by_event_time:
            ctx.timer_service().register_event_time_timer(1000)
        else:
            ctx.timer_service().register_processing_time_timer(2**62)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[int]:
        self.firing(timestamp_ms)
        return []


Build = Callable[[fn.KeyedStream[int, tuple[int, int]], Firing], fn.Stream[Any]]
BUILDS: dict[str, Build] = {
    "tumbling": lambda keyed, firing: keyed.window(fn.Tumbling("10s")).count().map(firing),
    "sliding": lambda keyed, firing: keyed.window(fn.Sliding("60s", "1s")).count().map(firing),
    "sessions": lambda keyed, firing: keyed.window(fn.Session("10s")).count().map(firing),
    "timers of event time": lambda keyed, firing: keyed.process(Timers(firing, by_event_time=True)),
    "timers of the wall": lambda keyed, firing: keyed.process(Timers(firing, by_event_time=False)),
}


@pytest.mark.parametrize("name", BUILDS)
def test_a_cancel_is_seen_between_two_firings(name: str) -> None:
    firing = Firing()
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    # The functions themselves run, so that the test sees what they count.
    env = fn.Environment(object_reuse=True)
    timed = env.from_collection([(key, 0) for key in range(KEYS)]).assign_timestamps_and_watermarks(strategy)
    BUILDS[name](timed.key_by(0), firing).collect()
    with env.execute_async(workers=0) as job:
        # All are due when the input has ended.
        assert firing.has_begun.wait(50)
        job.cancel()
        with pytest.raises(CancelledError):
            job.wait()
    assert BEFORE <= firing.fired < KEYS
