"""Failures that repeat without progress: restart="auto" gives up, and still retries what may heal."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors
from flownet.connectors.transient import is_transient


class Fails:
    """Raises on one record, each time."""

    def __init__(self, record: int, error: Exception) -> None:
        self.record, self.error = record, error

    def __call__(self, record: int) -> int:
        if record == self.record:
            raise self.error
        return record


class CannotCommit(fn.TransactionalSink[int]):
    """A sink that commits nothing."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.records: list[int] = []

    def write(self, records: list[int]) -> None:
        self.records.extend(records)

    def prepare_commit(self) -> list[int] | None:
        records, self.records = self.records, []
        return records or None

    def commit(self, prepared: list[int]) -> None:
        raise ValueError("the table is gone")


def poison_record(env: fn.Environment, folder: Path) -> None:
    env.from_collection(list(range(1000))).map(Fails(500, ValueError("bad"))).write_text(folder / "out")


def poison_line(env: fn.Environment, folder: Path) -> None:
    (folder / "in.csv").write_text("a\n" + "".join(f"{'x' if n == 500 else n}\n" for n in range(1000)))
    env.read_csv(folder / "in.csv", schema={"a": "int64"}).write_csv(folder / "out")


def poison_row(env: fn.Environment, folder: Path) -> None:
    rows = env.from_collection([{"a": 1, "b": int(n != 500)} for n in range(1000)]).to_rows(
        {"a": "int64", "b": "int64"}
    )
    rows.with_columns(c=fn.col("a") // fn.col("b")).write_csv(folder / "out")


def poison_commit(env: fn.Environment, folder: Path) -> None:
    env.from_collection(list(range(100))).sink_to(CannotCommit())


def poison_snapshot(env: fn.Environment, folder: Path) -> None:
    database = sqlite3.connect(folder / "out.db")
    database.execute("create table t (a check (a < 50))")
    database.close()
    env.from_collection(list(range(100))).sink_to(fn.SqliteSink(folder / "out.db", "t", columns=["a"]))


POISONED: list[tuple[Callable[[fn.Environment, Path], None], type[errors.FlownetError], str]] = [
    (poison_record, errors.OperatorError, "failed on record 500"),
    (poison_line, errors.OperatorError, "invalid value 'x'"),
    (poison_row, errors.OperatorError, "division by zero"),
    (poison_commit, errors.OperatorError, "the table is gone"),
    (poison_snapshot, errors.CheckpointError, "CHECK constraint failed"),
]


def test_a_failure_that_repeats_without_progress_ends_the_job_with_its_cause(tmp_path: Path, workers: int) -> None:
    jobs = list[Any]()
    for build, kind, text in POISONED:
        folder = tmp_path / build.__name__
        folder.mkdir()
        env = fn.Environment()
        env.enable_checkpointing("100ms", storage=folder / "checkpoints")
        build(env, folder)
        jobs.append((env.execute_async(workers), kind, text))
    for job, kind, text in jobs:
        with job, pytest.raises(kind, match=text) as raised:
            job.wait()
        assert raised.value.attempts is not None
        assert 5 <= raised.value.attempts <= 10
        said = str(raised.value)
        assert f"The job was tried {raised.value.attempts} times" in said
        assert "restart='exponential'" in said
        assert job.status().restarted >= raised.value.attempts - 1


def test_connections_that_fail_at_one_record_are_retried_for_longer(tmp_path: Path) -> None:
    env = fn.Environment()
    env.enable_checkpointing("100ms", storage=tmp_path / "checkpoints")
    env.from_collection(list(range(10))).map(FailsOften(5, 6, tmp_path / "failed")).write_text(tmp_path / "out")
    result = env.execute()
    assert result.restarted == 6, "more than a failure of the program may repeat"
    assert sum(len(part.read_text().split()) for part in (tmp_path / "out").iterdir()) == 10


class FailsOften:
    """Loses its connection on one record, some times."""

    def __init__(self, record: int, times: int, marks: Path) -> None:
        self.record, self.times, self.marks = record, times, marks

    def __call__(self, record: int) -> int:
        if record == self.record:
            self.marks.mkdir(exist_ok=True)
            failed = len(list(self.marks.iterdir()))
            if failed < self.times:
                (self.marks / str(failed)).touch()
                raise ConnectionResetError("reset by peer")
        return record


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def sqlite_error(statement: str) -> sqlite3.Error:
    with pytest.raises(sqlite3.Error) as raised:
        sqlite3.connect(":memory:").execute(statement)
    return raised.value


class OperationalError(Exception):
    """As drivers of databases call it that a server is not reached."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), False),
        (KeyError("x"), False),
        (FileNotFoundError("x"), False),
        (PermissionError("x"), False),
        (ConnectionResetError("x"), True),
        (TimeoutError("x"), True),
        (OSError(28, "no space left"), True),
        (OperationalError("x"), True),
        (raised_from(RuntimeError("x"), ConnectionRefusedError("y")), True),
        (raised_from(RuntimeError("x"), ValueError("y")), False),
        (errors.InputError("bad line"), False),
        (raised_from(errors.InputError("x"), OSError(5, "input/output error")), True),
        (errors.KafkaUnreachableError("x"), True),
        (errors.KafkaTransactionError("x"), False),
        (sqlite_error("select * from nothing"), False),
    ],
)
def test_errors_that_may_heal_are_told_from_errors_of_the_program(error: Exception, expected: bool) -> None:
    assert is_transient(error) == expected


class DiesOften:
    """Kills its process on one record, some times."""

    def __init__(self, record: int, times: int, marks: Path) -> None:
        self.record, self.times, self.marks = record, times, marks

    def __call__(self, record: int) -> int:
        if record == self.record:
            self.marks.mkdir(exist_ok=True)
            died = len(list(self.marks.iterdir()))
            if died < self.times:
                (self.marks / str(died)).touch()
                signal.raise_signal(signal.SIGKILL)
        return record


def test_a_worker_that_is_killed_at_one_record_is_replaced_each_time(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2)
    env.enable_checkpointing("100ms", storage=tmp_path / "checkpoints")
    env.from_collection(list(range(10))).map(DiesOften(5, 5, tmp_path / "died")).write_text(tmp_path / "out")
    assert env.execute(2).restarted == 5
