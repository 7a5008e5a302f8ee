"""Windows without records emit nothing: those that a trigger purged, and those that an evictor emptied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

import flownet as fn
from flownet import testing


class PurgesEvery(fn.triggers.Trigger[Any]):
    """Fires and purges with every so many records, and fires at the window's end."""

    def __init__(self, count: int) -> None:
        self.count = count

    def on_element(self, value: Any, timestamp_ms: int, window: Any, ctx: Any) -> fn.triggers.TriggerResult | None:
        ctx.register_event_time_timer(window.end_ms - 1)
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return fn.triggers.TriggerResult.FIRE_AND_PURGE if ctx.state["n"] % self.count == 0 else None

    def on_event_time(self, time_ms: int, window: Any, ctx: Any) -> fn.triggers.TriggerResult | None:
        return fn.triggers.TriggerResult.FIRE


def greatest(key: Any, window: Any, values: list[int]) -> list[tuple[Any, int]]:
    return [(key, max(values))]


class Greatest(fn.ProcessWindowFunction[int, tuple[Any, int], Any]):
    def process(self, key: Any, ctx: Any, values: Any) -> list[tuple[Any, int]]:
        return [(key, max(values))]


FOLDS: dict[str, tuple[Callable[[Any], Any], Callable[[list[int]], Any]]] = {
    "count": (lambda window: window.count(), len),
    "sum": (lambda window: window.sum(), sum),
    "min": (lambda window: window.min(), min),
    "max": (lambda window: window.max(), max),
    "min_by": (lambda window: window.min_by(), min),
    "max_by": (lambda window: window.max_by(), max),
    "mean": (lambda window: window.mean(), lambda values: sum(values) / len(values)),
    "reduce": (lambda window: window.reduce(max), max),
    "aggregate": (lambda window: window.aggregate(0, lambda total, value: total + value), sum),
    "top_n": (lambda window: window.top_n(1), lambda values: [max(values)]),
    "process": (lambda window: window.process(greatest), max),
    "process object": (lambda window: window.process(Greatest()), max),
    "reduce and process": (lambda window: window.reduce(max, process=greatest), max),
}


@pytest.mark.parametrize("fold", FOLDS)
@given(values=st.lists(st.integers(-9, 9), max_size=7), every=st.integers(1, 3))
def test_a_purged_window_emits_only_records_since_the_purge(fold: str, values: list[int], every: int) -> None:
    build, expect = FOLDS[fold]
    parts = [values[at : at + every] for at in range(0, len(values), every)]

    def windowed(stream: Any) -> Any:
        return build(stream.key_by(lambda _: 0).window(fn.Tumbling("10ms")).trigger(PurgesEvery(every)))

    with testing.Harness(windowed) as harness:
        found = [result for value in values for result in harness.send(value, 5)] + harness.watermark(20)
    assert found == [(0, expect(part)) for part in parts]


@pytest.mark.parametrize("method", ["process", "reduce", "aggregate", "count", "top_n"])
@pytest.mark.parametrize("after", [False, True])
def test_an_evictor_that_removes_all_records_leaves_no_window_to_emit(method: str, after: bool) -> None:
    build, expect = FOLDS[method]
    evictor: Any = fn.triggers.DeltaEvictor(0, lambda one, other: 0, after=after)
    trigger = fn.triggers.ContinuousEventTimeTrigger("4ms")

    def windowed(stream: Any) -> Any:
        return build(stream.key_by(lambda _: 0).window(fn.Tumbling("10ms")).trigger(trigger).evictor(evictor))

    with testing.Harness(windowed) as harness:
        harness.send(3, 1)
        # An evictor that works afterwards lets the first firing see the record.
        assert harness.watermark(5) == ([(0, expect([3]))] if after else [])
        assert harness.watermark(20) == []


@pytest.mark.parametrize("kind", ["agg", "top_n"])
def test_purged_windows_of_rows_emit_only_rows_since_the_purge(kind: str) -> None:
    trigger = fn.triggers.PurgingTrigger(fn.triggers.ContinuousEventTimeTrigger("3ms"))

    def build(rows: Any) -> Any:
        windowed = rows.key_by("k").window(fn.Tumbling("10ms")).trigger(trigger)
        return windowed.agg(n=fn.count()) if kind == "agg" else windowed.top_n(2, "v")

    with testing.RowsHarness(build, {"k": "utf8", "v": "int64"}) as harness:
        harness.send({"k": "a", "v": 1}, 1)
        assert len(harness.watermark(5)) == 1
        assert harness.watermark(20) == []


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-9, 9)), max_size=6))
def test_a_purged_window_of_a_join_pairs_only_records_since_the_purge(records: list[tuple[int, int]]) -> None:
    def build(left: Any, right: Any) -> Any:
        joined = left.join(right).where(lambda _: 0).equal_to(lambda _: 0).window(fn.Tumbling("10ms"))
        return joined.apply(lambda one, other: (one, other))

    with testing.Harness(build) as harness:
        for side, value in records:
            harness.send(value, 5, input=side)
        harness.watermark(20, input=0)
        found = harness.watermark(20, input=1)
    lefts, rights = ([value for of, value in records if of == side] for side in (0, 1))
    assert sorted(found) == sorted((one, other) for one in lefts for other in rights)
