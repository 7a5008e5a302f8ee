from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run

KEYS = [None, True, "word", "", b"bytes", 3.5, -7, 10**30, (1, "a"), frozenset({1, 2}), datetime.date(2026, 11, 20)]


def test_all_records_of_a_key_reach_one_subtask(env: fn.Environment, run: Run) -> None:
    class Where(fn.KeyedProcessFunction[int, int, tuple[int, int]]):
        def process(self, value: int, ctx: fn.ProcessContext[int]) -> list[tuple[int, int]]:
            return [(ctx.key, ctx.subtask)]

    places = set(run(env.from_collection(range(1000)).rebalance().key_by(lambda n: n % 10).process(Where())))
    assert sorted(key for key, _ in places) == list(range(10))
    assert {subtask for _, subtask in places} == {0, 1}


def test_any_hashable_key_of_the_built_in_types_works(env: fn.Environment, run: Run) -> None:
    counts = run(env.from_collection([(key, 0) for key in KEYS] * 3).key_by(lambda pair: pair[0]).count())
    assert {(type(key), key): count for key, count in counts} == {(type(key), key): 3 for key in KEYS}


def test_keys_that_are_equal_in_python_are_one_key(env: fn.Environment, run: Run) -> None:
    stream = env.from_collection([(1, "a"), (1.0, "b"), (True, "c")]).key_by(lambda pair: pair[0])
    assert max(count for _, count in run(stream.count())) == 3


def test_order_within_a_key_is_that_of_the_sender(env: fn.Environment, run: Run) -> None:
    numbers = env.from_collection(range(300)).key_by(lambda n: n % 3)
    kept = run(numbers.reduce(lambda _, n: n))
    for key in range(3):
        assert [n for n in kept if n % 3 == key] == list(range(key, 300, 3))


def test_key_by_after_union_joins_the_keys_of_all_streams(env: fn.Environment, run: Run) -> None:
    both = env.from_collection(["a", "b"]).union(env.from_collection(["b", "c"]))
    counts: dict[str, int] = {}
    for key, count in run(both.key_by(lambda word: word).count()):
        counts[key] = max(count, counts.get(key, 0))
    assert counts == {"a": 1, "b": 2, "c": 1}


def test_a_key_that_cannot_be_hashed_is_an_error_that_names_it_and_its_record(env: fn.Environment, run: Run) -> None:
    with pytest.raises(fn.errors.CodecError, match=r"on record 7: .*its key is \[7\]: list cannot be a key"):
        run(env.from_collection([7]).key_by(lambda n: [n]).count())
