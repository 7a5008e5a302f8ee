"""Every kind of operator that keeps something: stopped and gone on with, it gives what it gives undisturbed."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

RECORDS = 900
KEYS = 7

Describe = Callable[[fn.Stream[Any], Callable[[], fn.Stream[Any]]], Any]
"""Makes a stream of one of (key, number, time in ms) with event time, and of another such where it asks for it."""


def generate(seed: int) -> Callable[[int | None], Iterator[tuple[int, tuple[int, int, int]]]]:
    def read(position: int | None) -> Iterator[tuple[int, tuple[int, int, int]]]:
        for number in range(position or 0, RECORDS):
            draw = random.Random(1000 * seed + number)
            yield number + 1, (draw.randrange(KEYS), draw.randrange(50), 20 * number + draw.randrange(300))

    return read


class Timers(fn.KeyedProcessFunction[int, Any, Any]):
    """Counts by key, and says so when a timer of event time comes; with state of every kind."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.value = ctx.get_state(fn.ValueStateDescriptor("value"))
        self.list = ctx.get_list_state(fn.ListStateDescriptor("list"))
        self.map = ctx.get_map_state(fn.MapStateDescriptor("map"))
        self.reducing = ctx.get_reducing_state(fn.ReducingStateDescriptor("reducing", max))
        self.aggregating = ctx.get_aggregating_state(fn.AggregatingStateDescriptor("aggregating", Mean()))

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        self.value.update(value[1])
        self.list.add(value[1])
        self.map[value[1] % 3] = value
        self.reducing.add(value[1])
        self.aggregating.add(value[1])
        ctx.timer_service().register_event_time_timer(value[2] // 1000 * 1000 + 5000)
        yield ("count", value[0], ctx.state["count"])

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield ("timer", ctx.key, timestamp_ms)

    def finish(self, ctx: Any) -> Iterator[Any]:
        yield ("finished",)


class AtEnd(Timers):
    """Says at the last timer what is kept in typed state: that comes when nothing more does."""

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        list(super().process(value, ctx))
        ctx.timer_service().register_event_time_timer(10_000_000)
        return iter(())

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        if timestamp_ms == 10_000_000:
            mapping = sorted(self.map.items())
            kept = (self.value.value(), sorted(self.list.get()), mapping, self.reducing.get(), self.aggregating.get())
            yield (ctx.key, *kept)


class Mean(fn.AggregateFunction[Any, Any, Any]):
    """Sum and count, which is what lives between records."""

    def create_accumulator(self) -> Any:
        return [0, 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        value = value[1] if isinstance(value, tuple) else value
        return [accumulator[0] + value, accumulator[1] + 1]

    def merge(self, accumulator: Any, later: Any) -> Any:
        return [accumulator[0] + later[0], accumulator[1] + later[1]]

    def get_result(self, accumulator: Any) -> Any:
        return (accumulator[0], accumulator[1])


class WithWindowState(fn.ProcessWindowFunction[int, Any, Any]):
    """Counts the windows of a key, and the firings of a window."""

    def process(self, key: int, ctx: Any, values: list[Any]) -> Iterator[Any]:
        ctx.global_state["windows"] = ctx.global_state.get("windows", 0) + 1
        ctx.window_state["firings"] = ctx.window_state.get("firings", 0) + 1
        yield (key, ctx.window.start_ms, sorted(values), ctx.window_state["firings"], ctx.global_state["windows"])


class Meets(fn.KeyedCoProcessFunction[int, Any, Any, Any]):
    """Sums up both sides."""

    def process1(self, value: Any, ctx: Any) -> None:
        ctx.state["left"] = ctx.state.get("left", 0) + value[1]
        ctx.timer_service().register_event_time_timer(10_000_000)

    def process2(self, value: Any, ctx: Any) -> None:
        ctx.state["right"] = ctx.state.get("right", 0) + value[1]
        ctx.timer_service().register_event_time_timer(10_000_000)

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, sorted(ctx.state.items()))


class Rules(fn.KeyedBroadcastProcessFunction[int, Any, Any, Any]):
    """Keeps all that the other side brings, and counts it when all has come."""

    def process(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(10_000_000)

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        ctx.broadcast_state[value[2], value[1]] = value[0]

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterator[Any]:
        yield (ctx.key, len(ctx.broadcast_state), sum(ctx.broadcast_state.values()))


def with_state(count: Any, value: Any) -> tuple[int, Any]:
    return (count or 0) + value[1], (value[0], count)


async def slowly(value: Any) -> Any:
    await asyncio.sleep(0.0005 * (value[1] % 20))
    return (*value, "called")


def keyed(stream: fn.Stream[Any]) -> fn.KeyedStream[int, Any]:
    return stream.key_by(0)


def changes(stream: fn.Stream[Any]) -> Any:
    return keyed(stream).count().map(lambda pair: (pair[0], pair[1] % 5, 0)).as_changelog()


def second(stream: fn.Stream[Any]) -> fn.streams.WindowedStream[int, Any]:
    return keyed(stream).window(fn.Tumbling("1s"))


OPERATORS: dict[str, Describe] = {
    "reduce": lambda one, _: keyed(one).reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2]))),
    "count": lambda one, _: keyed(one).count(),
    "sum": lambda one, _: keyed(one).sum(1),
    "min": lambda one, _: keyed(one).min(1),
    "max": lambda one, _: keyed(one).max(1),
    "map_with_state": lambda one, _: keyed(one).map_with_state(with_state),
    "deduplicate": lambda one, _: one.key_by(lambda record: record[1]).deduplicate().map(lambda record: record[1]),
    "process by key": lambda one, _: keyed(one).process(Timers()),
    "typed state": lambda one, _: keyed(one).process(AtEnd()),
    "tumbling": lambda one, _: second(one).count(),
    "sliding": lambda one, _: keyed(one).window(fn.Sliding("3s", "1s")).sum(1),
    "sliding mean": lambda one, _: keyed(one).window(fn.Sliding("3s", "1s")).mean(1),
    "session": lambda one, _: keyed(one).window(fn.Session("150ms")).count(),
    "global by count": lambda one, _: keyed(one).window(fn.Global()).trigger(fn.triggers.CountTrigger(5)).sum(1),
    "count window": lambda one, _: keyed(one).count_window(7).sum(1),
    "count window sliding": lambda one, _: keyed(one).count_window(7, 3).reduce(lambda a, b: max(a, b)),
    "to the end": lambda one, _: keyed(one).window(fn.EndOfInput()).count(),
    "window reduce": lambda one, _: second(one).reduce(lambda a, b: max(a, b)),
    "window aggregate": lambda one, _: second(one).aggregate(Mean()),
    "window min_by": lambda one, _: second(one).min_by(1).map(lambda pair: (pair[0], pair[1][1])),
    "window top_n": lambda one, _: second(one).top_n(3, by=1).map(lambda pair: [each[1] for each in pair[1]]),
    "window process": lambda one, _: second(one).process(WithWindowState()),
    "window evictor": lambda one, _: second(one).evictor(fn.triggers.CountEvictor(3)).reduce(lambda a, b: max(a, b)),
    "window_all": lambda one, _: one.window_all(fn.Tumbling("1s")).sum(1),
    "interval join": lambda one, other: keyed(one).interval_join(keyed(other())).between("-100ms", "200ms").process(),
    "as-of join": lambda one, other: keyed(one).as_of_join(keyed(other())).process(lambda a, b: (a, b[2])),
    "window join": lambda one, other: (
        one.join(other()).where(0).equal_to(0).window(fn.Tumbling("1s")).apply(lambda a, b: (a, b))
    ),
    "two inputs by key": lambda one, other: keyed(one).connect(keyed(other())).process(Meets()),
    "broadcast": lambda one, other: keyed(one).connect(other().broadcast()).process(Rules()),
    "changes count": lambda one, _: changes(one).key_by(1).count().to_stream().window_all(fn.EndOfInput()).count(),
    "changes join": lambda one, other: (
        changes(one).join(changes(other())).where(0).equal_to(0).apply().to_stream().window_all(fn.EndOfInput()).count()
    ),
    "take": lambda one, _: one.map(lambda record: "one").take(300),
    "map_async": lambda one, _: one.map_async(slowly, capacity=20),
    "map_async out of order": lambda one, _: one.map_async(slowly, capacity=20, ordered=False),
    "map_async before windows": lambda one, _: second(one.map_async(slowly, capacity=20)).count(),
}
"""By what they keep. What the order of two inputs decides has no place here: it is another in each run."""


