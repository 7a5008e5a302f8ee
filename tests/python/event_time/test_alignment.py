"""Sources that wait for each other, so that none is far ahead in event time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flownet as fn
from flownet import errors

DRIFT_MS = 100
SHAPES = [(0, 1), (0, 2), (2, 3)]
"""Workers and parallelism."""


def aligned(group: str = "g", drift: str = f"{DRIFT_MS}ms") -> fn.WatermarkStrategy[Any]:
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    return strategy.with_watermark_alignment(group, drift, update_interval="10ms")


class Log:
    """What the sources of this process have read, in that order."""

    def __init__(self) -> None:
        self.read: list[tuple[str, int]] = []

    def of(self, name: str, times: Iterable[int]) -> Iterator[tuple[str, int]]:
        for time in times:
            self.read.append((name, time))
            yield name, time

    def furthest_ahead(self, steps: dict[str, int]) -> int:
        """How far a source was ahead when it read a record, of the last that had not ended."""
        last, most = dict.fromkeys(steps, 0), 0
        left = {name: sum(of == name for of, _ in self.read) for name in steps}
        for name, time in self.read:
            behind = [last[other] for other in steps if left[other] > 0]
            # The one before it was not too far; it may have been the last that was not.
            most = max(most, time - steps[name] - min(behind))
            last[name] = time
            left[name] -= 1
        return most


# A slow source by its rate, and one whose records are a hundred times as far apart.
@pytest.mark.parametrize("chained", [True, False], ids=["chained", "not chained"])
def test_no_source_runs_ahead_of_the_slowest(chained: bool) -> None:
    log, env = Log(), fn.Environment()
    steps = {"slow": 10, "fast": 1, "coarse": 97}
    sources = [
        env.from_iterable(log.of(name, range(0, 2000, step)), rate_limit=200 if name == "slow" else None)
        for name, step in steps.items()
    ]
    streams = [source.assign_timestamps_and_watermarks(aligned()) for source in sources]
    if not chained:
        streams = [stream.disable_chaining() for stream in streams]
    first, *others = streams
    results = first.union(*others).collect()
    result = env.execute(workers=0)
    assert sorted(results) == sorted((name, time) for name, step in steps.items() for time in range(0, 2000, step))
    assert log.furthest_ahead(steps) <= DRIFT_MS + 1
    fast, slow = result.tasks[1], result.tasks[0]
    assert slow.aligning < fast.aligning <= fast.idle
    assert fast.back_pressured < 0.5
    assert f"{fast.name} waited for the sources it is aligned with" in str(result)


def test_without_alignment_a_source_does_run_ahead() -> None:
    """What the test above would see."""
    log, env = Log(), fn.Environment()
    slow = env.from_iterable(log.of("slow", range(0, 2000, 10)), rate_limit=200)
    env.from_iterable(log.of("fast", range(2000))).union(slow).collect()
    env.execute(workers=0)
    assert log.furthest_ahead({"slow": 10, "fast": 1}) > 10 * DRIFT_MS


ALONE: fn.WatermarkStrategy[Any] = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)


def pairs(
    env: fn.Environment, strategy: fn.WatermarkStrategy[Any], folder: Path, chained: bool = True
) -> fn.Stream[Any]:
    """Join what comes from files with what comes from a collection, by the number of the hundred."""
    left = env.read_text(folder).map(lambda line: ("file", int(line))).assign_timestamps_and_watermarks(strategy)
    numbers = [("list", time) for time in range(0, 3000, 7)]
    right = env.from_collection(numbers).assign_timestamps_and_watermarks(strategy)
    if not chained:
        left, right = left.disable_chaining(), right.disable_chaining()
    by_hundred = [stream.key_by(lambda pair: pair[1] // 100) for stream in (left, right)]
    return by_hundred[0].interval_join(by_hundred[1]).between("-5ms", "5ms").process(lambda one, other: (one, other))


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "not chained"])
@pytest.mark.parametrize(("workers", "parallelism"), SHAPES)
def test_results_are_those_without_alignment(tmp_path: Path, workers: int, parallelism: int, chained: bool) -> None:
    for file in range(4):
        (tmp_path / f"{file}").write_text("".join(f"{time}\n" for time in range(file, 3000, 4)))

    def results(strategy: fn.WatermarkStrategy[Any], chained: bool) -> list[Any]:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        collected = pairs(env, strategy, tmp_path, chained).collect()
        env.execute(workers)
        return sorted(collected)

    # Where it is not aligned, files are known to be several only by who shares the source's task.
    assert results(aligned(), chained) == results(ALONE, chained=True)


def test_who_has_ended_is_not_waited_for(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    streams = [
        env.from_collection(records).assign_timestamps_and_watermarks(aligned(drift="20s"))
        for records in ([("short", 0), ("short", 1)], [], [("long", time) for time in range(0, 100_000, 10)])
    ]
    results = streams[0].union(*streams[1:]).collect()
    env.execute(workers)
    assert len(list(results)) == 10_002


class MarksIdle(fn.WatermarkGenerator[Any]):
    """Says with the last of the records that no more come for now."""

    def on_event(self, value: Any, timestamp_ms: int, output: fn.WatermarkOutput) -> None:
        output.emit_watermark(timestamp_ms)
        if value[0] == "idle":
            output.mark_idle()


def test_who_is_idle_is_not_waited_for() -> None:
    env, gone_on = fn.Environment(), threading.Event()
    seen: list[int] = []

    def silent() -> Iterator[tuple[str, int]]:
        yield "record", 0
        yield "idle", 1
        # The other would never get so far if it were waited for.
        gone_on.wait()
        yield "record", 9_500

    def others() -> Iterator[tuple[str, int]]:
        for time in range(0, 10_000, 10):
            if time == 9_000:
                gone_on.set()
            seen.append(time)
            yield "other", time

    own = fn.WatermarkStrategy.for_generator(MarksIdle).with_timestamp_assigner(1)
    strategy = own.with_watermark_alignment("g", f"{DRIFT_MS}ms", "10ms")
    one = env.from_iterable(silent()).assign_timestamps_and_watermarks(strategy)
    other = env.from_iterable(others()).assign_timestamps_and_watermarks(strategy)
    results = one.union(other).collect()
    env.execute(workers=0)
    assert sorted(results) == sorted(
        [("record", 0), ("idle", 1), ("record", 9_500), *(("other", time) for time in seen)]
    )
    assert seen == list(range(0, 10_000, 10))


def test_a_job_whose_sources_wait_can_be_stopped_and_is_no_stall(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    slow = env.from_iterable((("slow", time) for time in range(10**9)), rate_limit=50)
    fast = env.from_iterable(("fast", time) for time in range(10**9))
    streams = [stream.assign_timestamps_and_watermarks(aligned(drift="20ms")) for stream in (slow, fast)]
    results = streams[0].union(streams[1]).collect()
    job = env.execute_async(workers)
    with job:
        while True:
            status = job.status()
            if any(task.aligning > 0.5 for task in status.tasks) and status.records > 100:
                break
        assert status.stalled is None
        job.stop(drain=True)
        result = job.wait()
    assert result.stalled is None
    assert max(time for name, time in results if name == "fast") < 10**6
    assert "for the sources it is aligned with" in str(status)


class FailsOnce:
    """Raises in the middle of the first run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, pair: Any) -> Any:
        if pair[0][1] > 1500 and not self.mark.exists():
            self.mark.touch()
            raise ValueError("once")
        return pair


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "not chained"])
def test_checkpoints_pass_sources_that_wait(workers: int, chained: bool, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for file in range(3):
        (tmp_path / "in" / f"{file}").write_text("".join(f"{time}\n" for time in range(file, 3000, 3)))

    def results(
        strategy: fn.WatermarkStrategy[Any], folder: str, fails: bool
    ) -> tuple[list[str], fn.observation.JobResult]:
        env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
        if fails:
            env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        joined = pairs(env, strategy, tmp_path / "in", chained or not fails)
        if fails:
            joined = joined.map(FailsOnce(tmp_path / "failed"))
        joined.map(str).write_text(tmp_path / folder)
        result = env.execute(workers)
        return sorted(
            line for part in (tmp_path / folder).glob("*.txt") for line in part.read_text().splitlines()
        ), result

    expected, _ = results(ALONE, "alone", fails=False)
    found, result = results(aligned(drift="20ms"), "aligned", fails=True)
    assert found == expected
    assert result.restarted == 1
    assert result.checkpoints_made > 0


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda strategy: strategy.with_watermark_alignment("", "1s"), "needs the name of a group"),
        (lambda strategy: strategy.with_watermark_alignment(7, "1s"), "needs the name of a group"),
        (lambda strategy: strategy.with_watermark_alignment("g", "0s"), "at least 1"),
        (lambda strategy: strategy.with_watermark_alignment("g", "-1s"), "max_allowed_watermark_drift"),
        (lambda strategy: strategy.with_watermark_alignment("g", 5), "needs a unit"),
        (lambda strategy: strategy.with_watermark_alignment("g", "1s", "10us"), "whole number of milliseconds"),
    ],
)
def test_mistakes_are_told_when_the_strategy_is_described(mistake: Any, message: str) -> None:
    with pytest.raises((errors.PlanError, errors.ConfigError), match=message):
        mistake(fn.WatermarkStrategy.for_monotonous_timestamps())


