"""Columns of CSV and JSON are inferred over all files, and a line with others is never read without them."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet.errors import InputError, OperatorError
from flownet.rows import text_files

LINES = 60_000
"""More than a block of 1 MiB."""


def read(method: str, path: Path, **told: Any) -> pa.Table:
    return getattr(fn.Environment(parallelism=1), method)(path, **told).to_arrow()


def write(folder: Path, ending: str, *files: str) -> Path:
    for number, text in enumerate(files):
        (folder / f"{number}.{ending}").write_text(text, newline="")
    return folder


@pytest.mark.parametrize(
    ("late", "kind", "value"),
    [
        ('{"n": 1, "late": "x"}', "string", "x"),
        ('{"n": 1, "late": 0.5}', "double", 0.5),
        ('{"n": 1, "late": {"in": [1]}}', "struct<in: list<item: int64>>", {"in": [1]}),
        ('{"n": 1, "late": "2026-11-26T00:00:00Z"}', "timestamp[s, tz=UTC]", datetime(2026, 11, 26, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("files", [1, 2])
def test_a_json_column_that_comes_late_is_read(
    late: str, kind: str, value: Any, is_nested: bool, files: int, tmp_path: Path
) -> None:
    form = '{"o": %s}\n' if is_nested else "%s\n"
    lines = [form % '{"n": 1, "padding": "and so on"}'] * LINES
    texts = ["".join(lines), form % late] if files == 2 else ["".join([*lines, form % late])]
    found = read("read_json", write(tmp_path, "jsonl", *texts))
    column = found["o"].combine_chunks().field("late") if is_nested else found["late"]
    assert (len(found), str(column.type)) == (LINES + 1, kind)
    assert column.null_count == LINES
    assert [value] == column.drop_null().to_pylist()


def test_a_json_column_behind_what_was_looked_at_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(text_files, "_INFERRED_BYTES", 1000)
    monkeypatch.setattr(text_files, "_LEAST_INFERRED_BYTES", 1000)
    lines = ['{"n": 1, "o": {"x": 1}}\n'] * 100
    for late, field in (('{"n": 1, "late": 1}\n', "late"), ('{"n": 1, "o": {"late": 1}}\n', "o.late")):
        path = write(tmp_path, "jsonl", "".join([*lines, late]))
        with pytest.raises(
            OperatorError, match=rf"line 101: there is a field '{field}', .*name others in read_json\(sch"
        ):
            read("read_json", path)
        # With a schema, what it leaves out is left out.
        assert len(read("read_json", path, schema={"n": "int64"})) == 101
    assert len(read("read_json", path, columns=["n"])) == 101


def test_a_csv_value_behind_what_was_looked_at_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(text_files, "_INFERRED_BYTES", 1000)
    monkeypatch.setattr(text_files, "_LEAST_INFERRED_BYTES", 1000)
    path = write(tmp_path, "csv", "n,a\n" + "1,2\n" * 1000 + "1,A\n")
    says = r"line 1002: column 'a', which is int64: invalid value 'A'; .*name others in read_csv\(schema=...\)"
    with pytest.raises(OperatorError, match=says):
        read("read_csv", path)
    assert read("read_csv", path, schema={"n": "int64", "a": "utf8"})["a"].to_pylist()[-1] == "A"


def test_a_csv_column_of_numbers_and_late_texts_is_one_of_texts(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", "n,a,b,c\n" + "1,2,2026-11-26,\n" * 200_000 + "2.5,A,2026-11-26 01:00:00,x\n")
    found = read("read_csv", path)
    assert [str(kind) for kind in found.schema.types] == ["double", "string", "string", "string"]
    assert found.slice(199_999).to_pydict() == {
        "n": [1.0, 2.5],
        "a": ["2", "A"],
        "b": ["2026-11-26", "2026-11-26 01:00:00"],
        "c": [None, "x"],
    }


@pytest.mark.parametrize(
    ("method", "ending", "files", "expected"),
    [
        ("read_csv", "csv", ["n,m\n1,\n", "m,n\nx,2.5\n"], {"n": [1.0, 2.5], "m": [None, "x"]}),
        ("read_csv", "csv", ["n\n1\n", "n,m\n2,x\n"], {"n": [1, 2], "m": [None, "x"]}),
        ("read_csv", "csv", ["n,m\n2,x\n", "n\n1\n"], {"n": [2, 1], "m": ["x", None]}),
        ("read_json", "jsonl", ['{"n":1,"m":null}\n', '{"n":2.5,"m":"x"}\n'], {"n": [1.0, 2.5], "m": [None, "x"]}),
        (
            "read_json",
            "jsonl",
            ['{"o":{"a":1}}\n', "", '{"o":{"b":"x"}}\n'],
            {"o": [{"a": 1, "b": None}, {"a": None, "b": "x"}]},
        ),
        (
            "read_json",
            "jsonl",
            ['{"t":"2026-11-26 00:00:00"}\n', '{"t":"soon"}\n'],
            {"t": ["2026-11-26 00:00:00", "soon"]},
        ),
    ],
)
def test_columns_of_files_are_matched_by_name(
    method: str, ending: str, files: list[str], expected: dict[str, Any], tmp_path: Path
) -> None:
    assert read(method, write(tmp_path, ending, *files)).to_pydict() == expected


@pytest.mark.parametrize(
    ("method", "ending", "files", "says"),
    [
        ("read_csv", "csv", ["n,a\n1,1\n", "n,a\n2,A\n"], "column 'a' is utf8 in .*1.csv and int64 in .*0.csv"),
        ("read_csv", "csv", ["n,a\n1,true\n", "n,a\n2,7\n"], "column 'a' is int64 in .*1.csv and bool in .*0.csv"),
        ("read_json", "jsonl", ['{"a":1}\n', '{"a":"A"}\n'], "column 'a' is utf8 in .*1.jsonl and int64 in"),
        ("read_json", "jsonl", ['{"a":1}\n', '{"a":[1]}\n'], r"column 'a' is list\[int64\] in .*1.jsonl and int64 in"),
        ("read_json", "jsonl", ['{"a":{"b":1}}\n', '{"a":{"b":true}}\n'], r"column 'a' is struct\[b: bool\] in"),
    ],
)
def test_columns_with_nothing_in_common_are_refused_by_file(
    method: str, ending: str, files: list[str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=rf"{method}\(\): {says}.*name its type in schema="):
        read(method, write(tmp_path, ending, *files))


def test_a_schema_reads_columns_that_some_files_have(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", "n,a\n1,1\n", "a,m\nA,x\n")
    found = read("read_csv", path, schema={"n": "int64", "a": "utf8", "m": "utf8"})
    assert found.to_pydict() == {"n": [1, None], "a": ["1", "A"], "m": [None, "x"]}


@pytest.mark.parametrize("text", ["2026-11-26T10:00:00Z", "2026-11-26 11:00:00+01:00", "2026-11-26T05:00:00-0500"])
def test_a_time_with_a_zone_is_one_in_utc(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"t": text, "o": {"t": [text]}}) + "\n")
    (tmp_path / "a.csv").write_text(f"t\n{text}\n")
    at = datetime(2026, 11, 26, 10, tzinfo=UTC)
    assert read("read_json", tmp_path / "a.jsonl").to_pylist() == [{"t": at, "o": {"t": [at]}}]
    assert read("read_json", tmp_path / "a.jsonl", schema={"t": "timestamp[ms, UTC]"})["t"].to_pylist() == [at]
    assert read("read_csv", tmp_path / "a.csv").to_pylist() == [{"t": at}]


def test_times_of_which_some_have_a_zone_are_texts(tmp_path: Path) -> None:
    texts = ["2026-11-26T10:00:00Z", "2026-11-26T10:00:00"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    assert read("read_json", tmp_path / "a.jsonl")["t"].to_pylist() == texts


def test_a_duplicate_name_is_refused_by_file(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", "n,m\n1,2\n", "\nm,n,m\n1,2,3\n")
    with pytest.raises(InputError, match=r"1.csv, line 2: two columns are called 'm'; there are 'm', 'n', 'm'"):
        read("read_csv", path)
    with pytest.raises(InputError, match=r"1.csv, line 2: two columns are called 'm'"):
        read("read_csv", path, schema={"n": "int64", "x": "int64"})


def test_records_may_be_longer_than_a_block(tmp_path: Path) -> None:
    text = '\r\n",' * 1_000_000
    rows = pa.table({"n": [1, 2, 3], "text": ["a", text, "b"]})
    env = fn.Environment(parallelism=1)
    env.from_arrow(rows).write_csv(tmp_path / "csv")
    env.from_arrow(rows).write_json(tmp_path / "json")
    env.execute(workers=0)
    assert read("read_csv", tmp_path / "csv").to_pylist() == rows.to_pylist()
    assert read("read_json", tmp_path / "json").to_pylist() == rows.to_pylist()


TEXTS = st.none() | st.text(st.sampled_from('a,;"\n\r é'), max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.none() | st.integers(-9, 9)), max_size=12), st.sampled_from(",;\t"), st.booleans())
def test_csv_gives_back_any_texts(rows: list[tuple[str | None, int | None]], delimiter: str, alone: bool) -> None:
    table = pa.table({"t": pa.array([row[0] for row in rows], pa.string())})
    if not alone:
        table = table.append_column("n", pa.array([row[1] for row in rows], pa.int64()))
    with tempfile.TemporaryDirectory() as folder:
        env = fn.Environment(parallelism=1)
        env.from_arrow(table).write_csv(folder, delimiter=delimiter)
        env.execute(workers=0)
        found = read("read_csv", Path(folder), schema=table.schema, delimiter=delimiter)
    assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.float32()), pa.struct([("x", pa.float64())])])
def test_numbers_that_json_has_not_are_refused(value: float, kind: pa.DataType, tmp_path: Path) -> None:
    cell: Any = {pa.float64(): value, pa.list_(pa.float32()): [value]}.get(kind, {"x": value})
    env = fn.Environment(parallelism=1)
    env.from_arrow(pa.table({"n": [1], "it": pa.array([cell], kind)})).write_json(tmp_path / "out")
    with pytest.raises(OperatorError, match="write_json: column 'it' has -?(NaN|inf), which JSON has no number for"):
        env.execute(workers=0)
    env = fn.Environment(parallelism=1)
    env.from_arrow(pa.table({"n": [1], "it": pa.array([None], kind)})).write_json(tmp_path / "none")
    env.execute(workers=0)
    assert read("read_json", tmp_path / "none", schema={"n": "int64"}).to_pylist() == [{"n": 1}]


def test_json_that_nests_too_deep_is_refused_by_line(tmp_path: Path) -> None:
    for depth in (59, 60, 100_000):
        line = '{"a": ' + "[" * depth + "1" + "]" * depth + "}"
        path = write(tmp_path, "jsonl", '{"a": null}\n' + line + "\n")
        if depth == 59:
            assert len(read("read_json", path)) == 2
            continue
        with pytest.raises(InputError, match=r"0.jsonl, line 2: it nests deeper than 60 levels"):
            read("read_json", path)
        with pytest.raises(OperatorError, match=r"0.jsonl: line 2: it nests deeper than 60 levels"):
            read("read_json", path, schema={"b": "int64"})


def test_a_name_with_a_zero_byte_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl", '{"o": [{"foo\\u0000bar": 1}]}\n')
    with pytest.raises(InputError, match=r"0.jsonl: the name 'foo\\x00bar' has a zero byte"):
        read("read_json", path)
