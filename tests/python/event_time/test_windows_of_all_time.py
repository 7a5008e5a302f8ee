"""`Global`, `EndOfInput` and `count_window` use event time if the stream has it: for evictors, triggers and order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet import testing

STRATEGY = fn.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner(2)
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "Global": lambda keyed: keyed.window(fn.Global()).trigger(fn.triggers.CountTrigger(1_000)),
    "EndOfInput": lambda keyed: keyed.window(fn.EndOfInput()),
    "EndOfInput with a trigger": lambda keyed: keyed.window(fn.EndOfInput()).trigger(fn.triggers.CountTrigger(1_000)),
    "count_window": lambda keyed: keyed.count_window(1_000),
}
# Of one time each, some before 1970.
times = st.lists(st.integers(-60, 60), unique=True, min_size=1, max_size=20)


class Notes(fn.triggers.Trigger[Any]):
    """Emits the times that it is told of."""

    def on_element(self, value: Any, timestamp_ms: int, window: Any, ctx: Any) -> fn.triggers.TriggerResult | None:
        ctx.state["times"] = [*ctx.state.get("times", ()), (timestamp_ms, ctx.current_watermark())]
        SEEN.append(ctx.state["times"][-1])
        return None


SEEN: list[tuple[int, int]] = []


@pytest.mark.parametrize("window", WINDOWS)
@given(at_ms=times, span=st.integers(1, 50))
def test_time_evictors_keep_the_newest_records_by_event_time(window: str, at_ms: list[int], span: int) -> None:
    def build(stream: Any) -> Any:
        windowed = WINDOWS[window](stream.key_by(lambda _: 0)).evictor(fn.triggers.TimeEvictor(f"{span}ms"))
        return windowed.process(lambda key, window, values: [sorted(values)])

    with testing.Harness(build) as harness:
        for time_ms in at_ms:
            harness.send(time_ms, time_ms)
        (found,) = harness.end()
    assert found == sorted(time_ms for time_ms in at_ms if time_ms > max(at_ms) - span)


@pytest.mark.parametrize("assigner", [fn.Global(), fn.EndOfInput()], ids=str)
def test_triggers_are_told_event_times_and_watermarks(assigner: Any) -> None:
    SEEN.clear()
    with testing.Harness(
        lambda stream: stream.key_by(lambda _: 0).window(assigner).trigger(Notes()).count(),
    ) as harness:
        harness.send("a", 30)
        harness.watermark(40)
        harness.send("b", -7)
    assert SEEN == [(30, -(2**63)), (-7, 40)]


@pytest.mark.parametrize("assigner", [fn.Global(), fn.EndOfInput()], ids=str)
def test_without_timestamps_evictors_go_by_the_wall_clock(assigner: Any) -> None:
    def build(stream: Any) -> Any:
        windowed = (
            stream.key_by(lambda _: 0)
            .window(assigner)
            .trigger(fn.triggers.CountTrigger(2))
            .evictor(fn.triggers.TimeEvictor("5s"))
        )
        return windowed.process(lambda key, window, values: [list(values)])

    with testing.Harness(build, now_ms=100_000) as harness:
        harness.send("old")
        harness.advance("10s")
        assert harness.send("new") == [["new"]]


def test_processing_time_triggers_of_a_global_window_ignore_event_times() -> None:
    trigger = fn.triggers.ContinuousProcessingTimeTrigger("1s")
    with testing.Harness(
        lambda stream: stream.key_by(lambda _: 0).window(fn.Global()).trigger(trigger).count(), now_ms=100_000
    ) as harness:
        assert harness.send("a", 5) == []
        assert harness.advance("2s") == [(0, 1)]


def windows_of_rows(keyed: Any, window: str) -> Any:
    aggregates = {"first": fn.first("v"), "last": fn.last("v"), "all": fn.collect("v")}
    match window:
        case "EndOfInput":
            return keyed.window(fn.EndOfInput()).agg(**aggregates)
        case "Global":
            return keyed.window(fn.Global()).trigger(fn.triggers.CountTrigger(1_000_000)).agg(**aggregates)
        case _:
            return keyed.window(fn.EndOfInput()).top_n(3, "rank")


def in_event_time(rows: list[tuple[int, int, int]], window: str) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for key in {row[0] for row in rows}:
        of_key = [value for _, value, _ in sorted((row for row in rows if row[0] == key), key=lambda row: row[2])]
        found[key] = of_key[:3] if window == "top_n" else (of_key[0], of_key[-1], of_key)
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("window", ["EndOfInput", "Global", "top_n"])
def test_first_last_collect_and_ties_of_rows_go_by_event_time_at_any_parallelism(window: str, workers: int) -> None:
    # Values descend in event time, and rows arrive in neither order.
    rows = [(at % 3, at * 7 % 101, 1_000 - at * 7 % 101) for at in range(101)]
    schema = {"k": "int64", "v": "int64", "rank": "int64"}
    for parallelism in (1, 2, 3, 4):
        env = fn.Environment(parallelism=parallelism)
        objects = env.from_collection(rows).assign_timestamps_and_watermarks(STRATEGY).rebalance()
        from_objects = objects.map(lambda row: (row[0], row[1], 0)).to_rows(schema)
        table = pa.table({"k": [row[0] for row in rows], "v": [row[1] for row in rows], "ms": [row[2] for row in rows]})
        arrow = env.from_arrow(table, event_time="ms", delay="1s").drop("ms").with_columns(rank=fn.lit(0))
        streams = [from_objects, arrow.rebalance()]
        results = [windows_of_rows(stream.key_by("k"), window).collect() for stream in streams]
        env.execute(workers=workers)
        for result in results:
            found: dict[int, Any] = {}
            for row in result.to_arrow().to_pylist():
                if window == "top_n":
                    found.setdefault(row["k"], []).append(row["v"])
                else:
                    found[row["k"]] = (row["first"], row["last"], row["all"])
            assert found == in_event_time(rows, window), parallelism


@settings(max_examples=10)
@given(at_ms=times, parallelism=st.integers(1, 4))
def test_running_first_and_last_of_rows_go_by_event_time(at_ms: list[int], parallelism: int) -> None:
    env = fn.Environment(parallelism=parallelism)
    objects = env.from_collection([(0, 0, time_ms) for time_ms in at_ms]).assign_timestamps_and_watermarks(STRATEGY)
    rows = objects.rebalance().map(lambda row: (0, row[2])).to_rows({"k": "int64", "v": "int64"})
    result = rows.key_by("k").running_agg(first=fn.first("v"), last=fn.last("v")).collect()
    env.execute(workers=0)
    last = result.to_arrow().to_pylist()[-1]
    assert (last["first"], last["last"]) == (min(at_ms), max(at_ms))


TIED: dict[str, Any] = {
    "Tumbling": fn.Tumbling("1d"),
    "Session": fn.Session("1d"),
    "EndOfInput": fn.EndOfInput(),
    "Global": fn.Global(),
}


@pytest.mark.parametrize("window", TIED)
@given(at_ms=times)
def test_ties_of_the_best_objects_are_decided_by_event_time(window: str, at_ms: list[int]) -> None:
    def build(stream: Any) -> Any:
        windowed = stream.key_by(lambda _: 0).window(TIED[window])
        windowed = windowed.trigger(fn.triggers.CountTrigger(1_000)) if window == "Global" else windowed
        return windowed.top_n(2, by=lambda time_ms: 0)

    # Tumbling windows of before and after 1970 are two.
    at_ms = [abs(time_ms) for time_ms in at_ms] if window == "Tumbling" else at_ms
    with testing.Harness(build) as harness:
        for time_ms in at_ms:
            harness.send(time_ms, time_ms)
        assert harness.end() == [(0, sorted(at_ms)[:2])]


@pytest.mark.parametrize("assigner", [fn.EndOfInput(), fn.Tumbling("1h")], ids=str)
def test_ties_of_the_best_objects_are_the_same_at_any_parallelism(assigner: Any) -> None:
    rows = [(at % 3, at * 7 % 101, 1_000 - at * 7 % 101) for at in range(101)]
    for parallelism in (1, 2, 4):
        env = fn.Environment(parallelism=parallelism)
        stream = env.from_collection(rows).assign_timestamps_and_watermarks(STRATEGY).rebalance()
        best = stream.map(lambda row: row).key_by(0).window(assigner).top_n(3, by=lambda row: 0).collect()
        env.execute(workers=0)
        found = {key: [row[1] for row in top] for key, top in best}
        assert found == in_event_time(rows, "top_n"), parallelism


def test_ties_without_timestamps_are_as_they_arrive() -> None:
    with testing.Harness(
        lambda stream: stream.key_by(lambda _: 0).window(fn.EndOfInput()).top_n(2, by=lambda value: 0),
        timestamps=False,
    ) as harness:
        for value in (3, 1, 2):
            harness.send(value)
        assert harness.end() == [(0, [3, 1])]
