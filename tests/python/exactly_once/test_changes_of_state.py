"""Checkpoints that hold what has changed: what is written, and what a job goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import state

from .failures import FailsOnce, lines

KEYS = 500
ROUNDS = 900


class Remembers(fn.KeyedProcessFunction[int, tuple[int, int], str]):
    """Keeps a dict that it changes in place, and forgets keys; says at the end of the input what it has."""

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> Iterator[str]:
        key, number = record
        if number % 7 == 3:
            ctx.state.clear()
        else:
            seen = ctx.state.setdefault("seen", {})
            seen[number % 5] = number
        yield f"{key} {sorted(ctx.state.get('seen', {}).items())}"


def expected(records: list[tuple[int, int]]) -> list[str]:
    kept: dict[int, dict[int, int]] = {}
    said = []
    for key, number in records:
        if number % 7 == 3:
            kept.pop(key, None)
        else:
            kept.setdefault(key, {})[number % 5] = number
        said.append(f"{key} {sorted(kept.get(key, {}).items())}")
    return sorted(said)


def test_a_job_goes_on_from_changes_upon_changes(workers: int, tmp_path: Path) -> None:
    # All keys at once, then a few again and again.
    records = [(key, key) for key in range(KEYS)] + [(number % 20, KEYS + number) for number in range(ROUNDS)]
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    source = env.from_collection(records, rate_limit=1000).map(FailsOnce(records[-100], tmp_path / "failed"))
    source.key_by(0).process(Remembers()).write_text(tmp_path / "out")
    source.key_by(0).count().map(str).write_text(tmp_path / "counts")
    result = env.execute(workers)
    assert result.restarted == 1
    assert lines(tmp_path / "out") == expected(records)
    assert lines(tmp_path / "counts") == sorted(
        [str((key, 1)) for key in range(KEYS)]
        + [str((key, 2 + number // 20)) for number in range(ROUNDS) for key in [number % 20]]
    )
    # The job went on from one of changes. The last may have come to count in the moment of the failure, unseen.
    assert (last := result.restarts[0].resumed_from) is not None
    before = [each for each in result.checkpoints if each.number <= last]
    assert 0 < before[-1].written_bytes < before[-1].bytes / 2


def test_what_nobody_touches_is_written_once(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=1, buffer_timeout="5ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    records: list[Any] = [{"key": key, "name": f"user {key}"} for key in range(3000)]
    records += [{"key": number % 3, "name": "changed"} for number in range(900)]
    source = env.from_collection(records, rate_limit=3000).key_by("key")
    source.reduce(lambda _, last: last).filter(lambda record: False).write_text(tmp_path / "out")
    result = env.execute()
    changes = [each.written_bytes for each in result.checkpoints if each.written_bytes < each.bytes / 4]
    assert changes, [(each.written_bytes, each.bytes) for each in result.checkpoints]


def number(record: tuple[int, int]) -> int:
    return record[1]


def joined(records: fn.Stream[Any]) -> fn.Stream[Any]:
    other = records.filter(lambda record: record[1] % 10 == 0).key_by(0)
    return records.key_by(0).interval_join(other).between("-1h", "1h").process(lambda one, two: (one, two)).uid("it")


OPERATORS: dict[str, Callable[[fn.Stream[Any]], fn.Stream[Any]]] = {
    "tumbling": lambda records: records.key_by(0).window(fn.Tumbling("1h")).sum(1).uid("it"),
    "sliding": lambda records: records.key_by(0).window(fn.Sliding("4h", "1h")).count().uid("it"),
    "session": lambda records: records.key_by(0).window(fn.Session("1h")).sum(1).uid("it"),
    "processed": lambda records: (
        records.key_by(0)
        .window(fn.Session("1h"))
        .process(lambda key, window, values: [(key, sorted(map(number, values)))])
        .uid("it")
    ),
    "interval join": joined,
}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.replace(" ", "_"))
def test_windows_and_joins_are_written_and_read_as_changes(operator: str, tmp_path: Path) -> None:
    """All keys at once and then a few; the job is stopped among these, looked into, and goes on with other subtasks."""
    records = [(key, key) for key in range(KEYS)] + [(each % 20, KEYS + each) for each in range(ROUNDS)]
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(number)

    def job(parallelism: int, out: str, rate: float | None) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        source = env.from_collection(records, rate_limit=rate).uid("records")
        OPERATORS[operator](source.assign_timestamps_and_watermarks(strategy)).map(repr).write_text(tmp_path / out)
        return env

    def said(out: str) -> list[str]:
        return sorted(line for file in (tmp_path / out).glob("*.txt") for line in file.read_text().splitlines())

    job(2, "undisturbed", None).execute()
    env = job(2, "out", 500)
    env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
    result = stopped_among_changes(env)
    # What is written of a key that was touched is all of it, so how much depends on how many records came in between.
    assert any(each.written_bytes < each.bytes for each in result.checkpoints)
    kept = {entry.key for entry in state.read(tmp_path / "checkpoints").entries("it")}
    assert kept == set(range(KEYS))
    env = job(3, "out", None)
    env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
    env.execute()
    assert said("out") == said("undisturbed")


def stopped_among_changes(env: fn.Environment) -> fn.observation.JobResult:
    """Run a job until all keys have come and some checkpoints of a few of them count, and stop it."""
    with env.execute_async() as running:
        since = None
        while since is None or running.status().checkpoints_made < since + 4:
            status = running.status()
            # Those of the source: a record of the join goes two ways, and is counted on each.
            if since is None and status.tasks[0].records_in > KEYS + 50:
                since = status.checkpoints_made
            time.sleep(0.001)
        running.stop(drain=False)
        return running.wait()


class Postpones(fn.KeyedProcessFunction[int, tuple[int, int], str]):
    """Has one timer for each key, which each record moves."""

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> None:
        if "due" in ctx.state:
            ctx.timer_service().delete_event_time_timer(ctx.state["due"])
        ctx.state["due"] = FAR_MS + record[1]
        ctx.timer_service().register_event_time_timer(ctx.state["due"])

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> Iterator[str]:
        yield f"{ctx.key} {timestamp_ms} {ctx.state['due']}"


FAR_MS = 10_000_000


def test_timers_are_written_and_read_as_changes(tmp_path: Path) -> None:
    """All keys at once and then a few; the job is stopped among these, looked into, and goes on with other subtasks."""
    records = [(key, key) for key in range(KEYS)] + [(each % 20, KEYS + each) for each in range(ROUNDS)]
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(number)

    def job(parallelism: int, rate: float | None) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms", restart="none")
        source = env.from_collection(records, rate_limit=rate).uid("records")
        keyed = source.assign_timestamps_and_watermarks(strategy).key_by(0)
        keyed.process(Postpones()).uid("it").write_text(tmp_path / "out")
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        return env

    result = stopped_among_changes(job(2, 500))
    assert any(each.written_bytes < each.bytes / 4 for each in result.checkpoints)
    kept = state.read(tmp_path / "checkpoints")
    due = kept.values("it", "due")
    timers = [entry for entry in kept.timers("it") if entry.state == "timers.event"]
    assert set(due) == set(range(KEYS))
    assert sorted((entry.key, entry.time_ms) for entry in timers) == sorted(due.items())
    job(3, None).execute()
    last = dict(records)
    assert lines(tmp_path / "out") == sorted(f"{key} {FAR_MS + last[key]} {FAR_MS + last[key]}" for key in range(KEYS))


@dataclass
class Point:
    """Of a class that nobody hears of before it is kept."""

    number: int


class Points(fn.KeyedProcessFunction[int, tuple[int, int], str]):
    """Keeps objects of a class of its own in lists that it changes in place."""

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> Iterator[str]:
        key, number = record
        points = ctx.state.setdefault("points", [])
        points.append(Point(number))
        yield f"{key} {[point.number for point in points]}"


def test_much_is_written_while_the_task_goes_on_as_it_was(workers: int, tmp_path: Path) -> None:
    # Every key is touched again while all are written.
    keys, rounds = 20_000, 3
    records = [(key, number) for number in range(rounds) for key in range(keys)]
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
    source = env.from_collection(records, rate_limit=40_000).map(FailsOnce(records[-keys // 2], tmp_path / "failed"))
    source.key_by(0).process(Points()).write_text(tmp_path / "points")

    def joined(one: Any, other: Any) -> Any:
        return (*one, other[1])

    source.key_by(0).reduce(joined).map(str).write_text(tmp_path / "reduced")
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda _: 0)
    timed = source.assign_timestamps_and_watermarks(strategy)
    timed.key_by(0).window(fn.Session("1d")).count().map(str).write_text(tmp_path / "sessions")
    result = env.execute(workers)
    assert result.restarted == 1
    assert result.restarts[0].resumed_from is not None
    assert lines(tmp_path / "points") == sorted(
        f"{key} {list(range(number + 1))}" for number in range(rounds) for key in range(keys)
    )
    assert lines(tmp_path / "reduced") == sorted(
        str((key, *range(number + 1))) for number in range(rounds) for key in range(keys)
    )
    assert lines(tmp_path / "sessions") == sorted(str((key, rounds)) for key in range(keys))
    assert list((tmp_path / "checkpoints").rglob("*.000000.snap")), "some of it came in pieces"
