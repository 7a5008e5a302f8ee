"""Rows into SQLite, once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import _flownet, errors

from .failures import FailsOnce


def rows(path: Path, query: str) -> list[Any]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


@pytest.mark.parametrize("checkpoints", [False, True])
def test_rows_are_there_once(checkpoints: bool, workers: int, tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    numbers = env.from_collection(list(range(400)), rate_limit=1000)
    if checkpoints:
        env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
        numbers = numbers.map(FailsOnce(300, tmp_path / "failed"))
    sink = fn.SqliteSink(path, 'odd "name', columns=["select", "square"])
    numbers.map(lambda number: (number, number**2)).rebalance().sink_to(sink)
    result = env.execute(workers)
    assert result.restarted == int(checkpoints)
    found = rows(path, 'select "select", square from "odd ""name" order by 1')
    assert found == [(number, number**2) for number in range(400)]


def test_of_rows_with_one_key_the_last_stays(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
    numbers = env.from_collection(list(range(400)), rate_limit=1000).map(FailsOnce(300, tmp_path / "failed"))
    counts = numbers.key_by(lambda number: number % 5).count()
    named = counts.map(lambda pair: {"total": pair[1], "digit": pair[0]})
    named.sink_to(fn.SqliteSink(path, "counts", columns=["digit", "total"], key=["digit"]))
    env.execute(workers)
    assert rows(path, "select * from counts order by digit") == [(digit, 80) for digit in range(5)]


def test_a_batch_that_is_committed_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = fn.SqliteSink(path, "words", columns=["word"])
    env = fn.Environment()
    env.from_collection(["a", "b"]).sink_to(sink)
    env.execute()
    prepared = ("mine", [("c",)])
    for _ in range(2):
        sink.commit(prepared)
    assert rows(path, "select word from words order by word") == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ((1, object), r"column 'b' of .*: SQLite has no value for type"),
        ((1, 2**63), r"SQLite has no value for int 9223372036854775808"),
        (("\ud800x", 1), r"SQLite has no value for a text with half of a surrogate pair, '.ud800x'"),
        ((1,), "has 1 values for 2 columns"),
        ({"a": 1, "b": 2, "c": 3}, "has a column 'c', which the sink has not"),
        ({"a": 1}, "KeyError: 'b'"),
        (7, "has 1 values for 2 columns"),
    ],
)
def test_a_row_that_cannot_be_written_fails_the_job_before_a_checkpoint_has_it(
    record: Any, text: str, tmp_path: Path
) -> None:
    env = fn.Environment(codec="pickle")
    env.from_collection([record]).sink_to(fn.SqliteSink(tmp_path / "out.db", "t", columns=["a", "b"]))
    with pytest.raises(errors.OperatorError, match=text):
        env.execute()
    assert rows(tmp_path / "out.db", "select * from t") == []


@pytest.mark.parametrize(
    ("table", "bad", "text"),
    [
        ("create table t (a, b not null)", (7, None), "NOT NULL constraint failed: t.b"),
        ("create table t (a, b check (b > 0))", (7, -1), "CHECK constraint failed"),
        ("create table t (a unique, b)", (2, 2), "UNIQUE constraint failed: t.a"),
        ("create table t (a int, b int) strict", (7, "x"), "cannot store TEXT value in INT column t.b"),
        (
            "create table t (a, b); create trigger r before insert on t when new.a = 7 "
            "begin select raise(abort, 'not seven'); end",
            (7, 1),
            "not seven",
        ),
        ("create table t (a, b); create unique index i on t (a)", (2, 2), "UNIQUE constraint failed: t.a"),
    ],
)
def test_rows_that_the_table_refuses_fail_the_job_before_a_checkpoint_has_them(
    table: str, bad: tuple[Any, ...], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "out.db"
    database = sqlite3.connect(path)
    database.executescript(table)
    database.close()
    env = fn.Environment(restart="fixed:1:10ms")
    env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
    records: list[tuple[Any, ...]] = [(1, 1), (2, 1), bad]
    env.from_collection(records).sink_to(fn.SqliteSink(path, "t", columns=["a", "b"]))
    with pytest.raises(errors.CheckpointError, match=f"table 't' refuses row .*: {text}"):
        env.execute()
    assert _flownet.checkpoints(str(tmp_path / "checkpoints")) == []
    assert rows(path, "select * from t") == []


def test_a_table_that_does_not_fit_is_told_before_the_first_record(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    database = sqlite3.connect(path)
    database.execute("create table t (a, b)")
    database.close()

    def run(*columns: str, key: list[str] | None = None) -> None:
        env = fn.Environment()
        env.from_collection([(1,)]).sink_to(fn.SqliteSink(path, "t", columns=columns, key=key))
        env.execute()

    with pytest.raises(errors.OperatorError, match="no column named c"):
        run("c")
    with pytest.raises(errors.OperatorError, match="ON CONFLICT clause does not match"):
        run("a", key=["a"])


def test_names_that_are_none_are_refused(tmp_path: Path) -> None:
    refused: list[Any] = [
        lambda: fn.SqliteSink(tmp_path / "x", "", columns=["a"]),
        lambda: fn.SqliteSink(tmp_path / "x", "t", columns=[]),
        lambda: fn.SqliteSink(tmp_path / "x", "t", columns="ab"),
        lambda: fn.SqliteSink(tmp_path / "x", "t", columns=["a", "A"]),
        lambda: fn.SqliteSink(tmp_path / "x", "t", columns=["a"], key=["b"]),
    ]
    for make in refused:
        with pytest.raises(errors.ConfigError):
            make()
