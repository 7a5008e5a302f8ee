"""Rows in folders that their values name: what others read there is what was written, each row once."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet.errors import InputError, OperatorError, PlanError

from .halves import ROWS, FailsOnce, Half, stop_on_the_way

MISSING = "__HIVE_DEFAULT_PARTITION__"
FORMATS = {"parquet": "parquet", "csv": "csv", "json": "jsonl"}


def write(table: Any, folder: Path | str, by: Any, format: str = "parquet", parallelism: int = 2) -> None:
    env = fn.Environment(parallelism=parallelism)
    getattr(env.from_arrow(table).rebalance(), f"write_{format}")(folder, partition_by=by)
    env.execute(workers=0)


def files(folder: Path | str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def as_pyarrow_reads(folder: Path | str, by: list[str], schema: pa.Schema, format: str = "parquet") -> pa.Table:
    partitioning = ds.partitioning(pa.schema([schema.field(name) for name in by]), flavor="hive")
    return ds.dataset(folder, format=format, schema=schema, partitioning=partitioning).to_table()


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.select(sorted(table.column_names)).to_pylist())


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tiny": (pa.int8(), st.integers(-128, 127)),
    "huge": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 2**63 - 1])),
    "truth": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    # Of characters that paths, readers or Hive take for something else.
    "odd": (
        pa.string(),
        st.text(st.sampled_from("ab./=%:é 5+&#?*'\"\\[]{}^\n\x7f🙂"), max_size=6),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    by = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
    # Few values, so that there are several rows of one folder.
    few = {name: draw(st.lists(st.none() | TYPES[name][1], min_size=1, max_size=4)) for name in by}
    drawn = draw(st.lists(st.tuples(*(st.sampled_from(few[name]) for name in by)), max_size=60))
    columns = {name: pa.array([row[at] for row in drawn], TYPES[name][0]) for at, name in enumerate(by)}
    columns["n"] = pa.array(range(len(drawn)), pa.int64())
    columns["kept"] = pa.array([None if n % 3 else "k" * n for n in range(len(drawn))], pa.string())
    return pa.table({name: columns[name] for name in draw(st.permutations(sorted(columns)))}), by


@settings(max_examples=25, deadline=None)
@given(tables())
def test_any_values_are_read_by_others_as_they_were(described: tuple[pa.Table, list[str]]) -> None:
    table, by = described
    with tempfile.TemporaryDirectory() as folder:
        write(table, folder, by)
        found = as_pyarrow_reads(folder, by, table.schema)
        assert rows(found) == rows(table)
        if table.num_rows:
            schema = polars.DataFrame(table).schema
            read = polars.scan_parquet(folder, hive_schema={name: schema[name] for name in by}).collect()
            assert rows(read.select(table.column_names).to_arrow().cast(table.schema)) == rows(table)
        for path in files(folder):
            # One level for each, and values are in names and nowhere else.
            assert [part.split("=")[0] for part in path.split("/")[:-1]] == by
            names = [name for name in table.column_names if name not in by]
            assert pq.read_schema(Path(folder) / path).names == names


def test_folders_are_called_as_hive_calls_them(tmp_path: Path) -> None:
    columns = {"a/b": ["x=y", None, "", "50%"], "day": [date(2026, 11, 23)] * 4, "n": [1, 2, 3, 4]}
    write(pa.table(columns), tmp_path, ["day", "a/b"], parallelism=1)
    day = "day=2026-11-23"
    expected = [f"{day}/a%2Fb=", f"{day}/a%2Fb=50%25", f"{day}/a%2Fb={MISSING}", f"{day}/a%2Fb=x%3Dy"]
    found = files(tmp_path)
    assert [path.rpartition("/")[0] for path in found] == expected
    # Whichever the folder, no two files of a subtask have one number.
    numbers = [re.fullmatch(r"part-0-(\d{6})\.parquet", path.rpartition("/")[2]) for path in found]
    assert sorted(number[1] for number in numbers if number) == ["000000", "000001", "000002", "000003"]
    assert [pq.ParquetFile(tmp_path / path).read()["n"].to_pylist() for path in found] == [[3], [4], [2], [1]]


def test_a_text_that_stands_for_null_names_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=f"in .k=., is .{MISSING}., which stands for null"):
        write(pa.table({"k": [MISSING], "n": [1]}), tmp_path, ["k"])


def test_lines_are_in_folders_too(tmp_path: Path) -> None:
    table = pa.table({"n": range(50_000), "part": [n % 7 for n in range(50_000)], "text": ["a,b"] * 50_000})
    for format in ("csv", "json"):
        write(table, tmp_path / format, "part", format)
        assert {path.split("/")[0] for path in files(tmp_path / format)} == {f"part={part}" for part in range(7)}
    assert rows(as_pyarrow_reads(tmp_path / "csv", ["part"], table.schema, "csv")) == rows(table)
    assert rows(as_pyarrow_reads(tmp_path / "json", ["part"], table.schema, "json")) == rows(table)
    first = next((tmp_path / "csv" / "part=0").iterdir())
    assert first.read_text().splitlines()[0] == "n,text"


def read(folder: Path | str, parallelism: int = 2, **told: Any) -> pa.Table:
    env = fn.Environment(parallelism=parallelism)
    collected = env.read_parquet(folder, **told).collect()
    env.execute(workers=0)
    return collected.to_arrow()


@settings(max_examples=25, deadline=None)
@given(tables())
def test_flownet_reads_what_it_wrote(described: tuple[pa.Table, list[str]]) -> None:
    table, by = described
    if not table.num_rows:
        return
    with tempfile.TemporaryDirectory() as folder:
        write(table, folder, by)
        found = read(folder, partitions=pa.schema([table.schema.field(name) for name in by]))
        assert set(found.column_names) == set(table.column_names)
        assert rows(found.select(table.column_names).cast(table.schema)) == rows(table)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_flownet_reads_lines_that_it_wrote(format: str, workers: int, tmp_path: Path) -> None:
    columns = {"n": range(1_000), "part": [n % 3 for n in range(1_000)], "text": ["a,b"] * 1_000}
    table = pa.table({**columns, "day": [date(2026, 11, 1), None] * 500})
    write(table, tmp_path, ["day", "part"], format)

    def read_lines(**told: Any) -> fn.Rows:
        env = fn.Environment(parallelism=2)
        return env.read_csv(tmp_path, **told) if format == "csv" else env.read_json(tmp_path, **told)

    assert dict(read_lines().schema) == {"n": "int64", "text": "utf8", "day": "date", "part": "int64"}
    assert rows(read_lines().to_arrow(workers).select(table.column_names)) == rows(table)
    of_schema = read_lines(schema={"n": "int32", "text": "utf8"}, columns=["part", "n"], partitions={"part": "utf8"})
    assert dict(of_schema.schema) == {"part": "utf8", "n": "int32"}
    assert rows(of_schema.to_arrow(workers)) == Counter((n, str(n % 3)) for n in range(1_000))
    assert rows(read_lines(columns=["part"]).to_arrow()) == Counter((n % 3,) for n in range(1_000))
    for broken in tmp_path.glob("day=2026-11-01/part=2/*"):
        broken.write_bytes(b'{"n": "no number"')
    wanted = (fn.col("part") < 2) & (fn.col("n") < 10)
    assert sorted(read_lines(filter=wanted).to_arrow()["n"].to_pylist()) == [n for n in range(10) if n % 3 < 2]
    with pytest.raises(
        InputError, match=rf"read_{format}\(\).*its folder 'day=__HIVE_DEFAULT|its folder 'day=2026-11-01'"
    ):
        read_lines(partitions={"day": "int64"})
    with pytest.raises(PlanError, match=rf"read_{format}\(partitions=...\): no folder says 'year'"):
        read_lines(partitions={"year": "int64"})


def test_types_of_columns_that_folders_say_are_guessed_unless_they_are_told(tmp_path: Path) -> None:
    days = [date(2026, 11, 1), None]
    columns = {"zip": ["01067", "10115"], "n": [-7, 12], "day": days, "mixed": ["1", "x"], "nothing": ["", None]}
    write(pa.table({**columns, "kept": [1, 2]}), tmp_path, list(columns))
    env = fn.Environment()
    guessed = {"zip": "utf8", "n": "int64", "day": "date", "mixed": "utf8", "nothing": "utf8"}
    assert dict(env.read_parquet(tmp_path).schema) == {"kept": "int64", **guessed}
    told = env.read_parquet(tmp_path, columns=["n", "zip"], partitions={"n": "utf8", "zip": "int32"})
    assert dict(told.schema) == {"n": "utf8", "zip": "int32"}
    assert rows(read(tmp_path, columns=["n", "zip"], partitions={"n": "utf8"})) == Counter(
        [("-7", "01067"), ("12", "10115")]
    )
    with pytest.raises(InputError, match=r"its folder 'mixed=x': Failed to parse string: 'x'"):
        env.read_parquet(tmp_path, partitions={"mixed": "int64"})
    with pytest.raises(PlanError, match="no folder says 'year'; they say 'zip', 'n', 'day', 'mixed', 'nothing'"):
        env.read_parquet(tmp_path, partitions={"year": "int64"})
    with pytest.raises(PlanError, match="'n' cannot be list<.*names of folders are texts"):
        env.read_parquet(tmp_path, partitions=pa.schema([("n", pa.list_(pa.int64()))]))


def test_files_of_other_folders_are_not_opened(tmp_path: Path) -> None:
    table = pa.table({"day": [date(2026, 11, n % 3 + 1) for n in range(30)], "n": range(30)})
    write(table, tmp_path, "day")
    for broken in (tmp_path / "day=2026-11-03").iterdir():
        broken.write_bytes(b"no Parquet")
    first, second = ([n for n in range(30) if n % 3 == day] for day in (0, 1))
    for wanted, numbers in (
        (fn.col("day") < date(2026, 11, 3), sorted(first + second)),
        (fn.col("day") == date(2026, 11, 2), second),
        ((fn.col("day") < date(2026, 11, 3)) & (fn.col("n") < 5), [0, 1, 3, 4]),
    ):
        assert sorted(read(tmp_path, filter=wanted)["n"].to_pylist()) == numbers
    with pytest.raises(InputError, match=r"day=2026-11-03/part-"):
        read(tmp_path, filter=fn.col("n") < 0)
    assert read(tmp_path, filter=fn.col("day") > date(2027, 1, 1)).num_rows == 0
    write(table, tmp_path / "whole", "day")
    with pytest.raises(PlanError, match="day"):
        read(tmp_path / "whole", filter=fn.col("day") == "monday")


def test_folders_say_the_same_columns_and_only_below_what_was_given(tmp_path: Path) -> None:
    write(pa.table({"part": [1, 2], "n": [1, 2]}), tmp_path / "env=test" / "out", "part")
    assert read(tmp_path / "env=test" / "out").column_names == ["n", "part"]
    assert read(tmp_path / "env=test" / "out" / "part=1").column_names == ["n"]
    file = next((tmp_path / "env=test" / "out" / "part=1").iterdir())
    assert read(file).column_names == ["n"]
    pq.write_table(pa.table({"n": [3]}), tmp_path / "env=test" / "out" / "z.parquet")
    with pytest.raises(InputError, match=r"z\.parquet: its folders say none, and those of .* 'part'"):
        read(tmp_path / "env=test" / "out")


def test_what_files_say_themselves_counts(tmp_path: Path) -> None:
    (tmp_path / "part=1" / "other=2").mkdir(parents=True)
    pq.write_table(pa.table({"n": [3], "part": ["of the file"]}), tmp_path / "part=1" / "other=2" / "a.parquet")
    assert read(tmp_path).to_pylist() == [{"n": 3, "part": "of the file", "other": 2}]


@pytest.mark.parametrize("format", FORMATS)
def test_more_folders_than_files_may_be_open(format: str, tmp_path: Path) -> None:
    partitions, times = 60, 60

    def batches(subtask: int, subtasks: int) -> Any:
        # Far more than is gathered, so that folders get several files, of which no more than some are open at a time.
        def made() -> Any:
            for start in range(0, partitions * times, partitions):
                numbers = range(start, start + partitions)
                text = pa.array([f"t{n:07}" * 5_500 for n in numbers])
                yield pa.record_batch({"n": numbers, "part": [n % partitions for n in numbers], "text": text})

        schema = pa.schema([("n", pa.int64()), ("part", pa.int64()), ("text", pa.string())])
        return pa.RecordBatchReader.from_batches(schema, made())

    env = fn.Environment(parallelism=1)
    source = env.from_arrow(batches, schema={"n": "int64", "part": "int64", "text": "utf8"})
    getattr(source, f"write_{format}")(tmp_path, partition_by="part")
    env.execute(workers=0)
    found = files(tmp_path)
    assert len(found) > partitions
    assert all(re.fullmatch(rf"part=\d+/part-0-\d{{6}}\.{FORMATS[format]}", path) for path in found)
    scan: Callable[[Path], polars.LazyFrame] = getattr(polars, f"scan_{'ndjson' if format == 'json' else format}")
    starts = polars.col("n"), polars.col("text").str.slice(1, 7).cast(polars.Int64)
    read = [scan(tmp_path / path).select(*starts, path=polars.lit(path)).collect() for path in found]
    frame = polars.concat(read)
    assert sorted(frame["n"]) == list(range(partitions * times))
    assert (frame["n"] % partitions == frame["path"].str.extract(r"part=(\d+)/").cast(polars.Int64)).all()
    assert (frame["text"] == frame["n"]).all()


def from_half(tmp_path: Path, parallelism: int = 2, pause_s: float = 0.005) -> tuple[fn.Environment, fn.Rows]:
    env = fn.Environment(parallelism=parallelism, restart="fixed:3:10ms", max_parallelism=128)
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    source = env.from_arrow(Half(pause_s), schema={"key": "int64", "ms": "int64", "n": "int64"}).set_parallelism(2)
    source = source.map_batches(FailsOnce(tmp_path)).set_parallelism(2).rebalance()
    return env, source.with_columns(part=fn.col("n") % 5)


def numbers(folder: Path, format: str) -> list[int]:
    found = []
    for path in files(folder):
        if format == "parquet":
            table = pq.ParquetFile(folder / path).read()
        else:
            table = ds.dataset(folder / path, format="csv" if format == "csv" else "json").to_table()
        of = re.fullmatch(rf"part=(\d)/part-\d-\d{{6}}\.{FORMATS[format]}", path)
        assert of, path
        assert all(n % 5 == int(of[1]) for n in table["n"].to_pylist())
        found += table["n"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("format", FORMATS)
def test_each_row_is_there_once_behind_a_restart(format: str, workers: int, tmp_path: Path) -> None:
    # Of a run before, in these folders and others, with the numbers of files to come.
    write(pa.table({"n": [-1] * 30, "part": [n % 9 for n in range(30)]}), tmp_path / "out", "part", format)
    env, source = from_half(tmp_path)
    getattr(source, f"write_{format}")(tmp_path / "out", partition_by="part")
    result = env.execute(workers=workers)
    assert result.restarted == 1
    assert numbers(tmp_path / "out", format) == list(range(ROWS))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_folders_go_on_with_another_parallelism(parallelism: int, tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    env, source = from_half(tmp_path, pause_s=0.1)
    source.write_parquet(tmp_path / "out", partition_by="part")
    stop_on_the_way(env)
    assert 0 < len(numbers(tmp_path / "out", "parquet")) < ROWS
    # What a worker that was killed would have left.
    for left in ("part-0.parquet.inprogress", "part-1-000999.parquet.1-2.pending"):
        (tmp_path / "out" / "part=0" / left).touch()
    env, source = from_half(tmp_path, parallelism)
    source.write_parquet(tmp_path / "out", partition_by="part")
    assert env.execute().resumed_from is not None
    assert numbers(tmp_path / "out", "parquet") == list(range(ROWS))


@pytest.mark.parametrize("is_before", ["with checkpoints", "without"])
@pytest.mark.parametrize("is_after", ["with checkpoints", "without"])
def test_nothing_of_a_run_before_is_left(is_before: str, is_after: str, tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    others = {"n": range(5_000), "part": [n % 50 for n in range(5_000)], "key": range(5_000), "ms": range(5_000)}

    def run(how: str, table: Any, parallelism: int) -> None:
        env = fn.Environment(parallelism=parallelism)
        if how == "with checkpoints":
            env.enable_checkpointing("50ms", storage=tmp_path / f"checkpoints of {parallelism}")
        env.from_arrow(table).rebalance().write_parquet(tmp_path / "out", partition_by="part")
        env.execute(workers=0)

    run(is_before, pa.table(others), 3)
    assert len({path.split("/")[0] for path in files(tmp_path / "out")}) == 50
    run(is_after, pa.table({"n": range(100), "part": [n % 5 for n in range(100)]}), 2)
    assert numbers(tmp_path / "out", "parquet") == list(range(100))


def test_a_run_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write(pa.table({"n": range(100), "part": [n % 5 for n in range(100)]}), tmp_path / "out", "part")
    before = files(tmp_path / "out")

    def fails(batch: Any) -> Any:
        if batch["n"][0].as_py() > 20_000:
            raise ValueError("no more")
        return batch

    env = fn.Environment(parallelism=2)
    source = env.from_arrow(pa.table({"n": range(50_000), "part": [n % 9 for n in range(50_000)]})).rebalance()
    source.map_batches(fails, schema={"n": "int64", "part": "int64"}).write_parquet(
        tmp_path / "out", partition_by="part"
    )
    with pytest.raises(OperatorError, match="no more"):
        env.execute(workers=0)
    assert files(tmp_path / "out") == before


def test_what_stands_in_the_way_is_told(tmp_path: Path) -> None:
    table = pa.table({"part": ["a", "b" * 300], "n": [1, 2]})
    with pytest.raises(OperatorError, match=r"part=bbb.*part-0\.parquet\.inprogress: File name too long"):
        write(table, tmp_path / "out", "part", parallelism=1)
    assert files(tmp_path / "out") == []
    (tmp_path / "file").touch()
    with pytest.raises(OperatorError, match="Not a directory"):
        write(table, tmp_path / "file" / "out", "part")


MISTAKES: dict[str, tuple[Callable[[fn.Rows], object], str]] = {
    "missing": (
        lambda rows: rows.write_json("out", partition_by=["m", "x"]),
        r"write_json\(partition_by=\['m', 'x'\]\): there is no column 'x'; there are 'n', 'f', 't', 'y', 'm'",
    ),
    "no name": (lambda rows: rows.write_csv("out", partition_by=[3]), "there is no column 3"),  # type: ignore[list-item]
    "twice": (lambda rows: rows.write_csv("out", partition_by=["n", "n"]), "names column 'n' twice"),
    "none": (lambda rows: rows.write_csv("out", partition_by=[]), "name one column at least"),
    "float": (
        lambda rows: rows.write_csv("out", partition_by="f"),
        r"column 'f' is float64, .*\"f\"\).cast\(\"int64\"",
    ),
    "time": (lambda rows: rows.write_csv("out", partition_by="t"), r"'t' is timestamp\[us\], .*\.cast\(\"date\"\)"),
    "bytes": (lambda rows: rows.write_csv("out", partition_by="y"), r"column 'y' is binary"),
    "all": (lambda rows: rows.select("n", "m").write_csv("out", partition_by=["m", "n"]), "names all columns"),
}


@pytest.mark.parametrize(("describe", "text"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_before_anything_runs(
    describe: Callable[[fn.Rows], object], text: str, env: fn.Environment
) -> None:
    table = pa.table({"n": [1], "f": [1.5], "t": [datetime(2020, 1, 1)], "y": [b"y"], "m": ["m"]})
    with pytest.raises(PlanError, match=text):
        describe(env.from_arrow(table))
