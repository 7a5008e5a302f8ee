"""What operators hold, and sources have before them, is counted while the job runs and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors


def until(condition: Callable[[], Any]) -> Any:
    while not (found := condition()):
        time.sleep(0.01)
    return found


class Remembers(fn.KeyedProcessFunction[int, int, int]):
    """Keeps a value and sets a timer, far away, for each key."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.last = ctx.get_state(fn.ValueStateDescriptor("last"))

    def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:
        self.last.update(value)
        ctx.timer_service().register_event_time_timer(10**15 + ctx.key)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> None:
        raise AssertionError("it is far away")


def hundred_then_none(subtask: int, subtasks: int) -> Iterator[int]:
    yield from range(100)
    while True:
        time.sleep(0.01)
        yield 0


def some(number: int) -> int:
    return number % 50


@pytest.mark.parametrize("backend", ["memory", "disk"])
def test_keys_and_timers_are_counted_while_the_job_runs(backend: Any, workers: int) -> None:
    env = fn.Environment(parallelism=2, status_interval="20ms", state_backend=backend, state_memory="1KiB")
    numbers = env.from_iterable(hundred_then_none)
    numbers.key_by(some).process(Remembers()).name("remembers").filter(lambda _: False).collect()
    numbers.key_by(some).count().name("counts").filter(lambda _: False).collect()
    with env.execute_async(workers) as job:

        def tally(name: str) -> tuple[int | None, int | None]:
            task = next(task for task in job.status().tasks if task.name.startswith(name))
            return task.state_keys, task.timers

        until(lambda: tally("remembers") == (50, 50))
        until(lambda: tally("counts") == (50, None))
        source = job.status().tasks[0]
        assert (source.state_keys, source.source_lag_records, source.source_lag_bytes) == (None, None, None)
        assert sum(part.state_keys or 0 for part in job.sample().tasks if part.name.startswith("remembers")) == 50
        job.cancel()


def test_windows_count_a_key_for_each_slice_and_their_looks(workers: int) -> None:
    env = fn.Environment(parallelism=1, status_interval="20ms")
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("1h").with_timestamp_assigner(lambda n: n)
    keyed = env.from_iterable(hundred_then_none).assign_timestamps_and_watermarks(strategy).key_by(some)
    keyed.window(fn.Tumbling("50ms")).count().name("grid").filter(lambda _: False).collect()
    keyed.window(fn.Session("10ms")).count().name("session").filter(lambda _: False).collect()
    with env.execute_async(workers) as job:

        def tally(name: str) -> tuple[int | None, int | None]:
            task = next(task for task in job.status().tasks if task.name.startswith(name))
            return task.state_keys, task.timers

        # 50 keys in each of two windows of 50 ms.
        until(lambda: tally("grid") == (100, None))
        until(lambda: tally("session") == (50, 50))
        job.cancel()


def test_what_is_left_to_read_shrinks_to_nothing(tmp_path: Path, workers: int) -> None:
    (tmp_path / "lines").mkdir()
    for file in range(4):
        (tmp_path / "lines" / f"{file}.txt").write_text("0123456\n" * 5000)
    env = fn.Environment(parallelism=2, status_interval="20ms", segment_size="1KiB", network_memory="1MiB")
    gate = tmp_path / "gate"

    def held(record: Any, gate: str = str(gate)) -> Any:
        while not Path(gate).exists():
            time.sleep(0.001)
        return record

    lines = env.read_text(tmp_path / "lines").rebalance().map(held).name("held").filter(lambda _: False).collect()
    numbers = env.from_collection(range(30_000)).rebalance().map(held).filter(lambda _: False).collect()
    with env.execute_async(workers) as job:

        def left() -> list[tuple[int, int]]:
            found = [(task.source_lag_bytes, task.source_lag_records) for task in job.status().tasks]
            return [(size or 0, count or 0) for size, count in found if size is not None or count is not None]

        both = until(lambda: found if len(found := left()) == 2 else None)
        until(lambda: all(size or count for size, count in left()))
        assert max(size for size, _ in both) <= 160_000
        assert max(count for _, count in both) <= 30_000
        gate.touch()
        result = job.wait()
    assert (list(lines), list(numbers)) == ([], [])
    told = [(task.source_lag_bytes, task.source_lag_records) for task in result.tasks]
    assert [one for one in told if one != (None, None)] in ([(0, None), (None, 0)], [(None, 0), (0, None)])


def test_bytes_are_those_of_the_last_checkpoint(tmp_path: Path, workers: int) -> None:
    env = fn.Environment(parallelism=2, status_interval="20ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "kept", allow_non_replayable=True)
    numbers = env.from_iterable(hundred_then_none)
    numbers.key_by(some).count().name("counts").filter(lambda _: False).collect()
    with env.execute_async(workers) as job:
        status = until(lambda: (status := job.status()).checkpoints_made > 1 and status)
        counts = next(task for task in status.tasks if task.name.startswith("counts"))
        assert counts.state_bytes > 100
        assert sum(task.state_bytes for task in status.tasks) == status.checkpoints[-1].bytes
        job.cancel()


class Reader(fn.SplitReader[int]):
    """Reads 1,000 numbers, a hundred of them before the gate is open; says what is left if it is to."""

    def __init__(self, gate: str, at: int, says: Any) -> None:
        self.gate, self.at, self.says = gate, at, says

    def read(self) -> list[int] | None:
        if self.at == 1000:
            return None
        if self.at >= 100 and not Path(self.gate).exists():
            return []
        self.at += 10
        return list(range(self.at - 10, self.at))

    def position(self) -> int:
        return self.at

    def pending_records(self) -> int | None:
        left: int | None = self.says(1000 - self.at)
        return left


class Numbers(fn.Source[int]):
    def __init__(self, gate: Path, *says: Any) -> None:
        self.gate, self.says = str(gate), says

    def splits(self) -> list[int]:
        return list(range(len(self.says)))

    def open(self, split: int, position: int | None) -> Reader:
        return Reader(self.gate, position or 0, self.says[split])


def test_readers_of_ones_own_say_what_is_left_to_read_if_they_know(tmp_path: Path, workers: int) -> None:
    def left(number: int) -> int:
        return number

    def nobody_knows(number: int) -> None:
        return None

    gate = tmp_path / "gate"
    env = fn.Environment(parallelism=1, status_interval="20ms")
    env.from_source(Numbers(gate, left, nobody_knows, left)).filter(lambda _: False).print()
    env.from_source(Numbers(gate, nobody_knows)).filter(lambda _: False).print()
    with env.execute_async(workers) as job:
        until(lambda: [task.source_lag_records for task in job.status().tasks] == [2 * 900, None])
        gate.touch()
        result = job.wait()
    assert [(task.records_in, task.source_lag_records) for task in result.tasks] == [(3000, 0), (1000, None)]


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (lambda left: "many", "pending_records() returned 'many', where a number from 0, or None, is wanted"),
        (lambda left: -left, "pending_records() returned -900, where a number from 0, or None, is wanted"),
        (lambda left: 1 // 0, "ZeroDivisionError"),
    ],
    ids=["no number", "negative", "raises"],
)
def test_a_reader_that_cannot_say_what_is_left_fails_the_job(tmp_path: Path, says: Any, why: str) -> None:
    env = fn.Environment(parallelism=1, status_interval="20ms")
    env.from_source(Numbers(tmp_path / "gate", lambda left: says(left) if left == 900 else left)).print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute()
    assert why in str(caught.value)
