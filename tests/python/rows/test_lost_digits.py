"""Integers that an inferred column of floats does not hold are refused, and never rounded."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet.errors import InputError, OperatorError
from flownet.rows.lost_digits import loses_digits

HUGE = "12345678901234567890123"
BLOCK = 1 << 20


def rows_of(read: str, path: Path, **given: Any) -> list[dict[str, Any]]:
    env = fn.Environment()
    rows = getattr(env, read)(path, **given).collect()
    env.execute(workers=0)
    return list(rows.to_arrow().to_pylist())


def written(read: str, path: Path, values: list[str]) -> Path:
    """A file of rows with one value each, as it is written here."""
    if read == "read_csv":
        path.write_text("id,value\n" + "".join(f"x,{value}\n" for value in values))
    else:
        path.write_text("".join(f'{{"id": "x", "value": {value}}}\n' for value in values))
    return path


READS = ["read_csv", "read_json"]
LOST = [
    [HUGE],
    ["-" + HUGE],
    ["1", HUGE],
    ["0.5", "9007199254740993"],
    ["9007199254740993", "0.5"],
    ["18446744073709551615"],
    ["1" * 39],
    ["7" * 400],
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("values", LOST)
def test_an_integer_that_would_lose_digits_is_refused_before_the_job_starts(
    read: str, values: list[str], tmp_path: Path
) -> None:
    path = written(read, tmp_path / "rows.txt", values)
    with pytest.raises(InputError) as raised:
        getattr(fn.Environment(), read)(path)
    said = str(raised.value)
    lost = max(values, key=lambda value: len(value.lstrip("-")))
    line = values.index(lost) + (2 if read == "read_csv" else 1)
    assert f"{path}, line {line}: " in said
    assert "'value', inferred as float64" in said
    assert f"{lost[:60]} would lose digits" in said.replace("...", "")
    assert ("'decimal128(38, 0)'" in said) == (len(lost.lstrip("-")) <= 38)
    assert ("'utf8'" in said) == (read == "read_csv")


@pytest.mark.parametrize("read", READS)
def test_the_types_that_are_proposed_hold_it(read: str, tmp_path: Path) -> None:
    path = written(read, tmp_path / "rows.txt", ["7", HUGE])
    schema = {"id": "utf8", "value": "decimal128(38, 0)"}
    assert [row["value"] for row in rows_of(read, path, schema=schema)] == [Decimal(7), Decimal(HUGE)]
    assert rows_of(read, path, schema={**schema, "value": "float64"})[1]["value"] == float(HUGE)
    if read == "read_csv":
        assert rows_of(read, path, schema={**schema, "value": "utf8"})[1]["value"] == HUGE


@pytest.mark.parametrize("read", READS)
def test_numbers_that_float64_holds_pass(read: str, tmp_path: Path) -> None:
    values = ["0.5", "9007199254740992", "-9007199254740992", "100000000000000000000", "12345678901234567000"]
    values += ["1e300", "123456789012345678.5", "1.2345678901234567e19"]
    path = written(read, tmp_path / "rows.txt", values)
    assert [row["value"] for row in rows_of(read, path)] == list(map(float, values))


@pytest.mark.parametrize("read", READS)
def test_integers_of_64_bits_are_integers(read: str, tmp_path: Path) -> None:
    values = [str(2**63 - 1), str(-(2**63))]
    path = written(read, tmp_path / "rows.txt", values)
    assert [row["value"] for row in rows_of(read, path)] == list(map(int, values))


@pytest.mark.parametrize("read", READS)
def test_an_integer_beside_the_floats_of_another_file_fails_the_job_and_names_the_column(
    read: str, tmp_path: Path
) -> None:
    ending = "csv" if read == "read_csv" else "jsonl"
    written(read, tmp_path / f"a.{ending}", ["0.5"])
    path = written(read, tmp_path / f"b.{ending}", ["3", "9007199254740993"])
    with pytest.raises(OperatorError) as raised:
        rows_of(read, tmp_path)
    line = 3 if read == "read_csv" else 2
    assert f"{path}: line {line}: " in str(raised.value)
    assert "'value', inferred as float64: 9007199254740993 would lose digits" in str(raised.value)


@pytest.mark.parametrize("read", READS)
def test_an_integer_behind_what_types_were_inferred_from_fails_the_job(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flownet.rows import text_files

    monkeypatch.setattr(text_files, "_INFERRED_BYTES", 1)
    values = ["0.5"] * (3 * BLOCK // 8) + [HUGE]
    path = written(read, tmp_path / "rows.txt", values)
    with pytest.raises(OperatorError, match=f"'value', inferred as float64: {HUGE} would lose digits") as raised:
        rows_of(read, path)
    assert f"line {len(values) + (read == 'read_csv')}" in str(raised.value)


def test_only_fields_of_floats_count_in_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    big = 2**53 + 1
    row = {"text": f"{big}", "whole": big, "in": {"list": [{"part": 1.5}, {"part": 2.0**60}]}}
    path.write_text(json.dumps(row) + "\n")
    assert rows_of("read_json", path) == [row]
    row["in"] = {"list": [{"part": 1.5}, {"part": big}]}
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match="line 1: field 'in.list.part', inferred as float64: 9007199254740993"):
        rows_of("read_json", path)


def test_white_space_around_a_number_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a, b\n1, 123456789012345678901\n2, 5.5\n")
    with pytest.raises(InputError, match="123456789012345678901 would lose digits"):
        fn.Environment().read_csv(tmp_path / "a.csv")


def test_empty_lines_and_quotes_do_not_move_the_line_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f'a,b\n\n"one\ntwo",0.5\n\n"",{HUGE}\n')
    with pytest.raises(InputError, match="line 6: column 'b'"):
        fn.Environment().read_csv(path)


@settings(max_examples=300)
@given(st.one_of(st.integers(), st.integers(2**53 - 3, 2**70), st.floats(allow_nan=False).map(repr)))
def test_a_text_loses_digits_if_it_is_no_number_that_a_float_is_written_as(value: int | str) -> None:
    text = str(value)
    if isinstance(value, str):
        assert not loses_digits(text), "a float is written as itself"
        return
    is_held = int(float(value)) == value or Decimal(repr(float(value))) == value
    assert loses_digits(text) == (not is_held)
