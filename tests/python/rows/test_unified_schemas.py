"""Columns of several files are matched by name and widened without loss, or refused before a job starts."""

from __future__ import annotations

import itertools
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet.errors import InputError, OperatorError, PlanError
from flownet.rows.unify import fitted, widened

from .halves import Pauses, stop_on_the_way


def write(folder: Path, *tables: pa.Table) -> Path:
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def read(path: Path, **settings: Any) -> list[dict[str, Any]]:
    return fn.Environment(parallelism=1).read_parquet(path, **settings).to_arrow().to_pylist()  # type: ignore[no-any-return]


KINDS: dict[str, list[pa.DataType]] = {
    "whole numbers": [pa.null(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()],
    "numbers": [pa.null(), pa.int8(), pa.int16(), pa.int32(), pa.float32(), pa.float64()],
    "texts": [pa.null(), pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    "bytes": [pa.null(), pa.binary(), pa.large_binary()],
    "truths": [pa.null(), pa.bool_()],
    "times": [pa.null(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))],
    "instants": [pa.null(), *(pa.timestamp(unit, "UTC") for unit in ("ms", "us"))],
    "of a day": [pa.null(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    "durations": [pa.null(), pa.duration("s"), pa.duration("us")],
    "decimals": [pa.null(), pa.decimal128(5, 2), pa.decimal128(9, 0), pa.decimal128(12, 6)],
}


def values_of(kind: str, data_type: pa.DataType, rows: int, draw: st.DrawFn) -> pa.Array:
    if pa.types.is_null(data_type):
        return pa.nulls(rows)
    # Few bits, so that all types of a kind have the value.
    numbers = draw(st.lists(st.none() | st.integers(0, 100), min_size=rows, max_size=rows))
    if kind in ("texts", "bytes"):
        return pa.array([None if number is None else str(number) for number in numbers]).cast(data_type)
    if kind == "truths":
        return pa.array([None if number is None else number > 50 for number in numbers], pa.bool_())
    if kind == "decimals":
        return pa.array([None if number is None else Decimal(number) for number in numbers], data_type)
    if pa.types.is_time(data_type):
        return pa.array(numbers, pa.int32() if data_type.bit_width == 32 else pa.int64()).cast(data_type)
    if pa.types.is_temporal(data_type):
        return pa.array(numbers, pa.int64()).cast(data_type)
    return pa.array(numbers, data_type)


@st.composite
def files(draw: st.DrawFn) -> list[pa.Table]:
    """Some tables, whose columns have one kind of value each, in any type, order and layout, or not at all."""
    kinds = draw(st.dictionaries(st.sampled_from("abcd"), st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    tables = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(0, 5))
        columns = {}
        for name in draw(st.permutations(sorted(kinds))):
            if draw(st.booleans()):
                kind = draw(st.sampled_from(KINDS[kinds[name]]))
                columns[name] = values_of(kinds[name], kind, rows, draw)
                if draw(st.booleans()):
                    columns[name] = pa.StructArray.from_arrays([columns[name]], ["nested"])
                    columns[name + " nested"] = columns.pop(name)
        columns["n"] = pa.array(range(rows), pa.int64())
        tables.append(pa.table(columns))
    return tables


@settings(max_examples=30, deadline=None)
@given(files())
def test_any_files_are_read_as_the_rows_of_all_of_them(tables: list[pa.Table]) -> None:
    # Columns without a value in any file have no type.
    names = {name for table in tables for name in table.column_names if not _is_null(table[name].type)}
    expected = [{name: row.get(name) for name in names} for table in tables for row in table.to_pylist()]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), *tables)
        assert read(Path(folder), columns=sorted(names)) == expected


def _is_null(data_type: pa.DataType) -> bool:
    kind = data_type[0].type if pa.types.is_struct(data_type) else data_type
    return bool(pa.types.is_null(kind))


SOME = [pa.timestamp("ms", "+00:00"), *(kind for kinds in KINDS.values() for kind in kinds)]


def test_widening_has_no_order() -> None:
    for one, other in itertools.combinations(SOME, 2):
        forth, back = widened(one, other), widened(other, one)
        assert (forth is None) == (back is None), (one, other)
        if forth is not None:
            # Zones that are the same are called as in the first.
            assert widened(forth, back) is not None
            assert {fitted(pa.nulls(2).cast(kind), forth).type for kind in (one, other)} == {forth}


@pytest.mark.parametrize(
    ("first", "second", "types"),
    [
        (pa.array([1]), pa.array(["x"]), "utf8 in .*1.parquet and int64 in .*0.parquet"),
        (pa.array([1]), pa.array([True]), "bool in .*1.parquet and int64 in"),
        (pa.array([1], pa.uint64()), pa.array([1], pa.int64()), "int64 in .*1.parquet and uint64 in"),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC")), r"timestamp\[us, UTC\] in"),
        (pa.array([1], pa.timestamp("us", "Asia/Tokyo")), pa.array([1], pa.timestamp("us", "UTC")), "Asia/Tokyo"),
        (pa.array([1], pa.date32()), pa.array([1], pa.timestamp("us")), "date in"),
        (pa.array([[1]]), pa.array([["x"]]), r"list\[utf8\] in"),
        (pa.array([{"a": 1}]), pa.array([{"a": "x"}]), r"struct\[a: utf8\] in"),
        (pa.array([Decimal(1)], pa.decimal128(38, 0)), pa.array([Decimal(1)], pa.decimal128(38, 37)), "decimal"),
    ],
)
def test_types_with_nothing_in_common_are_refused_by_file_and_column(
    first: pa.Array, second: pa.Array, types: str, tmp_path: Path
) -> None:
    write(tmp_path, pa.table({"n": [1], "it": first}), pa.table({"it": second, "n": [2]}))
    with pytest.raises(InputError, match=rf"read_parquet\(\): column 'it' is .*{types}.*without loss; name others in"):
        fn.Environment().read_parquet(tmp_path)
    # Whoever does not want it reads the others.
    assert read(tmp_path, columns=["n"]) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([2**53 + 1]), pa.array([0.5])),
        (pa.array([2**62], pa.timestamp("us")), pa.array([1], pa.timestamp("ns"))),
    ],
)
def test_a_value_that_the_wider_type_does_not_hold_is_refused(
    first: pa.Array, second: pa.Array, tmp_path: Path
) -> None:
    write(tmp_path, pa.table({"it": first}), pa.table({"it": second}))
    with pytest.raises(OperatorError, match="0.parquet, row group 0: column 'it' is .* here and .* in other files"):
        read(tmp_path)


