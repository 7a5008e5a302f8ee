from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import flownet as fn


class Files(fn.Sink[int]):
    """Logs every call into a file of its subtask."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, ctx: fn.TaskContext) -> None:
        self.path = os.path.join(self.folder, str(ctx.subtask))
        self.log("open")

    def write(self, records: list[int]) -> None:
        assert records
        for record in records:
            self.log(str(record))

    def flush(self) -> None:
        self.log("flush")

    def close(self) -> None:
        self.log("close")

    def log(self, line: str) -> None:
        with open(self.path, "a") as file:
            file.write(f"{line}\n")


def test_each_subtask_has_a_sink_of_its_own(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(range(10)).rebalance().sink_to(Files(tmp_path))
    env.execute(workers)
    assert (tmp_path / "0").read_text().split() == ["open", *map(str, range(0, 10, 2)), "flush", "close"]
    assert (tmp_path / "1").read_text().split() == ["open", *map(str, range(1, 10, 2)), "flush", "close"]


def test_the_operator_is_named_after_the_class(env: fn.Environment, tmp_path: Path) -> None:
    env.from_collection([1]).sink_to(Files(tmp_path))
    assert "Files" in env.explain()


def test_a_sink_is_closed_and_not_flushed_when_the_job_fails(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    env.from_collection(["1", "x"]).map(int).set_parallelism(1).sink_to(Files(tmp_path)).set_parallelism(1)
    with pytest.raises(fn.errors.OperatorError):
        env.execute(workers)
    log = (tmp_path / "0").read_text().split()
    assert (log[0], log[-1]) == ("open", "close")
    assert "flush" not in log


def test_an_exception_of_a_sink_names_it(env: fn.Environment, workers: int) -> None:
    class Broken(fn.Sink[int]):
        def write(self, records: list[int]) -> None:
            raise OSError("disk full")

    env.from_collection([1]).sink_to(Broken())
    with pytest.raises(fn.errors.OperatorError, match="operator 'Broken'") as caught:
        env.execute(workers)
    assert (caught.value.error_type, caught.value.message) == ("OSError", "disk full")


def test_sink_to_wants_an_instance(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match="not the class Files: make an instance of it"):
        env.from_collection([1]).sink_to(Files)  # type: ignore[arg-type]


class Unclosable(fn.Sink[Any]):
    """As the example of `flownet.Sink` on a disk that is full: what was written fails to get there as it is closed."""

    def write(self, records: list[Any]) -> None:
        if "x" in records:
            raise ValueError("a bad record")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def test_what_a_sink_cannot_write_as_it_is_closed_fails_the_job(workers: int) -> None:
    env = fn.Environment()
    env.from_collection(range(100)).sink_to(Unclosable())
    with pytest.raises(fn.errors.OperatorError, match="No space left on device") as caught:
        env.execute(workers)
    assert (caught.value.operator, caught.value.error_type) == ("Unclosable", "OSError")


def test_the_failure_before_is_told_and_not_that_of_closing(workers: int) -> None:
    env = fn.Environment()
    env.from_collection([1, "x"]).sink_to(Unclosable())
    with pytest.raises(fn.errors.OperatorError, match="a bad record"):
        env.execute(workers)
