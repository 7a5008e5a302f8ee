from __future__ import annotations

from typing import TYPE_CHECKING

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_reduce_emits_the_value_so_far_for_each_record(env: fn.Environment, run: Run) -> None:
    sums = run(env.from_collection([1, 2, 3]).key_by(lambda _: "all").reduce(lambda a, b: a + b))
    assert sums == [1, 3, 6]


def test_reduce_works_on_each_key_by_itself(env: fn.Environment, run: Run) -> None:
    words = env.from_collection(["to", "too", "be", "bee", "b"]).key_by(lambda word: word[0])
    assert sorted(run(words.reduce(lambda a, b: max(a, b, key=len)))) == ["be", "bee", "bee", "to", "too"]


def test_reduce_of_a_single_record_does_not_call_the_function(env: fn.Environment, run: Run) -> None:
    def never(a: int, b: int) -> int:
        raise AssertionError((a, b))

    assert sorted(run(env.from_collection([1, 2]).key_by(lambda n: n).reduce(never))) == [1, 2]


def test_keys_of_any_length_stay_apart(env: fn.Environment, run: Run) -> None:
    keys = ["x" * length for length in range(200)] + [("x" * length, length) for length in range(40)]
    records = [(key, 1) for key in keys] * 3
    stream = env.from_collection(records).rebalance().key_by(lambda record: record[0])
    sums = run(stream.reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert sorted(sums, key=repr) == sorted(((key, n) for key in keys for n in (1, 2, 3)), key=repr)
