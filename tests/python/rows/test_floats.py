"""One rule for floats: -0.0 equals 0.0, all NaN are equal and above every number, wherever values are compared."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn

several = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def from_bits(bits: int) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    return float(value)


NAN_WITH_SIGN, NAN_WITH_PAYLOAD = from_bits(0xFFF8_0000_0000_0000), from_bits(0x7FF8_0000_0000_0001)
EDGES = [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan, NAN_WITH_SIGN, NAN_WITH_PAYLOAD]
floats = st.none() | st.sampled_from(EDGES) | st.floats(allow_nan=False, width=32)
TYPES = [pa.float64(), pa.float32(), pa.float16()]


def rank(value: float) -> tuple[bool, float]:
    """Order floats by the rule."""
    return (True, 0.0) if math.isnan(value) else (False, value + 0.0)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda one, other: one == other,
    "ne": lambda one, other: one != other,
    "lt": lambda one, other: one < other,
    "le": lambda one, other: one <= other,
    "gt": lambda one, other: one > other,
    "ge": lambda one, other: one >= other,
}


def expected(name: str, one: float | None, other: float | None) -> bool | None:
    return None if one is None or other is None else bool(COMPARISONS[name](rank(one), rank(other)))


def column(values: list[float | None], kind: pa.DataType) -> pa.Array:
    if kind == pa.float16():
        import numpy as np

        with np.errstate(over="ignore", under="ignore"):
            return pa.array([None if value is None else np.float16(value) for value in values], kind)
    return pa.array(values, kind)


@several
@given(st.lists(st.tuples(floats, floats), max_size=90), floats, st.sampled_from(TYPES))
def test_comparisons_follow_the_rule(
    pairs: list[tuple[float | None, float | None]], written: float | None, kind: pa.DataType
) -> None:
    table = pa.table({"x": column([x for x, _ in pairs], kind), "y": column([y for _, y in pairs], kind)})
    x, y = fn.col("x"), fn.col("y")
    one = fn.lit(written) if written is not None else fn.lit(None).cast("float64")
    env = fn.Environment()
    made = {name: of(x, y) for name, of in COMPARISONS.items()}
    made |= {f"{name} written": of(x, one) for name, of in COMPARISONS.items()}
    made["between"] = x.is_between(-0.0, y)
    made["in"] = x.is_in([0.0, math.nan, 1.5])
    made["when"] = fn.when(x == y).then(1).otherwise(0)
    collected = env.from_arrow(table).select(**made).collect()
    env.execute(workers=0)
    found = collected.to_arrow().to_pydict()
    values = list(zip(table["x"].cast("float64").to_pylist(), table["y"].cast("float64").to_pylist(), strict=True))
    for name in COMPARISONS:
        assert found[name] == [expected(name, *pair) for pair in values], name
    if kind == pa.float64():
        for name in COMPARISONS:
            assert found[f"{name} written"] == [expected(name, one, written) for one, _ in values], name
    members = [None if one is None else rank(one) in map(rank, [0.0, math.nan, 1.5]) for one, _ in values]
    assert found["in"] == members
    assert found["when"] == [int(expected("eq", *pair) is True) for pair in values]
    between = [(expected("ge", one, -0.0), expected("le", one, other)) for one, other in values]
    kept = [False if False in pair else None if None in pair else True for pair in between]
    assert found["between"] == kept


@several
@given(st.lists(floats, max_size=60), st.integers(1, 3))
def test_keys_follow_the_rule(values: list[float | None], parallelism: int) -> None:
    table = pa.table({"k": pa.array(values, pa.float64()), "v": pa.array(range(len(values)), pa.int64())})
    env = fn.Environment(parallelism=parallelism)
    rows = env.from_arrow(table)
    groups = rows.key_by("k").window(fn.EndOfInput()).agg(n=fn.count()).collect()
    firsts = rows.key_by("k").deduplicate().collect()
    pairs = rows.key_by("k").join(rows.rename({"v": "w"}).key_by("k"), fn.EndOfInput()).collect()
    env.execute(workers=0)
    there = [value for value in values if value is not None]
    counts = Counter[Any](map(rank, there))
    found = Counter[Any]({key if key is None else rank(key): n for key, n in key_counts(groups.to_arrow(), "n")})
    assert found == counts + Counter[Any]({None: values.count(None)})
    assert firsts.to_arrow().num_rows == len(set(counts)) + (None in values)
    assert pairs.to_arrow().num_rows == sum(n * n for n in counts.values())


def key_counts(table: pa.Table, name: str) -> list[tuple[float | None, int]]:
    return [(row["k"], row[name]) for row in table.to_pylist()]


@several
@given(st.lists(floats, min_size=1, max_size=40), st.booleans(), st.sampled_from(TYPES[:2]))
def test_the_best_and_aggregates_follow_the_rule(
    values: list[float | None], descending: bool, kind: pa.DataType
) -> None:
    table = pa.table({"x": column(values, kind), "g": pa.array([0] * len(values))})
    env = fn.Environment(parallelism=2)
    keyed = env.from_arrow(table).rebalance().key_by("g").window(fn.EndOfInput())
    best = keyed.top_n(3, "x", descending=descending).collect()
    of_all = keyed.agg(
        least=fn.min("x"),
        most=fn.max("x"),
        n=fn.approx_count_distinct("x"),
        q=fn.approx_quantile("x", 1.0),
        all=fn.collect("x"),
    ).collect()
    env.execute(workers=0)
    there = [value for value in table["x"].to_pylist() if value is not None]
    ranks = sorted(map(rank, there), reverse=descending)[:3]
    found = [rank(value) for value in best.to_arrow()["x"].to_pylist() if value is not None]
    assert sorted(found) == sorted(ranks)
    (row,) = of_all.to_arrow().to_pylist()
    numbers = [value for value in there if not math.isnan(value)] or there
    assert [row["least"], row["most"]] == [None, None] or (
        rank(row["least"]) == min(map(rank, numbers)) and rank(row["most"]) == max(map(rank, numbers))
    )
    for extreme in ("least", "most"):
        assert row[extreme] != 0 or math.copysign(1, row[extreme]) == 1, "one zero for both, whatever came first"
    assert row["n"] == len(set(map(rank, there)))
    assert not there or math.isnan(row["q"]) == any(map(math.isnan, there))
    assert sorted(map(rank, row["all"])) == sorted(map(rank, there))


@pytest.mark.parametrize("kind", TYPES[:2], ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_a_filter_that_is_pushed_down_keeps_what_a_filter_keeps(tmp_path: Path, name: str, kind: pa.DataType) -> None:
    values = [None, *EDGES]
    # Row groups of one value, so that statistics could leave some out.
    pq.write_table(pa.table({"x": column(values, kind)}), tmp_path / "x.parquet", row_group_size=1)
    for written in (0, 1, -2):
        kept = COMPARISONS[name](fn.col("x"), written)
        env = fn.Environment()
        pushed = env.read_parquet(tmp_path / "x.parquet", filter=kept).collect()
        plain = env.read_parquet(tmp_path / "x.parquet").filter(kept).collect()
        env.execute(workers=0)
        found, expected_rows = ([repr(x) for x in rows.to_arrow()["x"].to_pylist()] for rows in (pushed, plain))
        assert found == expected_rows
        wanted = [value for value in values if value is not None and expected(name, value, float(written))]
        assert len(found) == len(wanted)


def test_integers_are_found_among_floats_that_are_equal() -> None:
    env = fn.Environment()
    made = env.from_arrow(pa.table({"i": [0, 1]})).select(
        zero=fn.col("i").is_in([-0.0]), nan=fn.col("i").is_in([math.nan, 0.5]), equal=fn.col("i") == -0.0
    )
    collected = made.collect()
    env.execute(workers=0)
    assert collected.to_arrow().to_pydict() == {
        "zero": [True, False],
        "nan": [False, False],
        "equal": [True, False],
    }


def test_keys_of_objects_that_are_equal_numbers_or_nan_lie_together() -> None:
    env = fn.Environment(parallelism=3)
    records: list[tuple[Any, int]] = [(key, 1) for key in (math.nan, NAN_WITH_SIGN, NAN_WITH_PAYLOAD, -0.0, 0.0, 0)]
    records += [((1, key), 1) for key in (math.nan, NAN_WITH_SIGN, -0.0, 0.0)]
    sums = env.from_collection(records).rebalance().key_by(0).window(fn.EndOfInput()).sum(1).collect()
    env.execute(workers=0)
    assert sorted(total for _, total in sums) == [2, 2, 3, 3]


def test_polars_has_the_same_rule() -> None:
    pairs = [(one, other) for one in EDGES for other in EDGES]
    frame = pl.DataFrame({"x": [one for one, _ in pairs], "y": [other for _, other in pairs]})
    made = {name: of(pl.col("x"), pl.col("y")) for name, of in COMPARISONS.items()}
    found = frame.select(**made)
    for name in COMPARISONS:
        assert found[name].to_list() == [expected(name, *pair) for pair in pairs]
