from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.planning.hashing import Hashing

if TYPE_CHECKING:
    from tests.python.conftest import Run


class WhoGot(fn.Sink[Any]):
    """Writes down which subtask got which record."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, ctx: fn.TaskContext) -> None:
        self.path = os.path.join(self.folder, str(ctx.subtask))

    def write(self, records: list[int]) -> None:
        with open(self.path, "a") as file:
            file.writelines(f"{record}\n" for record in records)


def received(folder: Path) -> dict[int, list[int]]:
    return {int(path.name): [int(line) for line in path.read_text().split()] for path in folder.iterdir()}


def test_rebalance_deals_the_records_in_turn(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(range(100)).rebalance().sink_to(WhoGot(tmp_path)).set_parallelism(4)
    env.execute(workers)
    assert {subtask: len(records) for subtask, records in received(tmp_path).items()} == dict.fromkeys(range(4), 25)


def test_rescale_deals_to_a_share_of_the_subtasks(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    numbers = env.from_collection(range(100)).rebalance().map(lambda n: n).set_parallelism(2)
    numbers.rescale().sink_to(WhoGot(tmp_path)).set_parallelism(4)
    env.execute(workers)
    got = received(tmp_path)
    assert sorted(got[0] + got[1] + got[2] + got[3]) == list(range(100))
    assert len({n % 2 for n in got[0] + got[1]}) == 1, "the first half of the subtasks serves one sender"
    assert [len(got[subtask]) for subtask in range(4)] == [25, 25, 25, 25]


def test_broadcast_sends_every_record_to_all_subtasks(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(range(50)).broadcast().sink_to(WhoGot(tmp_path)).set_parallelism(3)
    env.execute(workers)
    assert received(tmp_path) == {subtask: list(range(50)) for subtask in range(3)}


def test_forward_keeps_records_in_their_subtask(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    numbers = env.from_collection(range(50)).partition_custom(lambda n, subtasks: n % subtasks)
    numbers.map(lambda n: n).forward().sink_to(WhoGot(tmp_path)).disable_chaining()
    env.execute(workers)
    assert received(tmp_path) == {0: list(range(0, 50, 2)), 1: list(range(1, 50, 2))}


def test_forward_between_unequal_parallelisms_is_refused_before_the_job_starts(env: fn.Environment) -> None:
    env.from_collection([1]).forward().map(str).set_parallelism(3).print()
    with pytest.raises(fn.errors.PlanError, match=r"forward edge from 'from_collection' \(parallelism 1\) to 'map'"):
        env.explain()


def test_without_a_word_unequal_parallelisms_are_rebalanced(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(range(30)).sink_to(WhoGot(tmp_path)).set_parallelism(3)
    env.execute(workers)
    assert [len(records) for _, records in sorted(received(tmp_path).items())] == [10, 10, 10]


def test_partition_custom_sends_records_where_it_is_told(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    chosen = env.from_collection(range(30)).partition_custom(lambda key, subtasks: int(key) % subtasks, key=str)
    chosen.sink_to(WhoGot(tmp_path)).set_parallelism(3)
    env.execute(workers)
    assert received(tmp_path) == {subtask: list(range(subtask, 30, 3)) for subtask in range(3)}


@pytest.mark.parametrize("target", [-1, 2, "0", None])
def test_a_partition_that_does_not_exist_names_operator_and_record(
    env: fn.Environment, run: Run, target: object
) -> None:
    stream = env.from_collection([5]).name("five").partition_custom(lambda n, subtasks: target)  # type: ignore[arg-type,return-value]
    with pytest.raises(fn.errors.OperatorError, match=r"operator 'five -> partition_custom'.*record 5") as caught:
        run(stream.map(lambda n: n))
    assert "no subtask from 0 to 1" in str(caught.value)


def test_the_last_word_on_partitioning_counts(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(range(10)).rebalance().broadcast().sink_to(WhoGot(tmp_path))
    env.execute(workers)
    assert received(tmp_path) == {0: list(range(10)), 1: list(range(10))}


def by_hash(word: str, subtasks: int) -> int:
    return hash(word) % subtasks


def test_one_key_goes_to_one_subtask_whichever_worker_it_comes_from(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=4)
    words = env.from_collection([f"word {n % 10}" for n in range(400)]).rebalance().map(str)
    words.partition_custom(by_hash).map(lambda word: int(word[5:])).sink_to(WhoGot(tmp_path))
    env.execute(workers=2)
    got = [set(records) for records in received(tmp_path).values()]
    assert sum(map(len, got)) == 10, "no word is with two of them"


@pytest.mark.parametrize("function", [by_hash, lambda word, subtasks: max(hash(part) for part in word) % subtasks])
def test_a_partitioner_that_hashes_in_this_process_and_in_workers_is_refused(
    function: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    env = fn.Environment(parallelism=2)
    here = env.from_iterable(iter("12"))
    there = env.from_collection(["1", "2"]).rebalance().map(str)
    here.union(there).partition_custom(function).sink_to(WhoGot(tmp_path))
    with pytest.raises(fn.errors.PlanError, match=r"in front of 'WhoGot' calls hash\(\).*set PYTHONHASHSEED"):
        env.execute(workers=2)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    env.execute(workers=2)


def test_a_partitioner_that_hashes_is_refused_where_every_worker_has_a_seed_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As inside of a Spark that sets none."""
    loads = pickle.dumps(Hashing(by_hash))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    assert pickle.loads(loads)("a", 1) == 0, "in the process that made it"
    child = os.fork()
    if child == 0:
        try:
            pickle.loads(loads)
        except ValueError as error:
            os._exit(0 if "spark.executorEnv.PYTHONHASHSEED" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
