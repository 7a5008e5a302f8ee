"""Calls under way and checkpoints: what they work on is kept as it came, and called again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

RECORDS = 300


def lines(folder: Path) -> list[str]:
    return [line for file in sorted(folder.glob("*.txt")) for line in file.read_text().splitlines()]


class Failing(fn.AsyncFunction[Any, Any]):
    """Changes what it is given, is slow now and then, and fails once."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    async def open(self, ctx: fn.TaskContext) -> None:
        await asyncio.sleep(0.05)

    async def call(self, value: Any) -> Any:
        number = value.pop("number")
        await asyncio.sleep(0.02 if number % 7 == 0 else 0.001)
        if number == 200 and not self.mark.exists():
            self.mark.touch()
            raise ValueError("once")
        return number


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("flat", [True, False])
def test_calls_under_way_when_the_job_fails_are_made_again(
    ordered: bool, flat: bool, workers: int, tmp_path: Path
) -> None:
    env = fn.Environment(buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
    records = env.from_collection([{"number": number} for number in range(RECORDS)], rate_limit=1000)
    failing = Failing(tmp_path / "failed")
    if flat:
        called = records.map_async(failing, capacity=30, ordered=ordered).flat_map_async(twice, ordered=ordered)
    else:
        called = records.map_async(failing, capacity=30, ordered=ordered)
    called.write_text(tmp_path / "out")
    result = env.execute(workers)
    assert result.restarted == 1
    assert result.restarts[0].resumed_from is not None
    found = [int(line) for line in lines(tmp_path / "out")]
    expected = sorted([*range(RECORDS), *(range(RECORDS) if flat else ())])
    assert Counter(found) == Counter(expected)
    if ordered:
        assert found == expected


async def twice(number: Any) -> list[Any]:
    await asyncio.sleep(0.001)
    return [number, number]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_job_that_stands_still_in_its_calls_is_stopped_and_gone_on_with(ordered: bool, tmp_path: Path) -> None:
    """With all calls waiting for ever in the first run, only the checkpoint has the records."""
    released = tmp_path / "released"

    async def wait(value: int) -> int:
        while not released.exists():
            await asyncio.sleep(0.01)
        return value

    def numbers(position: int | None) -> Iterator[Any]:
        for number in range(position or 0, 10):
            yield number + 1, number
        while not released.exists():
            yield None

    def job() -> fn.Environment:
        env = fn.Environment(parallelism=1, buffer_timeout="5ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps()
        timed = env.from_generator(numbers).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda value: 1000 * value)
        )
        called = timed.rebalance().map_async(wait, capacity=50, ordered=ordered, timeout=None)
        windows = called.key_by(lambda value: value % 2).window(fn.Tumbling("2s"))
        windows.process(lambda key, window, values: [(window.start_ms, *values)]).write_text(tmp_path / "out")
        return env

    with job().execute_async() as running:
        while running.status().checkpoints_made < 3:
            time.sleep(0.002)
        running.cancel()
        with pytest.raises(errors.CancelledError):
            running.wait()
    assert lines(tmp_path / "out") == []
    released.touch()
    result = job().execute()
    assert result.resumed_from is not None
    expected = [str((2000 * (number // 2), number)) for number in range(10)]
    assert sorted(lines(tmp_path / "out")) == sorted(expected)


def test_more_calls_than_there_is_room_for_now_come_one_after_the_other(tmp_path: Path) -> None:
    released = tmp_path / "released"

    def numbers(position: int | None) -> Iterator[tuple[int, int]]:
        for number in range(position or 0, 60):
            yield number + 1, number

    async def wait(value: int) -> int:
        while not released.exists():
            await asyncio.sleep(0.01)
        return value

    def job(capacity: int) -> fn.Environment:
        env = fn.Environment(parallelism=1, buffer_timeout="5ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        env.from_generator(numbers).map_async(wait, capacity=capacity, timeout=None).write_text(tmp_path / "out")
        return env

    with job(40).execute_async() as running:
        while running.status().checkpoints_made < 3:
            time.sleep(0.002)
        running.cancel()
        with pytest.raises(errors.CancelledError):
            running.wait()
    released.touch()
    assert job(5).execute().resumed_from is not None
    assert lines(tmp_path / "out") == [str(number) for number in range(60)]


def test_a_record_that_no_checkpoint_can_keep_fails_the_job_by_name(tmp_path: Path) -> None:
    async def same(value: Any) -> Any:
        return value

    env = fn.Environment(restart="none")
    env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
    env.from_collection([1]).map(lambda number: object()).map_async(same).name("mine").print()
    with pytest.raises((errors.CodecError, errors.OperatorError), match="'records under way' cannot be kept") as caught:
        env.execute()
    assert getattr(caught.value, "operator", None) == "mine"


async def later_first(number: int) -> int:
    await asyncio.sleep(0.004 if number % 2 == 0 else 0.001)
    return number


def test_a_task_whose_calls_are_all_done_while_a_barrier_is_to_come_goes_on(tmp_path: Path) -> None:
    """The first of two calls is done last, with nobody else to wake the task, which waits for the barrier as well."""
    env = fn.Environment(parallelism=1, buffer_timeout="1ms")
    env.enable_checkpointing("10ms", storage=tmp_path)
    numbers = env.from_collection(range(1_000)).rebalance().map_async(later_first, capacity=2, ordered=True).collect()
    env.execute()
    assert list(numbers) == list(range(1_000))