def test_a_column_that_only_folders_of_some_files_say_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "part=1", pa.table({"n": [1]}))
    write(tmp_path / "part=2", pa.table({"n": [2], "part": [7]}))
    with pytest.raises(
        InputError, match=r"part=2/0.parquet has a column 'part' in it, and of .*part=1/0.parquet its f"
    ):
        fn.Environment().read_parquet(tmp_path)


def test_a_column_that_no_file_has_is_refused(tmp_path: Path) -> None:
    write(tmp_path, pa.table({"n": [1]}), pa.table({"m": ["x"]}))
    with pytest.raises(PlanError, match="there is no column 'o' in .*; there are 'n', 'm'"):
        fn.Environment().read_parquet(tmp_path, columns=["o"])
    assert read(tmp_path, columns=["m"]) == [{"m": None}, {"m": "x"}]


def test_more_files_than_are_dealt_out_by_row_groups_are_all_looked_at(tmp_path: Path) -> None:
    tables = [pa.table({"n": [number]}) for number in range(70)]
    write(tmp_path, *tables, pa.table({"n": [0.5], "late": ["x"]}))
    found = read(tmp_path)
    assert sorted(row["n"] for row in found) == sorted([0.5, *range(70)])
    assert {row["late"] for row in found} == {None, "x"}
    (tmp_path / "69.parquet").write_bytes(b"no Parquet")
    with pytest.raises(InputError, match="69.parquet: "):
        read(tmp_path)


@pytest.mark.parametrize(
    "new", [pa.table({"n": [10_000]}), pa.table({"n": [0.5]}), pa.table({"n": [10_000], "late": ["x"]})]
)
def test_a_file_that_comes_before_a_restore_leaves_the_rows_of_the_others_as_they_were(
    new: pa.Table, tmp_path: Path
) -> None:
    write(tmp_path / "in", *(pa.table({"n": range(start, start + 500)}) for start in range(0, 5_000, 500)))

    def job(pause_s: float) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment(parallelism=2)
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        rows = env.read_parquet(tmp_path / "in", columns=["n"]).map_batches(Pauses(pause_s))
        return env, rows.key_by("n").window(fn.EndOfInput()).agg(count=fn.count()).collect()

    env, before = job(pause_s=1)
    stop_on_the_way(env)
    assert len(before) == 0
    pq.write_table(new, tmp_path / "in" / "99.parquet")
    env, collected = job(pause_s=0)
    env.execute()
    assert sorted(collected.to_arrow()["n"].to_pylist()) == sorted([*range(5_000), *new["n"].to_pylist()])
    assert set(collected.to_arrow()["count"].to_pylist()) == {1}
