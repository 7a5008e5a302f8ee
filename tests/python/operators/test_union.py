from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_union_merges_streams(env: fn.Environment, run: Run) -> None:
    streams = [env.from_collection(range(start, 30, 3)) for start in range(3)]
    assert sorted(run(streams[0].union(*streams[1:]).map(lambda n: n))) == list(range(30))


def test_union_of_streams_with_different_partitioning(env: fn.Environment, run: Run) -> None:
    dealt, everywhere = env.from_collection([1, 2, 3, 4]).rebalance(), env.from_collection([10]).broadcast()
    assert sorted(run(dealt.union(everywhere).map(lambda n: n))) == [1, 2, 3, 4, 10, 10]


def test_union_with_itself_doubles_each_record(env: fn.Environment, run: Run) -> None:
    numbers = env.from_collection([1, 2])
    assert sorted(run(numbers.union(numbers).map(lambda n: n))) == [1, 1, 2, 2]


def test_union_keeps_the_order_of_each_stream(env: fn.Environment, run: Run) -> None:
    small, large = env.from_collection(range(500)), env.from_collection(range(1000, 1500))
    merged = run(small.union(large).map(lambda n: n).set_parallelism(1))
    assert [n for n in merged if n < 1000] == list(range(500))
    assert [n for n in merged if n >= 1000] == list(range(1000, 1500))


def test_a_union_goes_straight_into_a_sink(env: fn.Environment, run: Run) -> None:
    assert sorted(run(env.from_collection([1]).union(env.from_collection([2])))) == [1, 2]


def test_union_of_two_environments_is_refused_at_once(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match="one environment, and these belong to two"):
        env.from_collection([1]).union(fn.Environment().from_collection([2]))


def test_union_wants_streams(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match="merges streams, not list"):
        env.from_collection([1]).union([2])  # type: ignore[arg-type]