@pytest.mark.parametrize(
    ("describe", "message"),
    [
        (lambda stream: stream.map(lambda pair: pair).set_parallelism(2), "records change subtasks between"),
        (lambda stream: stream.union(stream.map(lambda pair: pair)), "has 2 inputs"),
        (lambda stream: stream.key_by(0).reduce(max), "records change subtasks between"),
        (lambda stream: stream.assign_timestamps_and_watermarks(aligned("h")), "is aligned with others twice"),
    ],
    ids=["exchange", "union", "key", "twice"],
)
def test_what_is_not_right_behind_a_source_is_refused(describe: Any, message: str) -> None:
    env = fn.Environment()
    stream = describe(env.from_collection([("a", 1)]))
    stream.assign_timestamps_and_watermarks(aligned()).print()
    with pytest.raises(errors.PlanError, match=message):
        env.execute(workers=0)


def test_who_makes_no_watermarks_cannot_be_waited_for() -> None:
    env = fn.Environment()
    strategy = fn.WatermarkStrategy.no_watermarks().with_watermark_alignment("g", "1s")
    env.from_collection([1]).assign_timestamps_and_watermarks(strategy).print()
    with pytest.raises(errors.PlanError, match="makes no watermarks"):
        env.execute(workers=0)


def minutes_of(env: fn.Environment, minutes: int, interval: str) -> fn.Stream[Any]:
    """A source with a record for each second of event time, aligned within a minute."""
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    strategy = strategy.with_watermark_alignment("replay", "1min", interval)
    records = (("record", second * 1_000) for second in range(minutes * 60))
    return env.from_iterable(records).assign_timestamps_and_watermarks(strategy)


def test_a_replay_is_not_capped_by_the_interval(workers: int) -> None:
    """An hour of event time are 60 drifts: a limit once in an interval would take an hour."""
    env = fn.Environment()
    streams = [minutes_of(env, 60, "1min") for _ in range(2)]
    results = streams[0].union(streams[1]).collect()
    env.execute(workers)
    assert len(results) == 2 * 60 * 60


def test_a_table_as_objects_is_waited_for_and_leaves_when_it_ends() -> None:
    env = fn.Environment()
    rows = [("row", time) for time in range(0, 20_000, 10)]
    table = pa.table({"name": [name for name, _ in rows], "ms": [time for _, time in rows]})
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ms")
    strategy = strategy.with_watermark_alignment("g", f"{DRIFT_MS}ms", "10ms")
    first = env.from_arrow(table).to_objects().assign_timestamps_and_watermarks(strategy)
    # It begins where the table ends, and goes on for longer than the drift.
    later = [{"name": "later", "ms": time} for time in range(20_000, 40_000, 10)]
    second = env.from_collection(later).assign_timestamps_and_watermarks(strategy)
    results = first.union(second).map(lambda record: record["ms"]).collect()
    env.execute(workers=0)
    assert sorted(results) == list(range(0, 40_000, 10))
