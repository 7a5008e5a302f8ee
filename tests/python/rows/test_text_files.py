"""Files of lines as rows: what was written comes back, shared by subtasks, and is named where it breaks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import polars
import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import ConfigError, InputError, OperatorError, PlanError

from .halves import Pauses, stop_on_the_way
from .test_sinks import MANY, NESTED


def write(folder: Path, files: int, rows: int = 300) -> list[int]:
    folder.mkdir()
    for file in range(files):
        numbers = range(file * rows, (file + 1) * rows)
        frame = polars.DataFrame({"n": numbers, "text": [f"t {number % 10}" for number in numbers], "ms": numbers})
        frame.write_csv(folder / f"{file:03}.csv")
        frame.write_ndjson(folder / f"{file:03}.jsonl")
    return list(range(files * rows))


@pytest.mark.parametrize("method", ["read_csv", "read_json"])
@pytest.mark.parametrize("files", [1, 7])
def test_each_row_is_read_once_whoever_reads_it(method: str, files: int, workers: int, tmp_path: Path) -> None:
    numbers = write(tmp_path / "in", files)
    env = fn.Environment(parallelism=3)
    rows = getattr(env, method)(tmp_path / "in", columns=["text", "n"])
    assert rows.schema == {"text": "utf8", "n": "int64"}
    collected = rows.collect()
    env.execute(workers=workers)
    found = collected.to_arrow()
    assert sorted(found["n"].to_pylist()) == numbers
    assert set(zip(found["n"].to_pylist(), found["text"].to_pylist(), strict=True)) == {
        (number, f"t {number % 10}") for number in numbers
    }


def test_csv_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = pa.table({"na": ["", None, "NA"], **{name: MANY[name] for name in MANY.column_names}})
    env = fn.Environment(parallelism=1)
    env.from_arrow(table).write_csv(tmp_path / "out")
    env.execute(workers=0)
    env = fn.Environment(parallelism=1)
    given = env.read_csv(tmp_path / "out", schema=table.schema).collect()
    guessed = env.read_csv(tmp_path / "out").collect()
    env.execute(workers=0)
    assert given.to_arrow().to_pylist() == table.to_pylist()
    (tmp_path / "quoted.csv").write_text('empty,n\n"",1\n,2\n')
    env = fn.Environment(parallelism=1)
    quoted = env.read_csv(tmp_path / "quoted.csv", schema={"empty": "utf8"}).collect()
    env.execute(workers=0)
    assert quoted.to_arrow()["empty"].to_pylist() == ["", None]
    assert guessed.to_arrow()["s"].to_pylist() == MANY["s"].to_pylist()


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    table = pa.table({**{name: MANY[name] for name in ("i", "f", "s", "b")}, "l": NESTED["l"], "r": NESTED["r"]})
    env = fn.Environment(parallelism=1)
    env.from_arrow(table).write_json(tmp_path / "out")
    env.execute(workers=0)
    env = fn.Environment(parallelism=1)
    given = env.read_json(tmp_path / "out", schema=table.schema).collect()
    few = env.read_json(tmp_path / "out", schema={"s": "utf8", "none": "int64"}).collect()
    env.execute(workers=0)
    assert given.to_arrow().to_pylist() == table.to_pylist()
    assert few.to_arrow().to_pylist() == [{"s": text, "none": None} for text in MANY["s"].to_pylist()]


TIMES = pa.table(
    {
        "date": pa.array([date(2026, 11, 26), None]),
        "time32": pa.array([time(1, 2, 3), None], pa.time32("s")),
        "time64": pa.array([time(23, 59, 59, 4), None], pa.time64("ns")),
        "timestamp": pa.array([datetime(2026, 11, 26, 10, 30, 0, 5), None], pa.timestamp("us")),
        "instant": pa.array([datetime(2026, 11, 26, 10, 30, tzinfo=UTC), None], pa.timestamp("ms", "Europe/Berlin")),
        "seconds": pa.array([timedelta(days=400, seconds=3), None], pa.duration("s")),
        "longest": pa.array([2**63 - 1, -(2**63) + 1], pa.int64()).cast(pa.duration("us")),
        "fine": pa.array([-1, None], pa.int64()).cast(pa.duration("ns")),
        "none": pa.array([timedelta(0), None], pa.duration("ms")),
        "bytes": pa.array([b"\x00\xff", None]),
        "two": pa.array([b"ab", None], pa.binary(2)),
        "decimal": pa.array([Decimal("1.50"), None]),
        "days": pa.array([[date(1, 1, 1), None], None]),
        "record": pa.array(
            [{"at": time(4), "ids": [b"x"]}, None], pa.struct({"at": pa.time32("ms"), "ids": pa.list_(pa.binary())})
        ),
    }
)


@pytest.mark.parametrize("lines", ["json", "csv"])
def test_times_and_bytes_come_back_with_their_schema(lines: str, tmp_path: Path) -> None:
    table = TIMES if lines == "json" else TIMES.drop(["days", "record"])
    env = fn.Environment()
    getattr(env.from_arrow(table), f"write_{lines}")(tmp_path / "out")
    env.execute()
    env = fn.Environment()
    read = getattr(env, f"read_{lines}")
    found = read(tmp_path / "out", schema=table.schema).collect()
    few = read(tmp_path / "out", schema=table.schema, columns=["bytes", "date"]).collect()
    env.execute()
    assert found.to_arrow().equals(table.cast(found.to_arrow().schema))
    assert few.to_arrow().to_pydict() == {name: table[name].to_pylist() for name in ("bytes", "date")}


def test_a_text_of_a_column_that_nobody_wants_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"it": "no date", "n": 1}\n')
    env = fn.Environment()
    rows = env.read_json(tmp_path / "in.jsonl", schema={"it": "date", "n": "int64"}, columns=["n"]).collect()
    env.execute()
    assert rows.to_arrow().to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("lines", "wanted", "text", "says"),
    [
        ("json", "date", "26.11.2026", "column 'it': .*'26.11.2026' as a scalar of type date32"),
        ("csv", "date", "26.11.2026", "column 'it', which is date: invalid value '26.11.2026'"),
        ("json", "timestamp[ms]", "2026-11-26T00:00:00Z", "column 'it': .*expected no zone offset"),
        ("csv", "timestamp[ms]", "2026-11-26T00:00:00Z", "column 'it', which is timestamp.ms.: expected no zone"),
        ("json", "timestamp[ms, UTC]", "2026-11-26T00:00:00", "column 'it': .*expected a zone offset"),
        ("csv", "timestamp[ms, UTC]", "2026-11-26T00:00:00", "column 'it', which is .*: expected a zone offset"),
        ("json", "time[s]", "24:00:00", "column 'it': .*'1970-01-01T24:00:00'"),
        ("json", "time[s]", "10:00:00.5", "column 'it': .*would lose data"),
        ("json", "duration[us]", "P1D", "column 'it': .*'P1D' is no duration, such as 'PT1.5S'"),
        ("csv", "duration[us]", "P1D", "column 'it': .*'P1D' is no duration, such as 'PT1.5S'"),
        ("json", "duration[s]", "PT0.5S", "column 'it': .*would cause data loss"),
        ("csv", "duration[s]", "PT0.5S", "column 'it': .*would cause data loss"),
        ("json", "binary", "so", "column 'it': .*'so' is not bytes, two hexadecimal digits each"),
        ("csv", "binary", "so", "column 'it': .*'so' is not bytes, two hexadecimal digits each"),
        ("json", "binary(2)", "616263", "column 'it': .*expected to be length 2 was 3"),
        ("csv", "binary(2)", "616263", "column 'it': .*expected to be length 2 was 3"),
    ],
)
def test_a_text_that_is_none_of_the_type_names_file_and_column(
    lines: str, wanted: str, text: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / f"in.{lines}"
    path.write_text(f"it\n{text}\n" if lines == "csv" else json.dumps({"it": text}))
    env = fn.Environment()
    getattr(env, f"read_{lines}")(path, schema={"it": wanted}).collect()
    with pytest.raises(OperatorError, match=says) as raised:
        env.execute()
    assert f"behind row 0 of {path}: line {2 if lines == 'csv' else 1}: " in str(raised.value)
    assert "Traceback" not in str(raised.value)


def test_files_of_subtasks_that_had_no_rows_are_read_with_the_others(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=3)
    rows = env.from_arrow(pa.table({"n": [1, 2]})).filter(fn.col("n") > 1)
    rows.key_by("n").running_agg(rows=fn.count()).write_json(tmp_path)
    env.execute(workers=workers)
    assert [path.stat().st_size > 0 for path in sorted(tmp_path.iterdir())].count(True) == 1
    env = fn.Environment(parallelism=2)
    told = env.read_json(tmp_path, schema={"n": "int64", "rows": "int64"}).collect()
    found = env.read_json(tmp_path).collect()
    env.execute(workers=workers)
    assert told.to_arrow().to_pylist() == found.to_arrow().to_pylist() == [{"n": 2, "rows": 1}]


def test_a_file_without_a_byte_has_no_rows_where_there_is_no_header(env: fn.Environment, tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_bytes(b"")
    (tmp_path / "1.csv").write_text("1\n")
    rows = env.read_csv(tmp_path, schema={"n": "int64"}, header=False).collect()
    env.execute()
    assert rows.to_arrow()["n"].to_pylist() == [1]
    with pytest.raises(InputError, match=r"0\.csv, line 1: there is no header: the file is empty"):
        env.read_csv(tmp_path)


def test_lines_without_a_header_and_of_packed_files(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("1;x\n2;\n")
    env = fn.Environment(parallelism=1)
    schema = {"n": "int32", "word": "utf8"}
    rows = env.read_csv(tmp_path, schema=schema, delimiter=";", header=False, filter=fn.col("n") > 1).collect()
    words = env.read_csv(tmp_path, schema=schema, delimiter=";", header=False, columns=["word"]).collect()
    env.execute(workers=0)
    assert rows.to_arrow().to_pylist() == [{"n": 2, "word": None}]
    assert words.to_arrow().to_pylist() == [{"word": "x"}, {"word": None}]


@pytest.mark.parametrize("method", ["read_csv", "read_json"])
def test_rows_go_on_behind_those_that_were_read(method: str, tmp_path: Path) -> None:
    numbers = write(tmp_path / "in", 20)

    def job(pause_s: float) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment(parallelism=2)
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")

        rows = getattr(env, method)(tmp_path / "in", event_time="ms").map_batches(Pauses(pause_s))
        return env, rows.key_by("n").window(fn.EndOfInput()).agg(count=fn.count()).collect()

    # Each subtask has ten files, and a checkpoint comes between two of them: it is stopped long before the last.
    env, before = job(pause_s=0.3)
    stop_on_the_way(env)
    assert len(before) == 0
    env, collected = job(pause_s=0)
    env.execute()
    assert sorted(collected.to_arrow()["n"].to_pylist()) == numbers
    assert set(collected.to_arrow()["count"].to_pylist()) == {1}


GIVEN = {"n": "int64", "text": "utf8", "ms": "int64"}


@pytest.mark.parametrize(
    ("method", "name", "text", "says"),
    [
        ("read_csv", "001.csv", "n,text,ms\n1,a,2\n2,b,x\n", "line 3: column 'ms', which is int64: invalid value 'x'"),
        ("read_csv", "001.csv", 'n,text,ms\n1,"a\nb",2\n2,b,x\n', "line 4: column 'ms', which is int64: invalid value"),
        ("read_csv", "001.csv", "n,text,ms\r1,a,2\r2,b,x\r", "line 3: column 'ms', which is int64: invalid value 'x'"),
        ("read_csv", "001.csv", "n,text,ms\n1,a,2\n\n1,a\n", "line 4: Expected 3 columns, got 2: 1,a"),
        ("read_csv", "001.csv", 'n,text,ms\n1,a,2\n2,"b,3\n4,d,5\n', "line 3: a quote is opened and never closed"),
        ("read_csv", "001.csv", 'n,text,ms\n1,"a\n2,"b,3\n', r"line 3: a closing quote .*\(it is opened in line 2\)"),
        ("read_csv", "001.csv", "n,text,ms\n1,caf\udce9,2\n", "line 2: column 'text', which is utf8: invalid UTF8"),
        (
            "read_json",
            "001.jsonl",
            '{"n": 1}\n{"n": "x"}\n',
            "line 2: column 'n', which is int64: Column./n. changed from",
        ),
        ("read_json", "001.jsonl", '{"n": 1}\n{"text": "caf\udce9"}\n', "line 2: it is not UTF-8"),
        ("read_json", "001.jsonl", '{"n": 1}\n{"n": 1.5}\n', "line 2: column 'n', which is int64: .*parse:1.5"),
        ("read_json", "001.jsonl", '\n{"n": 1\n', "line 2: "),
    ],
)
def test_a_line_that_does_not_fit_is_named_with_its_file(
    method: str, name: str, text: str, says: str, tmp_path: Path
) -> None:
    write(tmp_path / "in", 2)
    (tmp_path / "in" / name).write_text(text, errors="surrogateescape", newline="")
    env = fn.Environment()
    getattr(env, method)(tmp_path / "in", schema=GIVEN).collect()
    with pytest.raises(OperatorError, match=rf"behind row \d+ of .*{name.replace('.', '[.]')}: {says}") as raised:
        env.execute(workers=0)
    assert raised.value.operator == method


MISTAKES: dict[str, tuple[Callable[[fn.Environment, Path], object], type[Exception], str]] = {
    "nowhere": (lambda env, path: env.read_csv(path / "no"), InputError, r"read_csv\(\): there is no file or folder"),
    "nothing": (
        lambda env, path: env.read_json(path / "empty"),
        InputError,
        r"read_json\(\): there are no files \*.jsonl or \*.ndjson or \*.json",
    ),
    "column": (
        lambda env, path: env.read_csv(path / "in", columns=["m"]),
        PlanError,
        "read_csv: there is no column 'm' in .*000.csv; there are 'n', 'text', 'ms'",
    ),
    "schema": (lambda env, path: env.read_csv(path / "in", schema={"n": "int65"}), PlanError, "read_csv: .*int65"),
    "header": (lambda env, path: env.read_csv(path / "in", header=False), PlanError, "header=False. needs schema="),
    "delimiter": (lambda env, path: env.read_csv(path / "in", delimiter="||"), ConfigError, "one character of ASCII"),
    "broken": (lambda env, path: env.read_json(path / "in" / "000.csv"), InputError, "000.csv, line 1: Invalid value"),
    "misspelt": (
        lambda env, path: env.read_csv(path / "in", schema={"n": "int64", "txt": "utf8"}),
        InputError,
        "no file has column 'txt' of the schema; there are 'n', 'text', 'ms'",
    ),
    "filter": (lambda env, path: env.read_csv(path / "in", filter="n > 3"), PlanError, "takes an expression"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("describe", "kind", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_before_anything_runs(
    describe: Callable[[fn.Environment, Path], object],
    kind: type[Exception],
    text: str,
    env: fn.Environment,
    tmp_path: Path,
) -> None:
    write(tmp_path / "in", 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(kind, match=text):
        describe(env, tmp_path)


def test_a_column_without_values_has_to_be_described(env: fn.Environment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,nothing\n1,\n")
    with pytest.raises(PlanError, match="'nothing'.*schema= says what columns are"):
        env.read_csv(tmp_path)
    rows = env.read_csv(tmp_path, schema={"n": "int64", "nothing": "utf8"}).collect()
    env.execute(workers=0)
    assert rows.to_arrow().to_pylist() == [{"n": 1, "nothing": None}]
