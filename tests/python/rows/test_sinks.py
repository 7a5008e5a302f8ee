"""Where rows go in the end: files of every format, complete and once, and sinks of one's own over batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import flownet as fn
from flownet.errors import ConfigError, OperatorError, PlanError

from .halves import ROWS, FailsOnce, Half, stop_on_the_way

MANY = pa.table(
    {
        "i": pa.array([1, None, -3], "int32"),
        "f": [1.5, None, 1e300],
        "s": ['a,"b"', None, "ü\nx"],
        "b": [True, None, False],
        "t": [datetime(2020, 1, 1, 1, 2, 3, 4), None, datetime(1960, 1, 1)],
        "z": pa.array([datetime(2020, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "Europe/Berlin")),
        "d": [date(2020, 1, 1), None, date(1, 1, 1)],
        "x": pa.array([Decimal("1.10"), None, Decimal("-3.00")], pa.decimal128(10, 2)),
    }
)
NESTED = {"l": [[1], None, []], "r": [{"a": 1, "b": "x"}, None, {"a": None, "b": None}], "y": [b"\x00a", None, b""]}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def parquet(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]


def csv(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.iterdir()) for row in pyarrow.csv.read_csv(path).to_pylist()]


def json(folder: Path) -> list[dict[str, Any]]:
    files = [path for path in sorted(folder.iterdir()) if path.stat().st_size]
    return [row for path in files for row in polars.read_ndjson(path).to_dicts()]


READERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {"parquet": parquet, "csv": csv, "json": json}


def write(rows: fn.Rows, format: str, folder: Path) -> fn.streams.StreamSink:
    sink: fn.streams.StreamSink = getattr(rows, f"write_{format}")(folder)
    return sink


def test_parquet_has_what_the_rows_had(workers: int, tmp_path: Path) -> None:
    table = pa.table({**{name: MANY[name] for name in MANY.column_names}, **NESTED, "e": [timedelta(seconds=1)] * 3})
    env = fn.Environment(parallelism=2)
    env.from_arrow(table).write_parquet(tmp_path / "out", compression="zstd")
    result = env.execute(workers=workers)
    assert names(tmp_path / "out") == ["part-0.parquet", "part-1.parquet"]
    # The one that had no rows says all the same which columns there are.
    assert all(pq.read_schema(path).equals(table.schema) for path in (tmp_path / "out").iterdir())
    assert parquet(tmp_path / "out") == table.to_pylist()
    assert result.tasks[-1].rows_out == 3


def test_lines_of_csv_are_what_pyarrow_reads(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=1)
    rows = env.from_arrow(MANY)
    rows.write_csv(tmp_path / "comma")
    rows.write_csv(tmp_path / "bare", delimiter=";", header=False)
    env.execute(workers=0)
    convert = pyarrow.csv.ConvertOptions(
        column_types=MANY.schema, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    found = pyarrow.csv.read_csv(tmp_path / "comma" / "part-0.csv", parse_options=parse, convert_options=convert)
    assert found.to_pylist() == MANY.to_pylist()
    assert (tmp_path / "bare" / "part-0.csv").read_text().startswith('1;1.5;"a,""b""";true;2020-01-01T01:02:03.000004;')


def test_lines_of_json_are_what_polars_reads(tmp_path: Path) -> None:
    table = pa.table({**{name: MANY[name] for name in ("i", "f", "s", "b")}, "l": NESTED["l"], "r": NESTED["r"]})
    env = fn.Environment(parallelism=1)
    env.from_arrow(table).write_json(tmp_path / "out")
    env.execute(workers=0)
    assert names(tmp_path / "out") == ["part-0.jsonl"]
    assert json(tmp_path / "out") == table.to_pylist()


def test_row_groups_are_as_large_as_they_were_asked_for(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=1)
    env.from_arrow(pa.table({"n": range(100_000)})).write_parquet(tmp_path / "out", row_group_rows=30_000)
    env.execute(workers=0)
    read = pq.read_metadata(tmp_path / "out" / "part-0.parquet")
    groups = [read.row_group(number).num_rows for number in range(read.num_row_groups)]
    assert sum(groups) == 100_000
    # One ends with the batch in which it is full.
    assert max(groups) <= 30_000 + 8192
    assert len(groups) <= 8


def from_half(tmp_path: Path, parallelism: int = 2, pause_s: float = 0.005) -> tuple[fn.Environment, fn.Rows]:
    env = fn.Environment(parallelism=parallelism, restart="fixed:3:10ms", max_parallelism=128)
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    source = env.from_arrow(Half(pause_s), schema={"key": "int64", "ms": "int64", "n": "int64"}).set_parallelism(2)
    return env, source.map_batches(FailsOnce(tmp_path)).set_parallelism(2).rebalance()


