"""Parquet files as rows: shared by subtasks, read no more than is wanted, and named where they are broken."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flownet as fn
from flownet.errors import InputError, OperatorError, PlanError
from flownet.rows.parquet import parquet_files
from flownet.rows.pushed_down import pushed_down
from flownet.rows.splits import FileAssignment

from .halves import Pauses, stop_on_the_way


def write(folder: Path, files: int, rows: int = 1000, group: int = 100) -> list[int]:
    folder.mkdir()
    for file in range(files):
        numbers = list(range(file * rows, (file + 1) * rows))
        table = pa.table({"n": numbers, "text": [f"t{number % 10}" for number in numbers], "ms": numbers})
        pq.write_table(table, folder / f"{file:03}.parquet", row_group_size=group)
    return list(range(files * rows))


@pytest.mark.parametrize("files", [1, 3, 20])
def test_each_row_is_read_once_whoever_reads_it(workers: int, files: int, tmp_path: Path) -> None:
    numbers = write(tmp_path / "in", files, rows=300)
    env = fn.Environment(parallelism=3)
    collected = env.read_parquet(tmp_path / "in", columns=["n"]).collect()
    env.execute(workers=workers)
    assert collected.to_arrow().column_names == ["n"]
    assert sorted(collected.to_arrow()["n"].to_pylist()) == numbers


def test_a_filter_keeps_its_rows_and_leaves_groups_alone_that_have_none(tmp_path: Path) -> None:
    write(tmp_path / "in", 2)
    wanted = (fn.col("n") >= 150) & (fn.col("n") < 160) & fn.col("text").is_in(["t1", "t5"])
    env = fn.Environment()
    rows = env.read_parquet(tmp_path / "in", filter=wanted, event_time="ms")
    counts = rows.key_by("text").window(fn.Tumbling("1s")).agg(n=fn.count()).collect()
    collected = rows.select("n").collect()
    result = env.execute(workers=0)
    assert collected.to_arrow()["n"].to_pylist() == [151, 155]
    assert len(counts) == 2
    (source,) = (task for task in result.tasks if "read_parquet" in task.name)
    # Of 20 groups of 100 rows, one has these.
    assert source.rows_in == 100


SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("f", pa.float64())])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda: fn.col("n") > 3, "(n > 3)"),
        (lambda: (fn.col("n") > 3) | (fn.col("s") == "a"), '((n > 3) or (s == "a"))'),
        (lambda: (fn.col("n") > 3) & fn.col("s").is_null(), "(n > 3)"),
        (lambda: (fn.col("n") > 3) | fn.col("s").is_null(), "None"),
        (lambda: fn.col("n") + 1 > 3, "None"),
        (lambda: fn.col("n") > 0.5, "None"),
        (lambda: fn.col("m") > 3, "None"),
        (lambda: fn.col("s") > 3, "None"),
        (lambda: fn.col("f") < 3, "(f < 3)"),
        # NaN is above 3, and in no statistics.
        (lambda: fn.col("f") > 3, "None"),
        (lambda: (fn.col("f") >= 3) & (fn.col("n") > 3), "(n > 3)"),
    ],
)
def test_what_files_have_statistics_for_is_asked_of_them(expression: Any, expected: str) -> None:
    assert str(pushed_down(expression()._tree(), SCHEMA)) == expected


VALUES: dict[str, tuple[pa.Array, Any]] = {
    "decimals": (pa.array([Decimal("1.50"), None, Decimal("7.00"), Decimal("7.01")]), 7),
    "views": (pa.array(["a", None, "m", "z"], pa.string_view()), "m"),
    "uint64": (pa.array([0, None, 7, 2**64 - 1], pa.uint64()), 7),
    "int8": (pa.array([0, None, 7, 100], pa.int8()), 7),
    "int8 and a number beyond": (pa.array([0, None, 7, 100], pa.int8()), 300),
    "float16": (pa.array([1.5, None, 7, math.nan], pa.float16()), 7),
    "floats": (pa.array([1.5, None, 7, math.nan, -math.nan, math.inf]), 7),
    "floats about zero": (pa.array([-0.0, None, 0.0, 1.0, -1.0]), 0),
    "dictionaries": (pa.array(["a", None, "m", "z"]).dictionary_encode(), "m"),
    "dates": (pa.array([date(1, 1, 1), None, date(2026, 11, 26), date(9999, 12, 31)]), date(2026, 11, 26)),
    "instants": (pa.array([0, None, 10**12], pa.timestamp("us", "UTC")), None),
}


@pytest.mark.parametrize("op", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__"])
@pytest.mark.parametrize("kind", VALUES)
def test_a_filter_of_files_keeps_the_rows_that_a_filter_behind_them_keeps(kind: str, op: str, tmp_path: Path) -> None:
    values, literal = VALUES[kind]
    # A row group each, so that each is kept or left out by its own statistics.
    pq.write_table(pa.table({"it": values, "n": range(len(values))}), tmp_path / "a.parquet", row_group_size=1)
    wanted = getattr(fn.col("it"), op)(literal if literal is not None else fn.col("it"))
    env = fn.Environment(parallelism=1)
    read = env.read_parquet(tmp_path, filter=wanted).select("n").collect()
    behind = env.read_parquet(tmp_path).filter(wanted).select("n").collect()
    env.execute(workers=0)
    assert read.to_arrow().to_pylist() == behind.to_arrow().to_pylist()


def test_times_of_96_bits_are_those_that_were_written(tmp_path: Path) -> None:
    times = [datetime(1, 1, 1), datetime(1677, 1, 1), None, datetime(2026, 11, 26, 1, 2, 3, 4), datetime(9999, 12, 31)]
    table = pa.table({"until": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    env = fn.Environment(parallelism=1)
    rows = env.read_parquet(tmp_path)
    assert rows.schema == {"until": "timestamp[us]"}
    assert rows.to_arrow()["until"].to_pylist() == times


def test_a_page_that_does_not_have_its_checksum_is_named_with_its_file(tmp_path: Path) -> None:
    table = pa.table({"text": ["a text that is found again"] * 3})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    assert fn.Environment().read_parquet(path).to_arrow().equals(table)
    path.write_bytes(path.read_bytes().replace(b"found", b"fount"))
    with pytest.raises(OperatorError, match=r"a\.parquet, row group 0: .*CRC checksum verification failed"):
        fn.Environment().read_parquet(path).to_arrow()


def test_rows_go_on_behind_those_that_were_read(tmp_path: Path) -> None:
    numbers = write(tmp_path / "in", 2)

    def job(pause_s: float) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment(parallelism=2)
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")

        rows = env.read_parquet(tmp_path / "in", columns=["n"]).map_batches(Pauses(pause_s))
        return env, rows.key_by("n").window(fn.EndOfInput()).agg(count=fn.count()).collect()

    # Each subtask has ten batches, and a checkpoint comes between two of them: it is stopped long before the last.
    env, before = job(pause_s=0.3)
    stop_on_the_way(env)
    assert len(before) == 0
    env, collected = job(pause_s=0)
    env.execute()
    assert sorted(collected.to_arrow()["n"].to_pylist()) == numbers
    assert set(collected.to_arrow()["count"].to_pylist()) == {1}


def test_mistakes_are_told_before_anything_runs(env: fn.Environment, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file or folder '.*nowhere'"):
        env.read_parquet(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"there are no files \*.parquet in"):
        env.read_parquet(tmp_path / "empty")
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(InputError, match="text.parquet: "):
        env.read_parquet(tmp_path / "text.parquet")
    write(tmp_path / "in", 1)
    with pytest.raises(PlanError, match="there is no column 'm' in .*; there are 'n', 'text', 'ms'"):
        env.read_parquet(tmp_path / "in", columns=["m"])
    with pytest.raises(PlanError, match="takes an expression"):
        env.read_parquet(tmp_path / "in", filter="n > 3")  # type: ignore[arg-type]


def test_a_file_that_is_cut_off_is_named_with_its_row_group(tmp_path: Path) -> None:
    write(tmp_path / "in", 2)
    whole = (tmp_path / "in" / "001.parquet").read_bytes()
    (tmp_path / "in" / "001.parquet").write_bytes(whole[: len(whole) // 2])
    env = fn.Environment()
    with pytest.raises(InputError, match="001.parquet"):
        env.read_parquet(tmp_path / "in")
    middle = whole[:200] + bytes(400) + whole[600:]
    (tmp_path / "in" / "001.parquet").write_bytes(middle)
    env = fn.Environment()
    env.read_parquet(tmp_path / "in").collect()
    with pytest.raises(OperatorError, match="001.parquet, row group 0") as raised:
        env.execute(workers=0)
    assert raised.value.operator == "read_parquet"


def test_row_groups_are_dealt_out_evenly(tmp_path: Path) -> None:
    write(tmp_path / "in", 2)
    files, _ = parquet_files(tmp_path / "in", ["n"], None, None)
    dealt = [[split for split, _ in FileAssignment(files).mine(subtask, 3)] for subtask in range(3)]
    assert sorted(len(splits) for splits in dealt) == [6, 7, 7]
    assert len({split for splits in dealt for split in splits}) == 20
