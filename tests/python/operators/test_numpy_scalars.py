"""Scalars of numpy in sinks that write JSON and rows of databases."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flownet as fn
from flownet.connectors.kafka.record import _json_of
from flownet.errors import OperatorError
from flownet.internal.numpy_scalars import plain

SCALARS: list[tuple[Any, Any]] = [
    (np.int8(-1), -1),
    (np.uint64(2**63 - 1), 2**63 - 1),
    (np.bool_(True), True),
    (np.float16(0.5), 0.5),
    (np.float32(0.25), 0.25),
    (np.float64(1.5), 1.5),
    (np.str_("to"), "to"),
]


@pytest.mark.parametrize(("given", "expected"), SCALARS, ids=lambda value: type(value).__name__)
def test_a_scalar_is_the_value_that_it_is_equal_to(given: Any, expected: Any) -> None:
    assert (plain(given), type(plain(given))) == (expected, type(expected))
    assert json.loads(_json_of({"value": given})) == {"value": expected}


@pytest.mark.parametrize("value", [np.timedelta64(5, "ns"), np.datetime64(5, "ns"), np.array([1]), object(), 1, None])
def test_other_values_stay_as_they_are(value: Any) -> None:
    assert plain(value) is value


def test_json_lines_have_their_values(tmp_path: Path) -> None:
    env = fn.Environment()
    record = {"all": [given for given, _ in SCALARS], "sum": np.array([1, 2]).sum(), "max": (np.float32(2.0),)}
    env.from_collection([record]).write_json(tmp_path / "out")
    env.execute(workers=0)
    (line,) = (tmp_path / "out" / "part-0.jsonl").read_text().splitlines()
    assert json.loads(line) == {"all": [expected for _, expected in SCALARS], "sum": 3, "max": [2.0]}


@pytest.mark.parametrize("value", [np.float32("nan"), np.datetime64(5, "ns"), np.array([1])])
def test_json_has_no_form_for_others(tmp_path: Path, value: Any) -> None:
    env = fn.Environment()
    env.from_collection([{"value": value}]).write_json(tmp_path / "out")
    with pytest.raises(OperatorError, match="not JSON compliant|not JSON serializable"):
        env.execute(workers=0)


def test_the_default_of_the_user_is_asked_about_all_else(tmp_path: Path) -> None:
    env = fn.Environment()
    env.from_collection([{"n": np.int64(1), "a": np.array([2])}]).write_json(
        tmp_path / "out", default=np.ndarray.tolist
    )
    env.execute(workers=0)
    assert (tmp_path / "out" / "part-0.jsonl").read_text() == '{"n": 1, "a": [2]}\n'


@pytest.mark.parametrize("workers", [0, 1])
def test_sqlite_gets_them(tmp_path: Path, workers: int) -> None:
    env = fn.Environment()
    path = tmp_path / "values.db"
    columns = [f"c{place}" for place in range(len(SCALARS))]
    records: list[Any] = [tuple(given for given, _ in SCALARS)]
    records.append(dict(zip(columns, records[0], strict=True)))
    env.from_collection(records).sink_to(fn.SqliteSink(path, "found", columns=columns))
    env.execute(workers)
    with sqlite3.connect(path) as database:
        assert database.execute("select * from found").fetchall() == [tuple(expected for _, expected in SCALARS)] * 2
    database.close()


@pytest.mark.parametrize("value", [np.uint64(2**63), np.timedelta64(5, "ns"), np.datetime64(5, "ns")])
def test_sqlite_refuses_what_it_cannot_hold(tmp_path: Path, value: Any) -> None:
    env = fn.Environment()
    env.from_collection([(value,)]).sink_to(fn.SqliteSink(tmp_path / "values.db", "found", columns=["c"]))
    with pytest.raises(OperatorError, match="SQLite has no value for"):
        env.execute(workers=0)
