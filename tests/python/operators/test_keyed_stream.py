"""A keyed stream is a stream: plain operators and sinks behind ``key_by`` run where the key is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.codec import subtask_of

if TYPE_CHECKING:
    from tests.python.conftest import Run

PAIRS = [(f"key {n % 7}", n) for n in range(210)]


def key(pair: tuple[str, int]) -> str:
    return pair[0]


def keyed(env: fn.Environment) -> fn.KeyedStream[str, tuple[str, int]]:
    return env.from_collection(PAIRS).key_by(key)


class Where(fn.Sink[Any]):
    """Writes down which subtask got which record."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, ctx: fn.TaskContext) -> None:
        self.path = os.path.join(self.folder, f"part-{ctx.subtask}.txt")

    def write(self, records: list[Any]) -> None:
        with open(self.path, "a") as file:
            file.writelines(f"{record}\n" for record in records)


def received(folder: Path) -> dict[int, list[str]]:
    return {int(path.stem.split("-")[1]): path.read_text().splitlines() for path in folder.glob("part-*.txt")}


def expected(subtasks: int, line: Callable[[tuple[str, int]], object]) -> dict[int, list[str]]:
    """Each record in the subtask of its key, in the order of the one sender."""
    found: dict[int, list[str]] = {}
    for pair in PAIRS:
        found.setdefault(subtask_of(key(pair), subtasks), []).append(str(line(pair)))
    return found


def test_map_behind_key_by_runs_in_the_subtask_of_the_key(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    keyed(env).map(lambda pair: pair[1] + 1).sink_to(Where(tmp_path))
    env.execute(workers)
    assert received(tmp_path) == expected(2, lambda pair: pair[1] + 1)


def test_filter_and_flat_map_behind_key_by_see_the_records_alone(env: fn.Environment, workers: int) -> None:
    odd = keyed(env).filter(lambda pair: pair[1] % 2 == 1).collect()
    parts = keyed(env).flat_map(lambda pair: [pair[0], pair[1]]).collect()
    env.execute(workers)
    assert sorted(odd) == sorted(pair for pair in PAIRS if pair[1] % 2 == 1)
    assert sorted(map(str, parts)) == sorted(str(part) for pair in PAIRS for part in pair)


@pytest.mark.parametrize("value", [1, 1.0, True, "word", None, (1, "a")])
def test_a_record_that_is_its_own_key_comes_as_it_was_given(env: fn.Environment, run: Run, value: object) -> None:
    (received,) = run(env.from_collection([value]).key_by(lambda record: record).map(lambda record: [record]))
    assert (received, type(received[0])) == ([value], type(value))


def test_the_parallelism_behind_key_by_may_differ(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    keyed(env).sink_to(Where(tmp_path)).set_parallelism(3)
    env.execute(workers)
    assert received(tmp_path) == expected(3, lambda pair: pair)


def test_write_text_and_collect_take_a_keyed_stream(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    stream = keyed(env)
    stream.write_text(tmp_path)
    collected = stream.collect()
    env.execute(workers)
    assert received(tmp_path) == expected(2, lambda pair: pair)
    assert collected == PAIRS


def test_print_takes_a_keyed_stream(env: fn.Environment, capfd: pytest.CaptureFixture[str]) -> None:
    env.from_collection(["to", "be"]).key_by(str).print()
    env.execute()
    assert sorted(line.split("> ")[-1] for line in capfd.readouterr().out.splitlines()) == ["be", "to"]


def test_keyed_and_plain_streams_unite(env: fn.Environment, run: Run) -> None:
    united = keyed(env).union(env.from_collection([("plain", 1)]), keyed(env))
    assert sorted(run(united.map(lambda pair: pair))) == sorted([*PAIRS, *PAIRS, ("plain", 1)])


def test_one_keyed_stream_serves_keyed_and_plain_operators(env: fn.Environment, workers: int) -> None:
    stream = keyed(env)
    mapped, counts = stream.map(lambda pair: pair[1]).collect(), stream.count().collect()
    env.execute(workers)
    assert sorted(mapped) == list(range(210))
    assert {name: max(n for other, n in counts if other == name) for name, _ in counts} == {
        f"key {n}": 30 for n in range(7)
    }


def test_a_second_key_by_takes_the_place_of_the_first(env: fn.Environment, run: Run) -> None:
    counts = dict(run(keyed(env).key_by(lambda pair: pair[1] % 3).count()))
    assert counts == {0: 70, 1: 70, 2: 70}


def test_a_partitioning_behind_key_by_takes_its_place(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    keyed(env).rebalance().sink_to(Where(tmp_path))
    env.execute(workers)
    assert [len(lines) for lines in received(tmp_path).values()] == [105, 105]


def test_a_failure_behind_key_by_shows_the_record_without_its_key(env: fn.Environment, run: Run) -> None:
    with pytest.raises(fn.errors.OperatorError, match="operator 'parse'") as caught:
        run(env.from_collection(["a;x"]).key_by(lambda line: line[0]).map(int).name("parse"))
    assert caught.value.record == "'a;x'"


def test_more_subtasks_than_key_groups_are_refused_for_plain_operators_too() -> None:
    env = fn.Environment(parallelism=4, max_parallelism=2)
    keyed(env).map(str).print()
    with pytest.raises(fn.errors.PlanError, match="max_parallelism is 2"):
        env.execute()


def test_what_describes_an_operator_is_refused_behind_key_by_by_that_name(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match=r"key_by\(\) is none: call it before key_by\(\)"):
        keyed(env).name("x")
    with pytest.raises(fn.errors.PlanError, match=r"call it before partition_custom\(\)"):
        keyed(env).partition_custom(lambda record, subtasks: 0).uid("x")
