"""Rows into a real PostgreSQL, once."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flownet as fn
from flownet import errors

from .failures import FailsOnce
from .postgres import Server

pytestmark = pytest.mark.timeout(180)


_NUMBERS = itertools.count()


@pytest.fixture
def table(server: Server) -> str:
    """A name that no other test has."""
    return f"table_{next(_NUMBERS)}"


def test_scalars_of_numpy_are_written(server: Server, table: str) -> None:
    server.run(f"create table {table} (i bigint, x double precision, t text, b boolean)")
    env = fn.Environment()
    record = (np.int32(7), np.float32(0.5), np.str_("to"), np.bool_(True))
    env.from_collection([record]).sink_to(fn.PostgresSink(server.conninfo, table, columns=["i", "x", "t", "b"]))
    env.execute(workers=0)
    assert server.run(f"select * from {table}") == [(7, 0.5, "to", True)]


@pytest.mark.parametrize("checkpoints", [False, True])
def test_rows_are_there_once(checkpoints: bool, server: Server, workers: int, tmp_path: Path) -> None:
    name = f'odd "name" {next(_NUMBERS)}'
    quoted = name.replace('"', '""')
    server.run(f'create table "{quoted}" ("select" int, square bigint, at timestamptz not null default now())')
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    numbers = env.from_collection(list(range(400)), rate_limit=1000)
    if checkpoints:
        env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
        numbers = numbers.map(FailsOnce(300, tmp_path / "failed"))
    sink = fn.PostgresSink(server.conninfo, name, columns=["select", "square"])
    numbers.map(lambda number: (number, number**2)).rebalance().sink_to(sink)
    result = env.execute(workers)
    assert result.restarted == int(checkpoints)
    found = server.run(f'select "select", square from "{quoted}" order by 1')
    assert found == [(number, number**2) for number in range(400)]


def test_of_rows_with_one_key_the_last_stays(server: Server, table: str, workers: int, tmp_path: Path) -> None:
    server.run(f"create schema if not exists made; create table made.{table} (digit int primary key, total bigint)")
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
    numbers = env.from_collection(list(range(400)), rate_limit=1000).map(FailsOnce(300, tmp_path / "failed"))
    counts = numbers.key_by(lambda number: number % 5).count()
    named = counts.map(lambda pair: {"total": pair[1], "digit": pair[0]})
    named.sink_to(fn.PostgresSink(server.conninfo, f"made.{table}", columns=["digit", "total"], key=["digit"]))
    env.execute(workers)
    assert server.run(f"select * from made.{table} order by digit") == [(digit, 80) for digit in range(5)]


class Context:
    """Where a sink of a test runs."""

    operator, subtask, parallelism, worker = "sink", 0, 1, ""
    metrics: fn.metrics.Metrics


def opened(server: Server, table: str, *columns: str, **options: Any) -> fn.PostgresSink:
    sink = fn.PostgresSink(server.conninfo, table, columns=columns, **options)
    sink.open(Context())
    return sink


def test_whoever_commits_a_batch_and_however_many_at_once_it_is_there_once(server: Server, table: str) -> None:
    server.run(f"create table {table} (word text)")
    sinks = [opened(server, table, "word") for _ in range(4)]
    sinks[0].write([("a",), ("b",)])
    batch = sinks[0].prepare_commit()
    assert server.run(f"select * from {table}") == [], "nothing can be seen before its checkpoint counts"
    threads = [threading.Thread(target=sink.commit, args=(batch,)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sink in sinks:
        sink.close()
    assert server.run(f"select word from {table} order by 1") == [("a",), ("b",)]


def run(sink: fn.PostgresSink, record: Any) -> None:
    env = fn.Environment(codec="pickle")
    env.from_collection([record]).sink_to(sink)
    env.execute()


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ((1, object), "column 'b' of .*: cannot adapt type 'type'"),
        ((1,), "has 1 values for 2 columns"),
        ((1, "long text"), "value too long for type character varying"),
        (("x", "b"), "invalid input syntax for type integer"),
        ((None, "b"), 'null value in column "a"'),
        ((-1, "b"), "violates check constraint"),
    ],
)
def test_a_row_that_cannot_be_written_fails_the_job_before_a_checkpoint_has_it(
    record: Any, text: str, server: Server, table: str
) -> None:
    server.run(f"create table {table} (a int not null check (a > 0), b varchar(4))")

    def prepare() -> None:
        with contextlib.closing(opened(server, table, "a", "b")) as sink:
            sink.write([record])
            sink.prepare_commit()

    with pytest.raises(Exception, match=text):
        prepare()
    with pytest.raises(errors.OperatorError, match=text):
        run(fn.PostgresSink(server.conninfo, table, columns=["a", "b"]), record)
    assert server.run(f"select * from {table}") == []


def test_values_of_many_types_are_written(server: Server, table: str) -> None:
    server.run(f"create table {table} (a timestamptz, b bytea, c float, d bool, e int[], f numeric)")
    at = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    row = (at, b"\x00x", 1.5, True, [1, 2], 12)
    run(fn.PostgresSink(server.conninfo, table, columns=list("abcdef")), row)
    assert server.run(f"select * from {table}") == [row]


def test_what_does_not_fit_is_told_before_the_first_record(server: Server, table: str, closed_port: int) -> None:
    server.run(f"create table {table} (a int)")
    nowhere = f"host=127.0.0.1 port={closed_port} user=tester dbname=postgres"
    refused: list[tuple[fn.PostgresSink, str]] = [
        (fn.PostgresSink(server.conninfo, "none_such", columns=["a"]), 'relation "none_such" does not exist'),
        (fn.PostgresSink(server.conninfo, table, columns=["c"]), f'column "c" of relation "{table}" does not exist'),
        (fn.PostgresSink(server.conninfo, table, columns=["a"], key=["a"]), "no unique or exclusion constraint"),
        (fn.PostgresSink(nowhere, table, columns=["a"]), "Connection refused"),
    ]
    for sink, text in refused:
        with pytest.raises(errors.OperatorError, match=text):
            run(sink, (1,))


def test_names_that_are_none_are_refused() -> None:
    refused: list[Any] = [
        lambda: fn.PostgresSink("", "", columns=["a"]),
        lambda: fn.PostgresSink("", "t", columns=[]),
        lambda: fn.PostgresSink("", "t", columns=["a"], key=["b"]),
        lambda: fn.PostgresSink("no such setting", "t", columns=["a"]),
    ]
    for make in refused:
        with pytest.raises(errors.ConfigError):
            make()


def test_without_the_client_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = r"PostgreSQL needs psycopg: pip install 'flownet-streams\[postgres\]'"
    with pytest.raises(errors.FlownetError, match=message):
        fn.PostgresSink("", "t", columns=["a"])