@pytest.mark.parametrize("format", READERS)
def test_each_row_is_in_a_file_once_behind_a_restart(format: str, workers: int, tmp_path: Path) -> None:
    env, rows = from_half(tmp_path)
    write(rows, format, tmp_path / "out")
    result = env.execute(workers=workers)
    assert result.restarted == 1
    assert sorted(row["n"] for row in READERS[format](tmp_path / "out")) == list(range(ROWS))
    suffix = "jsonl" if format == "json" else format
    # One of each checkpoint in which something was written, and nothing else.
    assert all(re.fullmatch(rf"part-[01]-\d{{6}}\.{suffix}", name) for name in names(tmp_path / "out"))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_files_go_on_with_another_parallelism(parallelism: int, tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    env, rows = from_half(tmp_path, pause_s=0.1)
    rows.write_parquet(tmp_path / "out")
    stop_on_the_way(env)
    before = parquet(tmp_path / "out")
    assert 0 < len(before) < ROWS
    env, rows = from_half(tmp_path, parallelism)
    rows.write_parquet(tmp_path / "out")
    assert env.execute().resumed_from is not None
    assert sorted(row["n"] for row in parquet(tmp_path / "out")) == list(range(ROWS))


def test_no_part_of_a_run_before_is_left_and_none_of_one_that_fails(tmp_path: Path) -> None:
    def run(parallelism: int, function: Callable[[Any], Any] = lambda batch: batch) -> None:
        env = fn.Environment(parallelism=parallelism)
        rows = env.from_arrow(pa.table({"n": range(50_000)})).rebalance()
        rows.map_batches(function, schema={"n": "int64"}).write_parquet(tmp_path / "out")
        env.execute(workers=0)

    def fails(batch: Any) -> Any:
        if batch["n"][0].as_py() > 20_000:
            raise ValueError("no more")
        return batch

    run(3)
    run(2)
    assert names(tmp_path / "out") == ["part-0.parquet", "part-1.parquet"]
    with pytest.raises(OperatorError, match="no more"):
        run(2, fails)
    assert names(tmp_path / "out") == ["part-0.parquet", "part-1.parquet"]
    assert sorted(row["n"] for row in parquet(tmp_path / "out")) == list(range(50_000))


class Table(fn.TransactionalSink[Any]):
    """Keeps what is committed in files, each under the name of its transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        self.folder.mkdir(exist_ok=True)
        self.batches: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self.batches += records

    def prepare_commit(self) -> Any:
        batches, self.batches = self.batches, []
        return pa.Table.from_batches(batches)

    def commit(self, prepared: Any) -> None:
        pq.write_table(prepared, self.folder / f"{prepared['n'][0].as_py()}.parquet")


def test_a_transactional_sink_has_each_row_once(workers: int, tmp_path: Path) -> None:
    env, rows = from_half(tmp_path)
    rows.sink_to(Table(tmp_path / "out"))
    result = env.execute(workers=workers)
    assert result.restarted == 1
    assert sorted(row["n"] for row in parquet(tmp_path / "out")) == list(range(ROWS))


@pytest.mark.parametrize(
    ("format", "kind"), [("arrow", "RecordBatch"), ("polars", "DataFrame"), ("pandas", "DataFrame"), ("numpy", "dict")]
)
def test_a_sink_has_batches_as_it_wants_them(format: Any, kind: str, tmp_path: Path) -> None:
    class Kinds(fn.Sink[Any]):
        def write(self, records: list[Any]) -> None:
            (tmp_path / "kinds").write_text(f"{[type(record).__name__ for record in records]} {len(records[0]['n'])}")

    env = fn.Environment(parallelism=1)
    env.from_arrow(pa.table({"n": [1, 2]})).sink_to(Kinds(), format=format)
    env.execute(workers=0)
    assert (tmp_path / "kinds").read_text() == f"['{kind}'] 2"


def test_an_error_of_a_sink_names_it(tmp_path: Path) -> None:
    class Full(fn.Sink[Any]):
        def write(self, records: list[Any]) -> None:
            raise OSError("the disk is full")

    env = fn.Environment()
    env.from_arrow(pa.table({"n": [1, 2]})).sink_to(Full())
    with pytest.raises(OperatorError, match="the disk is full") as raised:
        env.execute(workers=0)
    assert raised.value.operator == "Full"
    (tmp_path / "file").touch()
    env = fn.Environment()
    env.from_arrow(pa.table({"n": [1, 2]})).write_json(tmp_path / "file" / "out")
    with pytest.raises(OperatorError, match=r"file/out/part-\d.jsonl.inprogress: Not a directory"):
        env.execute(workers=0)


MISTAKES: dict[str, tuple[Callable[[fn.Rows, Path], object], type[Exception], str]] = {
    "a file": (lambda rows, path: rows.write_json(path / "file"), ConfigError, "file'.: is a file; name a folder"),
    "two": (lambda rows, path: [rows.write_csv(path) for _ in range(2)], ConfigError, "another write_csv writes there"),
    "with objects": (
        lambda rows, path: [rows.to_objects().write_csv(path), rows.write_csv(path)],
        ConfigError,
        "another write_csv writes there",
    ),
    "compression": (
        lambda rows, path: rows.write_parquet(path, compression="zip"),
        ConfigError,
        "'zip'.: must be one of 'snappy', 'zstd'",
    ),
    "groups": (
        lambda rows, path: rows.write_parquet(path, row_group_rows=0),
        ConfigError,
        "row_group_rows=0.*must lie between 1",
    ),
    "delimiter": (lambda rows, path: rows.write_csv(path, delimiter="§"), ConfigError, "one character of ASCII"),
    "lists": (lambda rows, path: rows.write_csv(path), PlanError, "column 'l' is list.* write_json and write_parquet"),
    "format": (lambda rows, path: rows.sink_to(Table(path), format="cudf"), ConfigError, "'cudf'.: must be one of"),  # type: ignore[arg-type]
    "no sink": (lambda rows, path: rows.sink_to(print), PlanError, "needs an instance of a subclass of flownet.Sink"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("describe", "kind", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_before_anything_runs(
    describe: Callable[[fn.Rows, Path], object], kind: type[Exception], text: str, env: fn.Environment, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    column = {"l": [[1]]} if "lists" in text or "list" in text else {"n": [1]}
    with pytest.raises(kind, match=text):
        describe(env.from_arrow(pa.table(column)), tmp_path)
