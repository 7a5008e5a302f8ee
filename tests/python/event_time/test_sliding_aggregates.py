"""Aggregates over windows that overlap: each result is what the window's slices give, whatever was kept of the last."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn

from .scripted import ms

Value = tuple[int, Any]
"""When, and what."""

# Whole numbers, large ones that outgrow 64 bits, floats that do not add up in any order, a NaN, a bool.
NUMBERS = st.one_of(st.integers(-5, 5), st.sampled_from([2**62, -(2**62), 0.1, 0.2, 1e17, -1e17, -0.0, math.nan, True]))
KINDS = ["count", "sum", "min", "max", "mean", "min_by", "max_by", "reduce"]


def reduced(kind: str, values: list[Any]) -> Any:
    """Fold values of one slice, or of the slices of a window, from left to right."""
    result = values[0]
    for value in values[1:]:
        if kind in ("min", "min_by"):
            result = value if value < result else result
        elif kind in ("max", "max_by"):
            result = value if value > result else result
        else:
            result = result + value
    return result


def by_brute_force(kind: str, records: list[Value], size: int, slide: int) -> list[tuple[int, str]]:
    slice_ms = math.gcd(size, slide)
    slices: dict[int, list[Any]] = {}
    for at, value in records:
        slices.setdefault(at // slice_ms * slice_ms, []).append(value)
    starts = {start for at, _ in records for start in range(at // slide * slide, at - size, -slide)}
    results = []
    for start in starts:
        inside = [values for begin, values in sorted(slices.items()) if start <= begin < start + size]
        count = sum(map(len, inside))
        whole = reduced(kind, [reduced(kind, values) for values in inside])
        results.append((start, repr(count if kind == "count" else whole / count if kind == "mean" else whole)))
    return sorted(results)


class EachTime(fn.WatermarkGenerator[Any]):
    """Says with each record how far time has come."""

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness

    def on_event(self, value: Any, timestamp_ms: int, output: Any) -> None:
        output.emit_watermark(timestamp_ms - self.lateness - 1)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def by_flownet(kind: str, records: list[Value], size: int, slide: int, lateness: int) -> list[tuple[int, str]]:
    strategy = fn.WatermarkStrategy.for_generator(EachTime(lateness)).with_timestamp_assigner(0)
    env = fn.Environment()
    keyed = env.from_collection(records).assign_timestamps_and_watermarks(strategy).key_by(lambda _: "k")
    window = keyed.window(fn.Sliding(ms(size), ms(slide))).with_window()
    match kind:
        case "count":
            stream = window.count()
        case "reduce":
            stream = window.reduce(lambda one, other: (one[0], one[1] + other[1]))
        case _:
            stream = getattr(window, kind)(1)
    results = stream.collect()
    result = env.execute(workers=0)
    assert sum(task.late_records for task in result.tasks) == 0
    is_record = kind in ("min_by", "max_by", "reduce")
    return sorted((window.start_ms, repr(value[1] if is_record else value)) for _, window, value in results)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_each_window_is_what_its_slices_give(kind: str, data: st.DataObject) -> None:
    slide = data.draw(st.integers(1, 6))
    size = data.draw(st.integers(slide, 40))
    lateness = data.draw(st.integers(0, 30))
    times = data.draw(st.lists(st.integers(0, 120), min_size=1, max_size=40))
    # Out of order by no more than the watermarks allow for.
    times.sort(key=lambda at: at + (at * 7 % (lateness + 1)) / 2)
    records = [(at, data.draw(NUMBERS)) for at in times]
    assert by_flownet(kind, records, size, slide, lateness) == by_brute_force(kind, records, size, slide)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_key_of_several_forms_is_shown_as_the_windows_first_record_gave_it(data: st.DataObject) -> None:
    """1, 1.0 and True are one key. What a window shows must not depend on what was kept of the one before."""
    slide = data.draw(st.integers(1, 3))
    size = data.draw(st.integers(slide, 20))
    times = sorted(data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=30)))
    records = [(at, data.draw(st.sampled_from([1, 1.0, True]))) for at in times]
    strategy = fn.WatermarkStrategy[Value].for_monotonous_timestamps().with_timestamp_assigner(0)
    env = fn.Environment()
    keyed = env.from_collection(records).assign_timestamps_and_watermarks(strategy).key_by(1)
    results = keyed.window(fn.Sliding(ms(size), ms(slide))).with_window().count().collect()
    env.execute(workers=0)
    shown = {(window.start_ms, repr(key), count) for key, window, count in results}
    starts = {start for at in times for start in range(at // slide * slide, at - size, -slide)}
    inside = {start: [key for at, key in records if start <= at < start + size] for start in starts}
    assert shown == {(start, repr(keys[0]), len(keys)) for start, keys in inside.items()}


@pytest.mark.parametrize("memory", ["16KiB", "64KiB"])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_windows_are_the_same_as_keys_come_and_go_between_memory_and_disk(kind: str, memory: str) -> None:
    """Few keys fit into memory, where each window changes the one before; many do not, for a while."""

    def found(**place: Any) -> list[str]:
        env = fn.Environment(buffer_timeout="1ms", **place)
        strategy = fn.WatermarkStrategy.for_generator(EachTime(0)).with_timestamp_assigner(1)
        times = [(at % (200 if at // 1000 % 2 else 7), at) for at in range(4000)]
        keyed = env.from_collection(times).assign_timestamps_and_watermarks(strategy).key_by(0)
        window = keyed.window(fn.Sliding("800ms", "100ms")).with_window()
        results = getattr(window, kind)(1).collect()
        env.execute(workers=0)
        return sorted(map(repr, results))

    assert found(state_backend="disk", state_memory=memory) == found()
