"""JSON lines and CSV into files."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

AWKWARD: list[Any] = [
    ["plain", 1, 1.5, None],
    ['say "x"', "a,b", "two\nlines", "a\rb"],
    ["", " ", "ö ✓ 𝄞", "\t"],
    ["'", "\\", "\r\n", ";"],
]


def files(folder: Path, suffix: str) -> list[Path]:
    assert {path.suffix for path in folder.iterdir()} == {suffix}
    return sorted(folder.iterdir())


def text_of(file: Path) -> io.StringIO:
    """The text with its ends of lines as they are."""
    return io.StringIO(file.read_bytes().decode("utf-8"), newline="")


@pytest.mark.parametrize("checkpoints", [False, True])
def test_lines_of_json_are_read_back_as_they_were(checkpoints: bool, workers: int, tmp_path: Path) -> None:
    records: list[Any] = [*AWKWARD, {"a": [1, {"b": None}], "ö": True}, "text", 7, None, 2**70]
    env = fn.Environment(parallelism=2)
    if checkpoints:
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    env.from_collection(records).rebalance().write_json(tmp_path / "out")
    env.execute(workers)
    found = [json.loads(line) for file in files(tmp_path / "out", ".jsonl") for line in text_of(file)]
    assert sorted(map(repr, found)) == sorted(map(repr, records))


def test_json_has_a_function_for_what_it_does_not_know(workers: int, tmp_path: Path) -> None:
    env = fn.Environment()
    day = datetime.date(2026, 1, 2)
    env.from_collection([{"day": day}]).write_json(tmp_path / "out", default=str)
    env.execute(workers)
    assert (tmp_path / "out" / "part-0.jsonl").read_text() == '{"day": "2026-01-02"}\n'


@pytest.mark.parametrize(
    ("record", "text"), [({"a": {1, 2}}, "set is not JSON serializable"), ([math.nan], "not JSON compliant")]
)
def test_what_is_no_json_fails_the_job_with_the_record(record: Any, text: str, tmp_path: Path) -> None:
    env = fn.Environment()
    env.from_collection([record]).write_json(tmp_path / "out")
    with pytest.raises(errors.OperatorError, match=text) as caught:
        env.execute()
    assert (caught.value.operator, caught.value.record) == ("write_json", repr(record))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("columns", [None, ["one", "t,wo", "three", "four"]])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_values_are_read_back_as_csv_says(
    delimiter: str, columns: list[str] | None, checkpoints: bool, tmp_path: Path
) -> None:
    env = fn.Environment(parallelism=2)
    if checkpoints:
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    env.from_collection(AWKWARD).rebalance().write_csv(tmp_path / "out", columns=columns, delimiter=delimiter)
    env.execute()
    found = []
    for file in files(tmp_path / "out", ".csv"):
        rows = list(csv.reader(text_of(file), delimiter=delimiter))
        assert columns is None or rows.pop(0) == columns
        found += rows
    expected = [["" if value is None else str(value) for value in row] for row in AWKWARD]
    assert sorted(found) == sorted(expected)


def test_rows_may_be_mappings_in_any_order(workers: int, tmp_path: Path) -> None:
    env = fn.Environment()
    rows: list[Any] = [{"word": "to", "number": 1}, {"number": 2, "word": "be"}, ("or", 3)]
    env.from_collection(rows).write_csv(tmp_path / "out", columns=["word", "number"])
    env.execute(workers)
    assert (tmp_path / "out" / "part-0.csv").read_text() == "word,number\nto,1\nbe,2\nor,3\n"


@pytest.mark.parametrize(
    ("record", "columns", "text"),
    [
        ({"a": 1, "b": 2}, ["a"], "it has 'b', which is none of the columns"),
        ({}, ["a"], "KeyError: 'a'"),
        ((1, 2), ["a"], "it has 2 values for 1 columns"),
        ({"a": 1}, None, "a mapping needs write_csv"),
        ("text", None, "a row is a tuple, a list or a mapping, not str"),
        (7, None, "not int"),
    ],
)
def test_what_is_no_row_fails_the_job_with_the_record(
    record: Any, columns: list[str] | None, text: str, tmp_path: Path
) -> None:
    env = fn.Environment()
    env.from_collection([record]).write_csv(tmp_path / "out", columns=columns)
    with pytest.raises(errors.OperatorError, match=text) as caught:
        env.execute()
    assert (caught.value.operator, caught.value.record) == ("write_csv", repr(record))


@pytest.mark.parametrize("method", ["write_text", "write_json", "write_csv"])
def test_a_rerun_with_fewer_subtasks_leaves_no_part_of_the_run_before(method: str, tmp_path: Path) -> None:
    suffix = {"write_text": "txt", "write_json": "jsonl", "write_csv": "csv"}[method]
    (tmp_path / "out").mkdir()
    for stays in ("part-3.other", "notes.txt"):
        (tmp_path / "out" / stays).touch()
    for checkpoints, parallelism in ((False, 4), (True, 2), (False, 1), (True, 1)):
        env = fn.Environment(parallelism=parallelism)
        if checkpoints:
            env.enable_checkpointing("1h", storage=tmp_path / f"checkpoints{parallelism}")
        rows = env.from_collection([(number, parallelism) for number in range(40)]).rebalance()
        getattr(rows, method)(tmp_path / "out")
        env.execute()
        parts = {path for path in (tmp_path / "out").iterdir() if path.suffix == f".{suffix}" and path.stem != "notes"}
        assert len(parts) == parallelism
        assert sum(len(path.read_text().splitlines()) for path in parts) == 40
    assert {path.name for path in (tmp_path / "out").iterdir()} - {path.name for path in parts} == {
        "part-3.other",
        "notes.txt",
    }


def test_what_makes_no_sense_is_refused_where_it_is_said(env: fn.Environment, tmp_path: Path) -> None:
    stream = env.from_collection([(1,)])
    stream.write_json(tmp_path / "out")
    stream.write_csv(tmp_path / "out")  # other files
    (tmp_path / "file").touch()
    refused: list[Any] = [
        lambda: stream.write_json(tmp_path / "out"),
        lambda: stream.write_csv(tmp_path / "file"),
        lambda: stream.write_csv(tmp_path / "a", delimiter=",,"),
        lambda: stream.write_csv(tmp_path / "a", delimiter='"'),
        lambda: stream.write_csv(tmp_path / "a", columns="word"),
        lambda: stream.write_csv(tmp_path / "a", columns=[]),
        lambda: stream.write_json(tmp_path / "a", default=7),  # type: ignore[arg-type]
    ]
    for give in refused:
        with pytest.raises(errors.ConfigError):
            give()
