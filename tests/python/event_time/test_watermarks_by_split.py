"""Watermarks by split, wherever timestamps are assigned in front of the first exchange."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet.errors import UsageWarning

SHAPES = [(0, 1), (0, 3), (2, 2), (2, 4)]
"""Workers and parallelism."""

SCHEMA = {"k": "int64", "t": "int64"}
RECORDS = 150
SPLITS = 4
WINDOW_MS = 50


def uneven(split: int, position: int | None) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield records at times that grow; the first splits are slow, the last one is over before they have begun."""
    for number in range(position or 0, RECORDS):
        time.sleep(max(0, 2 - split) * 0.002)
        yield number + 1, (number % 3, number * 10)


def expected(splits: int = SPLITS) -> Counter[tuple[int, int]]:
    times = (number * 10 for number in range(RECORDS) for _ in range(splits))
    return Counter((time_ms // 10 % 3, time_ms - time_ms % WINDOW_MS) for time_ms in times)


def late(result: fn.observation.JobResult) -> int:
    return sum(task.late_records for task in result.tasks)


def in_order(delay: str = "20ms") -> fn.WatermarkStrategy[Any]:
    return fn.WatermarkStrategy.for_bounded_out_of_orderness(delay).with_timestamp_assigner(1)


def windows_of_rows(rows: fn.Rows) -> fn.Stream[Any]:
    counted = rows.key_by("k").window(fn.Tumbling(f"{WINDOW_MS}ms")).agg(n=fn.count())
    return counted.to_objects().map(lambda row: (row["k"], milliseconds(row["window_start"]), row["n"]))


def milliseconds(value: Any) -> int:
    return value if isinstance(value, int) else round(value.timestamp() * 1000)


def windows_of_objects(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    counted: fn.Stream[Any] = stream.key_by(0).window(fn.Tumbling(f"{WINDOW_MS}ms")).with_window().count()
    return counted.map(lambda result: (result[0], result[1].start_ms, result[2]))


def behind_to_rows(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    return windows_of_rows(stream.to_rows(SCHEMA).assign_timestamps("t", delay="20ms"))


def behind_steps_of_rows(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    rows = stream.map(lambda record: record).to_rows(SCHEMA).filter(fn.col("t") >= 0).select("k", at=fn.col("t"))
    return windows_of_rows(rows.assign_timestamps("at", delay="20ms"))


def behind_a_function_of_batches(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    rows = stream.to_rows(SCHEMA).map_batches(lambda batch: batch, schema=SCHEMA)
    return windows_of_rows(rows.assign_timestamps("t", delay="20ms"))


def behind_rows_and_objects(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    objects = stream.to_rows(SCHEMA).to_objects(as_dicts=False)
    return windows_of_objects(objects.map(tuple).assign_timestamps_and_watermarks(in_order()))


def behind_a_flat_map(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    kept = stream.flat_map(lambda record: [record]).filter(lambda record: True)
    return windows_of_objects(kept.assign_timestamps_and_watermarks(in_order()))


async def later(record: Any) -> Any:
    return record


def behind_calls(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    return windows_of_objects(stream.map_async(later, capacity=8).assign_timestamps_and_watermarks(in_order()))


def behind_calls_in_any_order(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    answered = stream.map_async(later, capacity=8, ordered=False)
    return windows_of_objects(answered.assign_timestamps_and_watermarks(in_order()))


def in_a_task_of_its_own(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    return windows_of_objects(stream.assign_timestamps_and_watermarks(in_order()).disable_chaining())


def rows_in_a_task_of_their_own(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    return windows_of_rows(stream.to_rows(SCHEMA).assign_timestamps("t", delay="20ms").disable_chaining())


def assigned_twice(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    early = stream.assign_timestamps_and_watermarks(in_order("5s"))
    return windows_of_objects(early.map(tuple).assign_timestamps_and_watermarks(in_order()))


def behind_rebalance(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    return windows_of_objects(stream.rebalance().assign_timestamps_and_watermarks(in_order()))


def rows_behind_rebalance(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    rows = stream.to_rows(SCHEMA).rebalance().filter(fn.col("k") >= 0).select("k", "t")
    return windows_of_rows(rows.assign_timestamps("t", delay="20ms"))


PLACES = [
    behind_to_rows,
    behind_steps_of_rows,
    behind_a_function_of_batches,
    behind_rows_and_objects,
    behind_a_flat_map,
    behind_calls,
    behind_calls_in_any_order,
    in_a_task_of_its_own,
    rows_in_a_task_of_their_own,
    assigned_twice,
    behind_rebalance,
    rows_behind_rebalance,
]


@pytest.mark.parametrize(("workers", "parallelism"), SHAPES)
@pytest.mark.parametrize("place", PLACES)
def test_no_record_of_a_slow_split_is_late(
    place: Callable[[fn.Stream[Any]], fn.Stream[Any]], workers: int, parallelism: int
) -> None:
    env = fn.Environment(parallelism=parallelism)
    results = place(env.from_generator(uneven, splits=list(range(SPLITS)))).collect()
    result = env.execute(workers=workers)
    assert late(result) == 0
    assert {(key, start): count for key, start, count in results} == expected()


@pytest.mark.parametrize("place", [behind_to_rows, in_a_task_of_its_own])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_no_line_of_a_file_that_is_read_later_is_late(
    tmp_path: Path, place: Callable[[fn.Stream[Any]], fn.Stream[Any]], parallelism: int
) -> None:
    for split in range(SPLITS):
        lines = (f"{number % 3} {number * 10}\n" for number in range(RECORDS))
        (tmp_path / f"{split}.txt").write_text("".join(lines))

    def parsed(line: str) -> tuple[int, int]:
        time.sleep(0.001)
        key, time_ms = line.split()
        return int(key), int(time_ms)

    env = fn.Environment(parallelism=parallelism)
    results = place(env.read_text(tmp_path).map(parsed)).collect()
    result = env.execute(workers=0)
    assert late(result) == 0
    assert {(key, start): count for key, start, count in results} == expected()


@pytest.mark.parametrize("place", [behind_to_rows, behind_rows_and_objects, behind_calls])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 2)])
def test_nothing_is_late_in_a_job_that_goes_on_with_another_parallelism(
    tmp_path: Path, place: Callable[[fn.Stream[Any]], fn.Stream[Any]], before: int, after: int
) -> None:
    def begun(parallelism: int) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        env.enable_checkpointing("100ms", storage=tmp_path / "storage", unaligned=True)
        stream = env.from_generator(uneven, splits=list(range(SPLITS))).uid("source")
        place(stream).map(lambda result: " ".join(map(str, result))).write_text(tmp_path / "out")
        return env

    with begun(before).execute_async(0) as job:
        while job.status().checkpoints_made < 2:
            time.sleep(0.005)
        job.stop(drain=False)
        assert late(job.wait()) == 0
    assert late(begun(after).execute(workers=0)) == 0
    counted: Counter[tuple[int, int]] = Counter()
    for path in (tmp_path / "out").iterdir():
        for line in path.read_text().splitlines():
            key, start, count = map(int, line.split())
            counted[key, start] += count
    assert counted == expected()


@pytest.mark.parametrize(
    ("exchange", "said"),
    [
        (lambda stream: stream.key_by(0).map(tuple), r"behind key_by\(\)"),
        (lambda stream: stream.rebalance().map(tuple), r"behind rebalance\(\)"),
        (lambda stream: stream.map(tuple).set_parallelism(1), r"behind set_parallelism\(\)"),
    ],
)
def test_an_assigner_behind_an_exchange_that_mixes_splits_is_warned_of(
    exchange: Callable[[fn.Stream[Any]], fn.Stream[Any]], said: str
) -> None:
    env = fn.Environment(parallelism=2)
    stream = env.from_generator(uneven, splits=[2, 3])
    windows_of_objects(exchange(stream).assign_timestamps_and_watermarks(in_order())).collect()
    with pytest.warns(UsageWarning, match=said) as warned:
        env.execute(workers=0)
    assert "in front of it, right behind 'from_generator'" in str(warned[0].message)


def test_nothing_is_said_of_assigners_without_watermarks_or_of_other_times_or_sources_without_splits() -> None:
    env = fn.Environment(parallelism=2)
    never = fn.WatermarkStrategy.no_watermarks().with_timestamp_assigner(1)
    stream = env.from_generator(uneven, splits=[2, 3]).rebalance().map(tuple)
    windows_of_objects(stream.assign_timestamps_and_watermarks(never)).collect()
    timed = env.from_generator(uneven, splits=[2, 3]).assign_timestamps_and_watermarks(in_order())
    changed = timed.key_by(0).map(tuple).assign_timestamps_and_watermarks(in_order())
    windows_of_objects(changed).collect()
    windows_of_objects(env.from_collection([(0, 1)]).rebalance().assign_timestamps_and_watermarks(in_order())).collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute(workers=0)


def test_rows_get_their_times_in_the_task_of_the_source() -> None:
    env = fn.Environment()
    behind_to_rows(env.from_generator(uneven, splits=[3])).collect()
    first = env.execute(workers=0).tasks[0].name
    assert first == "from_generator -> to_rows -> assign_timestamps"
