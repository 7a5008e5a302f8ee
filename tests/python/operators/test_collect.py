from __future__ import annotations

import pytest

import flownet as fn


def test_the_result_is_empty_before_the_job_has_run(env: fn.Environment) -> None:
    collected = env.from_collection([1]).collect()
    assert (len(collected), list(collected), repr(collected)) == (0, [], "CollectedRecords([])")


def test_the_result_is_a_sequence(env: fn.Environment, workers: int) -> None:
    collected = env.from_collection(range(20)).collect()
    env.execute(workers)
    assert (collected[0], collected[-1], collected[3:5], len(collected), 7 in collected) == (0, 19, [3, 4], 20, True)
    assert repr(collected) == "CollectedRecords([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ... 10 more])"
    assert collected == list(range(20))


def test_many_records_arrive_each_once(env: fn.Environment, workers: int) -> None:
    collected = env.from_collection(range(50_000)).rebalance().map(lambda n: n).collect()
    env.execute(workers)
    assert sorted(collected) == list(range(50_000))


def test_records_can_be_handed_over_while_the_job_runs(env: fn.Environment, workers: int) -> None:
    into: list[int] = []
    collected = env.from_collection(range(1000)).collect(into)
    env.execute(workers)
    assert into == list(range(1000))
    assert len(collected) == 0


def test_an_exception_of_the_receiver_fails_the_job(env: fn.Environment, workers: int) -> None:
    class Full:
        def extend(self, records: list[int]) -> None:
            raise MemoryError("no more")

    env.from_collection([1]).collect(into=Full())
    with pytest.raises(fn.errors.OperatorError, match="operator 'collect'") as caught:
        env.execute(workers)
    assert caught.value.error_type == "MemoryError"


def test_a_receiver_must_have_extend(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match=r"extend\(list\), not int 5"):
        env.from_collection([1]).collect(into=5)  # type: ignore[arg-type]
