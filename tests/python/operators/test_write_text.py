from __future__ import annotations

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
