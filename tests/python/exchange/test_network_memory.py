"""Jobs that have exactly the memory that `explain()` calls needed get to their end, whatever their shape.

A pool that was promised a buffer and did not have it in hand once made such jobs stand still for ever: sources had it
as overdraft, and waited for the tasks that waited for them. Where that comes back these tests do not end.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import flownet as fn

Record = tuple[int, str]
Draw = Callable[[fn.Environment], list[fn.Stream[Any]]]


def needed(dataflow: Draw, workers: int, segment_kib: int = 32, **settings: Any) -> int:
    """Bytes of network memory without which the plan is refused."""
    env = fn.Environment(segment_size=f"{segment_kib}KiB", **settings)
    for stream in dataflow(env):
        stream.collect()
    buffers = [int(count) for count in re.findall(r"needs (\d+)", str(env.explain(workers=workers)))]
    return max(*buffers, 1) * segment_kib * 1024


def run_at(dataflow: Draw, memory: int, workers: int, segment_kib: int = 32, **settings: Any) -> list[list[Any]]:
    env = fn.Environment(segment_size=f"{segment_kib}KiB", network_memory=memory, **settings)
    results = [stream.collect() for stream in dataflow(env)]
    env.execute(workers)
    return [list(result) for result in results]


def share(count: int, subtask: int, subtasks: int) -> range:
    return range(subtask, count, subtasks)


def with_letters(letters: int, number: int) -> Record:
    return number, "x" * letters


def repeat(times: int, record: Record) -> list[Record]:
    return [record] * times


@dataclass
class Row:
    """Exchanges in a row, with more records than all buffers of the job hold."""

    exchanges: int
    records: int
    letters: int

    def __call__(self, env: fn.Environment) -> list[fn.Stream[Any]]:
        numbers = env.from_iterable(partial(share, self.records))
        stream = numbers.map(partial(with_letters, self.letters))
        for _ in range(self.exchanges):
            stream = stream.key_by(lambda record: record[0] * 7919 % 10007).map(
                lambda record: (record[0] + 1, record[1])
            )
        return [stream.map(lambda record: record[0])]


@pytest.mark.parametrize("more", [0, 1, 8], ids=["at need", "one more", "eight more"])
@pytest.mark.parametrize("exchanges", [2, 3])
def test_exchanges_in_a_row_need_no_more_than_they_say(exchanges: int, more: int, workers: int) -> None:
    row = Row(exchanges, records=60_000, letters=40)
    memory = needed(row, workers, parallelism=8) + more * 32 * 1024
    for _ in range(3):
        (numbers,) = run_at(row, memory, workers, parallelism=8)
        assert sorted(numbers) == list(range(exchanges, 60_000 + exchanges))


def test_the_smallest_memory_of_one_exchange() -> None:
    row = Row(1, records=40_000, letters=1)
    memory = needed(row, 2, segment_kib=4, parallelism=4)
    for _ in range(3):
        (numbers,) = run_at(row, memory, 2, segment_kib=4, parallelism=4)
        assert sorted(numbers) == list(range(1, 40_001))


@pytest.mark.parametrize("parallelism", [100, 300])
def test_many_subtasks_get_on_with_the_default_memory(parallelism: int) -> None:
    row = Row(2, records=100_000, letters=100)
    (numbers,) = run_at(row, 64 * 1024 * 1024, 0, parallelism=parallelism)
    assert sorted(numbers) == list(range(2, 100_002))


def test_a_hundred_subtasks_get_on_in_two_workers_at_need() -> None:
    row = Row(3, records=20_000, letters=100)
    (numbers,) = run_at(row, needed(row, 2, parallelism=100), 2, parallelism=100)
    assert sorted(numbers) == list(range(3, 20_003))


class Graph:
    """A dataflow by chance, and what it must give: sources, exchanges of all kinds, unions, splits, flat maps."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.workers = rng.choice([0, 2, 3])
        self.segment_kib = rng.choice([4, 8, 16, 32, 64])
        self.settings: dict[str, Any] = {
            "parallelism": rng.randint(1, 12),
            "buffer_timeout": rng.choice([None, "0ms", "1ms", "100ms"]),
            "exclusive_buffers": rng.choice([0, 1, 2, 2, 4]),
            "floating_buffers": rng.choice([1, 8, 8, 16]),
        }
        # Each step takes streams off the pile and puts others back: a function of a pile of streams or of lists.
        self.sources = [(rng.randint(500, 4000), rng.choice([1, 30, 300, 5000])) for _ in range(rng.randint(1, 2))]
        self.steps = [self._step(rng) for _ in range(rng.randint(2, 6))]

    def _step(self, rng: random.Random) -> tuple[str, int, int]:
        kind = rng.choice(["key_by", "key_by", "rebalance", "rescale", "broadcast", "union", "split", "flat_map"])
        return kind, rng.randrange(100), rng.randint(2, 3)

    def __call__(self, env: fn.Environment) -> list[fn.Stream[Any]]:
        pile: list[fn.Stream[Any]] = []
        for count, letters in self.sources:
            pile.append(env.from_iterable(partial(share, count)).map(partial(with_letters, letters)))
        for kind, place, times in self.steps:
            at = place % len(pile)
            stream = pile[at]
            if kind == "key_by":
                stream = stream.key_by(lambda record: record[0] % 101).map(lambda record: (record[0] + 1, record[1]))
            elif kind in ("rebalance", "rescale"):
                stream = getattr(stream, kind)().map(lambda record: (record[0] + 1, record[1]))
            elif kind == "broadcast":
                # Every subtask gets all of it, and one passes it on.
                stream = stream.broadcast().map(lambda record: (record[0] + 1, record[1])).set_parallelism(1)
            elif kind == "flat_map":
                stream = stream.key_by(lambda record: record[0]).flat_map(partial(repeat, times))
            elif kind == "split":
                pile.append(stream.rebalance().filter(lambda record: record[0] % 2 == 0))
            elif len(pile) > 1:
                stream = stream.union(pile.pop((at + 1) % len(pile)))
                at = min(at, len(pile) - 1)
            pile[at] = stream
        return [stream.map(lambda record: (record[0], len(record[1]))) for stream in pile]

    def expected(self) -> list[Counter[Any]]:
        pile = [[(number, letters) for number in range(count)] for count, letters in self.sources]
        for kind, place, times in self.steps:
            at = place % len(pile)
            records = pile[at]
            if kind in ("key_by", "rebalance", "rescale", "broadcast"):
                records = [(number + 1, letters) for number, letters in records]
            elif kind == "flat_map":
                records = [record for record in records for _ in range(times)]
            elif kind == "split":
                pile.append([record for record in records if record[0] % 2 == 0])
            elif len(pile) > 1:
                records = records + pile.pop((at + 1) % len(pile))
                at = min(at, len(pile) - 1)
            pile[at] = records
        return [Counter(records) for records in pile]

    def run(self, times: int) -> None:
        settings = {"segment_kib": self.segment_kib, **self.settings}
        memory = times * needed(self, self.workers, **settings)
        results = run_at(self, memory, self.workers, **settings)
        assert [Counter(result) for result in results] == self.expected()