def described(operator: str, folder: Path, rate: float | None) -> fn.Environment:
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", max_parallelism=16)
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("400ms")
    strategy = strategy.with_timestamp_assigner(lambda record: record[2])

    def source(seed: int) -> fn.Stream[Any]:
        return env.from_generator(generate(seed), rate_limit=rate).assign_timestamps_and_watermarks(strategy)

    OPERATORS[operator](source(1), lambda: source(2)).map(repr).write_text(folder / "out")
    return env


def written(folder: Path) -> Counter[str]:
    return Counter(line for file in (folder / "out").glob("*.txt") for line in file.read_text().splitlines())


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.replace(" ", "_"))
def test_what_is_stopped_and_gone_on_with_gives_what_it_gives_undisturbed(operator: str, tmp_path: Path) -> None:
    described(operator, tmp_path / "undisturbed", None).execute()
    expected = written(tmp_path / "undisturbed")
    assert expected
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    draw = random.Random(seed)
    stops = 0
    while True:
        env = described(operator, tmp_path, 3000)
        env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
        with env.execute_async() as job:
            if stops < 3:
                while job.status().state not in ("running", "ended"):
                    time.sleep(0.001)
                time.sleep(0.2 * draw.random())
                job.stop(drain=False)
            result = job.wait()
        if stops == 3:
            break
        stops += 1
    assert result.resumed_from is not None
    found = written(tmp_path)
    lost, doubled = expected - found, found - expected
    assert (lost, doubled) == (Counter(), Counter()), f"seed {seed}"
