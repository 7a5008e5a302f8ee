from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_name_appears_in_the_plan_and_in_errors(env: fn.Environment, run: Run) -> None:
    parsed = env.from_collection(["x"]).map(int).name("parse")
    assert "parse" in env.explain()
    with pytest.raises(fn.errors.OperatorError, match="operator 'parse'"):
        run(parsed)


def test_a_uid_names_one_operator(env: fn.Environment) -> None:
    first = env.from_collection([1]).uid("one")
    first.uid("one")
    with pytest.raises(fn.errors.DuplicateUidError, match="uid 'one' of operator 'map' is taken by") as caught:
        first.map(str).uid("one")
    assert (caught.value.uid, caught.value.operator) == ("one", "map")


@pytest.mark.parametrize("parallelism", [0, -1, 32_769, 1.5, "2", True, None])
def test_parallelism_out_of_range_is_refused_at_once(env: fn.Environment, parallelism: Any) -> None:
    with pytest.raises(fn.errors.ConfigError, match="parallelism="):
        env.from_collection([1]).map(str).set_parallelism(parallelism)
    with pytest.raises(fn.errors.ConfigError, match="parallelism="):
        fn.Environment(parallelism)


def test_set_parallelism_sets_the_number_of_subtasks(env: fn.Environment, workers: int) -> None:
    env.from_collection(range(10)).map(str).set_parallelism(3).disable_chaining().name("three").collect()
    result = env.execute(workers)
    assert [task.parallelism for task in result.tasks if task.name == "three"] == [3]


def test_subtasks_run_on_the_workers_they_are_placed_on(env: fn.Environment) -> None:
    def pid(record: tuple[int, ...]) -> tuple[int, ...]:
        return (*record, os.getpid())

    start = env.from_iterable(lambda subtask, subtasks: [(subtask,)]).place_on(2, 1)
    pids = start.map(pid).place_on(2).map(pid).place_on(2).map(pid).place_on(1).collect()
    env.execute(2)
    (_, two, two_again, one), (_, *others) = sorted(pids)
    assert two == two_again != one
    assert others == [two, two, one]
    assert "on worker 2" in env.explain(2)
    assert len(pids) == 2


def test_placing_is_ignored_where_there_are_no_workers(env: fn.Environment) -> None:
    numbers = env.from_collection([1]).map(str).place_on(7).collect()
    env.execute(0)
    assert list(numbers) == ["1"]


@pytest.mark.parametrize("places", [(), (0,), (1, 1), (-1,), ("1",), (1.0,), (True,), (1025,)])
def test_an_impossible_place_is_refused_at_once(env: fn.Environment, places: tuple[Any, ...]) -> None:
    with pytest.raises(fn.errors.ConfigError, match="place_on"):
        env.from_collection([1]).map(str).place_on(*places)


def test_a_worker_that_the_job_has_not_is_named_before_anything_starts(env: fn.Environment) -> None:
    env.from_collection([1]).map(str).name("far").place_on(3).print()
    with pytest.raises(fn.errors.PlanError, match="'far' is placed on worker 3, but the job has 2") as caught:
        env.execute(2)
    assert caught.value.operator == "far"


def test_what_runs_in_this_process_cannot_be_placed_on_a_worker(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match="runs in this process and on no worker"):
        env.from_iterable([1]).place_on(1)


def test_what_runs_once_by_nature_cannot_be_made_parallel(env: fn.Environment) -> None:
    for source in (env.from_collection([1]), env.from_iterable([1]), env.socket_text("localhost", 9)):
        assert source.set_parallelism(1) is source
        with pytest.raises(fn.errors.PlanError, match="runs once, so its parallelism cannot be 2"):
            source.set_parallelism(2)


def test_what_describes_an_operator_is_refused_where_there_is_none(env: fn.Environment) -> None:
    numbers = env.from_collection([1])
    describe: list[Callable[[fn.Stream[int]], object]] = [
        lambda stream: stream.name("x"),
        lambda stream: stream.uid("x"),
        lambda stream: stream.set_parallelism(1),
        lambda stream: stream.place_on(1),
        lambda stream: stream.start_new_chain(),
        lambda stream: stream.disable_chaining(),
    ]
    for stream, method in itertools.product(
        (numbers.union(numbers), numbers.rebalance(), numbers.broadcast()), describe
    ):
        with pytest.raises(fn.errors.PlanError, match="describes an operator"):
            method(stream)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_names_must_say_something(env: fn.Environment, name: Any) -> None:
    with pytest.raises(fn.errors.ConfigError, match="must be a text that is not empty"):
        env.from_collection([1]).name(name)
    with pytest.raises(fn.errors.ConfigError, match="must be a text that is not empty"):
        env.from_collection([1]).uid(name)


def test_forward_edges_of_equal_parallelism_share_a_task(env: fn.Environment, workers: int) -> None:
    env.from_collection([1]).map(str).set_parallelism(1).map(len).set_parallelism(1).print("chained")
    assert [task.name for task in env.execute(workers).tasks][0].startswith("from_collection -> map -> map")


def test_chains_break_where_they_are_told_to(env: fn.Environment, workers: int) -> None:
    alone = fn.Environment()
    numbers = alone.from_collection([1, 2]).map(lambda n: n + 1).start_new_chain().name("b").map(lambda n: n).name("c")
    collected = numbers.map(lambda n: n).disable_chaining().name("d").map(lambda n: n).name("e").collect()
    names = [task.name for task in alone.execute(workers).tasks]
    assert names[:3] == ["from_collection", "b -> c", "d"]
    assert names[3].startswith("e")
    assert sorted(collected) == [2, 3]