@pytest.mark.parametrize("seed", range(24))
def test_any_dataflow_gets_on_with_what_it_needs(seed: int) -> None:
    Graph(seed).run(times=1 if seed % 4 else 4)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_that_needs_more_than_the_least_memory_gets_it_and_says_so(workers: int) -> None:
    segment = 4 << 20
    env = fn.Environment(parallelism=12, segment_size=segment)
    counts = env.from_collection(range(1000)).rebalance().map(lambda n: n % 10).key_by(lambda n: n).count().collect()
    buffers = max(int(count) for count in re.findall(r"needs (\d+)", env.explain(workers)))
    assert buffers * segment > 64 << 20
    assert f"{buffers} (4096 KiB each, {buffers * 4} MiB)" in env.explain(workers)
    result = env.execute(workers)
    assert sorted(count for _, count in counts)[-10:] == [100] * 10
    assert result.network_memory_bytes == buffers * segment


def test_memory_that_is_set_is_a_limit_also_where_the_plan_needs_more() -> None:
    env = fn.Environment(parallelism=12, segment_size="4MiB", network_memory="64MiB")
    env.from_collection(range(1000)).rebalance().map(str).key_by(len).count().collect()
    assert "refused: " in env.explain()
    with pytest.raises(fn.errors.InsufficientBuffersError, match="raise network_memory to") as refused:
        env.execute()
    assert refused.value.total == 16
    small = fn.Environment(parallelism=2)
    small.from_collection(range(1000)).rebalance().map(str).print()
    assert "of 2048 (32 KiB each, 64 MiB)" in small.explain()
