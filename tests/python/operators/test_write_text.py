from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import flownet as fn


def test_each_subtask_writes_a_file_of_its_own(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(range(100)).rebalance().write_text(tmp_path / "new" / "out")
    env.execute(workers)
    files = sorted((tmp_path / "new" / "out").iterdir())
    assert [file.name for file in files] == ["part-0.txt", "part-1.txt"]
    assert sorted(int(line) for file in files for line in file.read_text().splitlines()) == list(range(100))


def test_records_are_written_as_str_writes_them(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(["gr\u00fcn", 1.5, ("a", 1), None]).write_text(tmp_path).set_parallelism(1)
    env.execute(workers)
    assert (tmp_path / "part-0.txt").read_text(encoding="utf-8") == "gr\u00fcn\n1.5\n('a', 1)\nNone\n"


def test_a_subtask_that_fails_leaves_no_file_with_a_final_name(
    env: fn.Environment, workers: int, tmp_path: Path
) -> None:
    env.from_collection(["1", "x"]).map(int).set_parallelism(1).write_text(tmp_path).set_parallelism(1)
    with pytest.raises(fn.errors.OperatorError):
        env.execute(workers)
    assert not list(tmp_path.glob("*.txt"))


def test_a_path_that_is_a_file_is_refused_at_once(env: fn.Environment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(fn.errors.ConfigError, match="is a file; name a folder"):
        env.from_collection([1]).write_text(tmp_path / "file")


def test_a_run_with_fewer_subtasks_leaves_no_part_of_the_run_before(workers: int, tmp_path: Path) -> None:
    for parallelism in (4, 2):
        env = fn.Environment(parallelism=parallelism)
        env.from_collection(range(100)).rebalance().write_text(tmp_path)
        env.execute(workers)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["part-0.txt", "part-1.txt"]


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_a_job_that_does_not_end_well_leaves_no_file(workers: int, how: str, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    bad = ["x"] if how == "fail" else []
    env.from_iterable(itertools.chain(["1"] * 10, bad, itertools.repeat("2"))).rebalance().map(int).write_text(tmp_path)
    with env.execute_async(workers) as job:
        if how == "cancel":
            while len(list(tmp_path.iterdir())) < 2:
                job.status()
            job.cancel()
        with pytest.raises(fn.errors.CancelledError if how == "cancel" else fn.errors.OperatorError):
            job.wait()
    assert not list(tmp_path.iterdir())


def test_two_sinks_on_one_folder_are_refused_at_once(env: fn.Environment, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    numbers = env.from_collection([1])
    numbers.write_text(tmp_path)
    for other in (tmp_path, tmp_path / "link"):
        with pytest.raises(fn.errors.ConfigError, match="another write_text writes there"):
            numbers.write_text(other)


def test_two_jobs_on_one_folder_do_not_take_each_others_file(workers: int, tmp_path: Path) -> None:
    first = fn.Environment(buffer_timeout="1ms")
    first.from_iterable(itertools.count()).write_text(tmp_path)
    second = fn.Environment()
    second.from_collection([1]).write_text(tmp_path)
    with first.execute_async(workers) as job:
        while not list(tmp_path.iterdir()):
            job.status()
        with pytest.raises(fn.errors.OperatorError, match="another sink is writing it"):
            second.execute(workers)
        assert job.status().state == "running"
        assert [file.name for file in tmp_path.iterdir()] == ["part-0.txt.inprogress"]
