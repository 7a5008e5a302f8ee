"""Event-time timers of a process function against a list of them that is sorted at every watermark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn

from . import oracle, scripted, streams
from .oracle import Record, Watermark
from .scripted import Item


class Alarms(fn.KeyedProcessFunction[str, Item, Any]):
    """Sets a timer with each record, or deletes one, and one with each timer of an odd time."""

    def process(self, value: Item, ctx: Any) -> Iterator[Any]:
        assert ctx.timestamp == value[3]
        timers = ctx.timer_service()
        if value[2] >= 0:
            timers.register_event_time_timer(value[3] + value[2])
        else:
            timers.delete_event_time_timer(value[3] - value[2])
        yield ctx.key, "record", value[2], timers.current_watermark()

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        assert ctx.time_domain == "event"
        if timestamp_ms % 2:
            ctx.timer_service().register_event_time_timer(timestamp_ms + 7)
        yield ctx.key, "timer", timestamp_ms, ctx.timer_service().current_watermark()


def alarms(arrivals: list[Record | Watermark]) -> dict[Any, list[Any]]:
    """Do by brute force what `Alarms` does: what it emits for each key, in order."""
    emitted: dict[Any, list[Any]] = defaultdict(list)
    timers: set[tuple[int, Any]] = set()
    now = -(2**63)
    for arrival in [*arrivals, Watermark(oracle.END_OF_TIME)]:
        if isinstance(arrival, Record):
            timer = (arrival.timestamp + abs(arrival.value), arrival.key)
            (timers.add if arrival.value >= 0 else timers.discard)(timer)
            emitted[arrival.key].append((arrival.key, "record", arrival.value, now))
            continue
        if arrival.timestamp <= now:
            continue
        now = arrival.timestamp
        due = [timer for timer in timers if timer[0] <= now]
        timers -= set(due)
        heapify(due)
        while due:
            timestamp, key = heappop(due)
            emitted[key].append((key, "timer", timestamp, now))
            if timestamp % 2 and timestamp + 7 <= now and (timestamp + 7, key) not in due:
                heappush(due, (timestamp + 7, key))
            elif timestamp % 2 and timestamp + 7 > now:
                timers.add((timestamp + 7, key))
    return emitted


def check(arrivals: list[Record | Watermark], parallelism: int, chained: bool, workers: int) -> None:
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    found = scripted.play(env, arrivals, chained).key_by(lambda item: item[1]).process(Alarms()).collect()
    env.execute(workers)
    by_key = defaultdict(list)
    for emitted in found:
        by_key[emitted[0]].append(emitted)
    assert by_key == alarms(arrivals)


@settings(max_examples=80)
@given(streams.arrivals(), st.sampled_from([1, 2, 3]), st.booleans())
def test_timers_fire_in_their_order_at_the_watermark_that_reaches_them(
    arrivals: list[Record | Watermark], parallelism: int, chained: bool
) -> None:
    check(arrivals, parallelism, chained, workers=0)


@settings(max_examples=5)
@given(streams.arrivals(), st.sampled_from([1, 2, 3]), st.booleans())
def test_timers_fire_in_their_order_in_two_workers(
    arrivals: list[Record | Watermark], parallelism: int, chained: bool
) -> None:
    check(arrivals, parallelism, chained, workers=2)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_thousands_of_timers_fire_at_one_watermark(parallelism: int, workers: int) -> None:
    arrivals: list[Record | Watermark] = [
        Record(f"key {number % 500}", number % 51, number * 7_919 % 5_003) for number in range(10_000)
    ]
    check(arrivals, parallelism, True, workers)
