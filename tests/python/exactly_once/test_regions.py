"""Pipelines of one job that share no exchange: one fails and begins anew, the others run on and are told nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

from .failures import FailsOnce, lines, newest_line


class Pause:
    """A source waits before a number until something holds. Checkpoints go on meanwhile."""

    def __init__(self, number: int, until: Callable[[], bool]) -> None:
        self.number, self.until = number, until


class Numbers:
    """Counts up to a number, at the rate of the source, and writes a file each time that it begins."""

    def __init__(self, name: str, until: int, begun: Path, pause: Pause | None = None) -> None:
        self.name, self.until, self.begun, self.pause = name, until, begun, pause

    def __call__(self, position: int | None) -> Iterator[tuple[int, str] | None]:
        self.begun.mkdir(exist_ok=True)
        (self.begun / f"{self.name}-{os.getpid()}-{time.monotonic_ns()}").touch()
        for number in range(position or 0, self.until):
            while self.pause is not None and number == self.pause.number and not self.pause.until():
                yield None
            yield number + 1, f"{self.name}{number}"


class DiesOnce:
    """Kills its process when it is given a record for the first time in all runs."""

    def __init__(self, record: str, mark: Path) -> None:
        self.record, self.mark = record, mark

    def __call__(self, record: str) -> str:
        if record == self.record and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return record


def environment(tmp_path: Path, **settings: Any) -> fn.Environment:
    env = fn.Environment(parallelism=1, buffer_timeout="5ms", restart="fixed:3:10ms", **settings)
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    return env


def pipeline(
    env: fn.Environment, name: str, function: Any, tmp_path: Path, *places: int, pause: Pause | None = None
) -> None:
    """A source, an exchange by key, and a sink that is transactional."""
    read = env.from_generator(Numbers(name, 800, tmp_path / "begun", pause), rate_limit=800).name(f"read {name}")
    mapped = read.place_on(*places).map(function).name(f"map {name}").place_on(*places)
    counted = mapped.key_by(lambda word: word[-1]).count().name(f"count {name}").place_on(*places)
    said = counted.map(lambda pair: f"{pair[0]} {pair[1]}").place_on(*places)
    said.write_text(tmp_path / name).place_on(*places)


def same(record: str) -> str:
    return record


def outlasts(tmp_path: Path, *others: str) -> Pause:
    """Before its last record a pipeline waits until others have begun anew, so it runs while they fail."""
    return Pause(799, lambda: all(begun(tmp_path, name) >= 2 for name in others))


COUNTS = sorted(f"{digit} {number}" for digit in range(10) for number in range(1, 81))


def begun(tmp_path: Path, name: str) -> int:
    return sum(1 for file in (tmp_path / "begun").iterdir() if file.name.startswith(f"{name}-"))


def test_a_pipeline_that_raises_begins_anew_and_the_other_one_runs_on(workers: int, tmp_path: Path) -> None:
    env = environment(tmp_path)
    # Line 0 of the log names the writer; the second checkpoint is complete at line 2.
    checkpointed = Pause(500, lambda: newest_line(tmp_path / "checkpoints") >= 2)
    pipeline(env, "a", FailsOnce("a500", tmp_path / "failed"), tmp_path, 1, pause=checkpointed)
    pipeline(env, "b", same, tmp_path, 1, pause=outlasts(tmp_path, "a"))
    result = env.execute(workers)
    assert lines(tmp_path / "a") == COUNTS
    assert lines(tmp_path / "b") == COUNTS
    assert (begun(tmp_path, "a"), begun(tmp_path, "b")) == (2, 1)
    (restart,) = result.restarts
    assert "ValueError: once" in restart.cause
    assert restart.resumed_from is not None
    assert all(" a" in task for task in restart.tasks), restart.tasks
    assert len(restart.tasks) == 2
    read = {task.name: (task.records_in, task.began_seconds) for task in result.tasks}
    assert read["read b -> map b"] == (800, 0.0), "it counts on, over the restart"
    assert read["read a -> map a"][0] < 800
    assert read["read a -> map a"][1] >= restart.at_seconds, "its tasks began anew behind the failure"
    assert ", of 'read a -> map a' and 1 more: " in str(result)


def test_what_lay_in_a_lost_worker_begins_anew_and_what_did_not_runs_on(tmp_path: Path) -> None:
    env = environment(tmp_path)
    pipeline(env, "a", DiesOnce("a500", tmp_path / "failed"), tmp_path, 1)
    pipeline(env, "b", same, tmp_path, 1, pause=outlasts(tmp_path, "a"))
    pipeline(env, "c", same, tmp_path, 2, pause=outlasts(tmp_path, "a"))
    result = env.execute(2)
    for name in "abc":
        assert lines(tmp_path / name) == COUNTS
    assert [begun(tmp_path, name) for name in "abc"] == [2, 2, 1]
    (restart,) = result.restarts
    assert "killed by signal 9" in restart.cause
    assert len(restart.tasks) == 4
    assert not any(" c" in task for task in restart.tasks)


def test_pipelines_that_fail_together_are_one_restart(workers: int, tmp_path: Path) -> None:
    env = environment(tmp_path)
    for name in "ab":
        pipeline(env, name, FailsOnce(f"{name}400", tmp_path / f"failed {name}"), tmp_path, 1)
    pipeline(env, "c", same, tmp_path, 1, pause=outlasts(tmp_path, "a", "b"))
    result = env.execute(workers)
    for name in "abc":
        assert lines(tmp_path / name) == COUNTS
    assert begun(tmp_path, "c") == 1
    assert 1 <= result.restarted <= 2


def test_a_pipeline_that_has_ended_stays_so_while_another_one_fails(workers: int, tmp_path: Path) -> None:
    env = environment(tmp_path)
    pipeline(env, "a", FailsOnce("a700", tmp_path / "failed"), tmp_path, 1)
    env.from_generator(Numbers("b", 10, tmp_path / "begun")).write_text(tmp_path / "b")
    result = env.execute(workers)
    assert lines(tmp_path / "a") == COUNTS
    assert lines(tmp_path / "b") == [f"b{number}" for number in range(10)]
    assert (result.restarted, begun(tmp_path, "a"), begun(tmp_path, "b")) == (1, 2, 1)


def test_a_job_that_may_not_restart_fails_with_its_first_pipeline(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=1, restart="none")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    pipeline(env, "a", FailsOnce("a100", tmp_path / "failed"), tmp_path, 1)
    pipeline(env, "b", same, tmp_path, 1)
    with pytest.raises(fn.errors.OperatorError, match="once"):
        env.execute(workers)


def test_without_checkpoints_only_what_failed_is_read_again(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=1, restart="fixed:1:10ms")
    seen = {}
    for name, function in (("a", FailsOnce("a300", tmp_path / "failed")), ("b", same)):
        source = env.from_generator(Numbers(name, 600, tmp_path / "begun"), rate_limit=1000)
        seen[name] = source.map(function).collect()
    result = env.execute(workers)
    assert list(seen["b"]) == [f"b{number}" for number in range(600)]
    assert list(seen["a"])[-600:] == [f"a{number}" for number in range(600)]
    assert (result.restarted, begun(tmp_path, "a"), begun(tmp_path, "b")) == (1, 2, 1)


def test_a_savepoint_that_is_asked_for_while_a_pipeline_is_down_is_taken_when_it_is_back(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=1, restart="fixed:3:400ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    for name, function in (("a", FailsOnce("a300", tmp_path / "failed")), ("b", same)):
        source = env.from_generator(Numbers(name, 2000, tmp_path / "begun"), rate_limit=1000).uid(f"read {name}")
        source.map(function).write_text(tmp_path / name).uid(f"write {name}")
    with env.execute_async(1) as running:
        while running.status().state != "restarting":
            time.sleep(0.005)
        saved = running.savepoint(tmp_path / "saved")
        status = running.status()
        running.wait()
    assert (status.restarted, status.state) == (1, "running")
    assert saved.checkpoint > 0
    for name in "ab":
        assert lines(tmp_path / name) == sorted(f"{name}{number}" for number in range(2000))
    assert begun(tmp_path, "b") == 1
