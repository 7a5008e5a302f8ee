from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_map_turns_each_record_into_another(env: fn.Environment, run: Run) -> None:
    assert sorted(run(env.from_collection(range(100)).rebalance().map(lambda n: n * n))) == [n * n for n in range(100)]


def test_map_keeps_the_order_of_one_subtask(env: fn.Environment, run: Run) -> None:
    assert run(env.from_collection(range(1000)).map(str).set_parallelism(1)) == [str(n) for n in range(1000)]


def test_map_passes_none_on_as_a_record(env: fn.Environment, run: Run) -> None:
    assert run(env.from_collection([1, 2]).map(lambda n: None)) == [None, None]


def test_a_stream_can_be_used_twice(env: fn.Environment, workers: int) -> None:
    numbers = env.from_collection(range(10)).map(lambda n: n + 1)
    doubled, halved = numbers.map(lambda n: 2 * n).collect(), numbers.map(lambda n: n / 2).collect()
    env.execute(workers)
    assert sorted(doubled) == [2 * n for n in range(1, 11)]
    assert sorted(halved) == [n / 2 for n in range(1, 11)]


def test_map_refuses_what_cannot_be_called(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match=r"map\(\) needs a function, not int 3"):
        env.from_collection([1]).map(3)  # type: ignore[call-overload]
