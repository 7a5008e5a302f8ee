"""Types of columns: their names, and values at the ends of what types hold."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet.errors import OperatorError, PlanError

several = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

units = st.sampled_from(["s", "ms", "us", "ns"])
plain = st.sampled_from(
    [
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(), pa.binary(16), pa.date32()),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    ]
)
zones = st.none() | st.sampled_from(["UTC", "+01:00", "Europe/Berlin"])
decimals = st.integers(1, 38).flatmap(lambda digits: st.builds(pa.decimal128, st.just(digits), st.integers(0, digits)))
leaves = plain | st.builds(pa.timestamp, units, zones) | st.builds(pa.duration, units) | decimals
names = st.text(st.sampled_from('ab ,:[]()<>"\\ö\n'), min_size=1, max_size=5)
types = st.recursive(
    leaves,
    lambda inner: st.builds(pa.list_, inner) | st.builds(pa.struct, st.dictionaries(names, inner, min_size=1)),
    max_leaves=6,
)


@several
@given(types)
def test_a_type_that_is_printed_is_read_where_a_schema_is_given(data_type: pa.DataType) -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.schema([("x", data_type)]).empty_table())
    printed = rows.schema
    again = rows.map_batches(lambda batch: batch, schema=printed)
    assert pa.schema(again).field("x").type == data_type
    cast = rows.select(x=fn.col("x").cast(printed["x"]))
    assert pa.schema(cast).field("x").type == data_type
    assert pa.schema(rows.to_objects().to_rows(printed)).field("x").type == data_type


@several
@given(leaves | st.builds(pa.list_, leaves))
def test_a_type_that_pyarrow_prints_is_read(data_type: pa.DataType) -> None:
    # float is float64 in flownet and float32 in pyarrow's text.
    if str(data_type).replace("list<item: ", "").startswith("float"):
        return
    rows = fn.Environment().from_arrow(pa.schema([("x", data_type)]).empty_table())
    again = rows.map_batches(lambda batch: batch, schema={"x": str(data_type)})
    assert pa.schema(again).field("x").type == data_type


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([2**62], pa.duration("s")), r"column 'd' of type duration\[s\].*days"),
        (pa.array([-(2**62)], pa.duration("ms")), r"column 'd' of type duration\[ms\]"),
        (pa.array([2**62], pa.timestamp("s")), r"column 'd' of type timestamp\[s\]"),
        (pa.array([10**15], pa.timestamp("ms")), r"column 'd' of type timestamp\[ms\]"),
        (pa.array([10**15], pa.timestamp("ms", "UTC")), r"column 'd' of type timestamp\[ms, UTC\]"),
        (pa.array([10**8], pa.date32()), "column 'd' of type date"),
        (pa.array([[2**62]], pa.list_(pa.duration("s"))), r"column 'd' of type list\[duration\[s\]\]"),
    ],
    ids=str,
)
def test_a_value_that_no_object_holds_names_its_column(column: pa.Array, message: str) -> None:
    env = fn.Environment()
    env.from_arrow(pa.table({"fine": [1], "d": column})).to_objects().collect()
    with pytest.raises(OperatorError, match=f"OverflowError.*{message}"):
        env.execute(workers=0)


@several
@given(st.data(), units)
def test_durations_and_times_become_the_objects_that_they_are(data: st.DataObject, unit: str) -> None:
    a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    most_seconds = min(2**63 // a_second - 1, 86_399_999_000_000)
    seconds = data.draw(st.lists(st.none() | st.integers(-most_seconds, most_seconds)))
    rests = data.draw(st.lists(st.integers(0, a_second - 1), min_size=len(seconds), max_size=len(seconds)))
    ticks = [None if whole is None else whole * a_second + rest for whole, rest in zip(seconds, rests, strict=True)]
    spans = [None if tick is None else timedelta(microseconds=tick * 10**6 // a_second) for tick in ticks]
    epoch, years = datetime(1970, 1, 1), timedelta(days=365 * 1900)
    near = [tick if span is None or abs(span) < years else 0 for tick, span in zip(ticks, spans, strict=True)]
    times = [None if tick is None else epoch + timedelta(microseconds=tick * 10**6 // a_second) for tick in near]
    env = fn.Environment()
    columns = {"d": pa.array(ticks, pa.duration(unit)), "t": pa.array(near, pa.timestamp(unit))}
    columns["z"] = pa.array(near, pa.timestamp(unit, "UTC"))
    records = env.from_arrow(pa.table(columns)).to_objects(as_dicts=False).collect()
    env.execute(workers=0)
    zoned = [None if at is None else at.replace(tzinfo=UTC) for at in times]
    assert list(records) == list(zip(spans, times, zoned, strict=True))


def table(nullable: bool, item_nullable: bool = True) -> pa.Table:
    schema = pa.schema(
        [
            pa.field("n", pa.int64(), nullable),
            pa.field("items", pa.list_(pa.field("item", pa.int64(), item_nullable))),
            pa.field("pair", pa.struct([pa.field("a", pa.string(), item_nullable)])),
        ]
    )
    rows = [{"n": 1, "items": [1], "pair": {"a": "x"}}, {"n": 2, "items": [], "pair": {"a": "y"}}]
    if nullable:
        rows.append({"n": None, "items": None, "pair": None})
    return pa.Table.from_pylist(rows, schema)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_union_takes_the_wider_of_what_may_be_null(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    sides = [table(nullable, items) for nullable in (False, True) for items in (False, True)]
    first, *others = [env.from_arrow(side) for side in sides]
    merged = first.union(*others)
    assert pa.schema(merged).field("n").nullable
    collected = merged.rebalance().collect()
    env.execute(workers)
    found = sorted(collected.to_arrow().to_pylist(), key=repr)
    assert found == sorted((row for side in sides for row in side.to_pylist()), key=repr)


def test_a_union_of_columns_without_nulls_has_none_and_other_columns_are_refused() -> None:
    env = fn.Environment()
    one, other = env.from_arrow(table(False)), env.from_arrow(table(False))
    assert not pa.schema(one.union(other)).field("n").nullable
    for different in (one.cast({"n": "int32"}), one.rename({"n": "m"}), one.select("pair", "n", "items")):
        with pytest.raises(PlanError, match="of the same columns, and these differ"):
            one.union(different)


@pytest.mark.parametrize("scale", [0, 2, 4, 20, 38])
def test_sums_of_decimals_are_compared_with_decimals_of_any_scale(scale: int) -> None:
    amounts = [Decimal("0.10"), Decimal("12.00"), Decimal("-0.25"), None]
    limits = [Decimal("0.1"), Decimal(0), Decimal("-0.3"), Decimal("0.1")]
    places = Decimal(1).scaleb(-scale)
    limits = [limit.quantize(places, context=Context(prec=60)) for limit in limits]
    given = pa.table(
        {
            "g": [0, 1, 2, 3],
            "amount": pa.array(amounts, pa.decimal128(12, 2)),
            "limit": pa.array(limits, pa.decimal128(38, scale)),
        }
    )
    env = fn.Environment()
    sums = env.from_arrow(given).key_by("g").window(fn.EndOfInput()).agg(s=fn.sum("amount"), limit=fn.max("limit"))
    compared = {"lt": fn.col("s") < fn.col("limit"), "eq": fn.col("s") == fn.col("limit")}
    compared["written"] = fn.col("s") > Decimal("0.0001")
    collected = sums.select("g", **compared).collect()
    env.execute(workers=0)
    found = sorted((row["g"], row["lt"], row["eq"], row["written"]) for row in collected.to_arrow().to_pylist())
    exact = [(amount or Decimal(0), limit) for amount, limit in zip(amounts, limits, strict=True)]
    assert found == [
        (g, total < limit, total == limit, total > Decimal("0.0001")) for g, (total, limit) in enumerate(exact)
    ]
    if scale <= 4:
        query = 'select g, sum(amount) < max("limit"), sum(amount) = max("limit") from given where g < 3 group by g'
        with duckdb.connect() as connection:
            connection.register("given", given)
            assert [row[:3] for row in found[:3]] == sorted(connection.execute(query).fetchall())


def test_branches_of_two_scales_have_all_digits_or_end_the_job() -> None:
    env = fn.Environment()
    columns = {
        "a": pa.array([Decimal("1.5")], pa.decimal128(38, 2)),
        "b": pa.array([Decimal("0.00001")], pa.decimal128(10, 5)),
    }
    rows = env.from_arrow(pa.table(columns))
    made = rows.select(x=fn.when(fn.col("b") > 1).then(fn.col("a")).otherwise(fn.col("b")))
    assert made.schema == {"x": "decimal(38, 5)"}
    collected = made.collect()
    env.execute(workers=0)
    assert collected.to_arrow()["x"].to_pylist() == [Decimal("0.00001")]
    env = fn.Environment()
    columns["a"] = pa.array([Decimal(10**35)], pa.decimal128(38, 2))
    env.from_arrow(pa.table(columns)).select(x=fn.coalesce(fn.col("a"), fn.col("b"))).collect()
    with pytest.raises(OperatorError, match=r"coalesce.* in row 0 of a batch"):
        env.execute(workers=0)


@pytest.mark.parametrize("one", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("other", ["s", "ms", "us", "ns"])
def test_times_of_two_units_are_compared_however_far_they_are(one: str, other: str) -> None:
    a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    edges = [0, 1, -1, 2**63 - 1, -(2**63) + 1, 253402214400 * 10**3]
    pairs: list[tuple[Any, Any]] = [(left, right) for left in edges for right in edges]
    pairs += [(None, 1), (1, None)]
    for kind in (pa.timestamp, pa.duration):
        left, right = (
            pa.array(side, kind(unit)) for side, unit in zip(zip(*pairs, strict=True), (one, other), strict=True)
        )
        env = fn.Environment()
        rows = env.from_arrow(pa.table({"a": left, "b": right}))
        a, b = fn.col("a"), fn.col("b")
        collected = rows.select(lt=a < b, eq=a == b, ge=a >= b, between=a.is_between(b, b)).collect()
        env.execute(workers=0)
        found = collected.to_arrow().to_pydict()
        exact = [
            None if None in pair else (pair[0] * 10**9 // a_second[one], pair[1] * 10**9 // a_second[other])
            for pair in pairs
        ]
        assert found["lt"] == [None if pair is None else pair[0] < pair[1] for pair in exact]
        assert found["eq"] == [None if pair is None else pair[0] == pair[1] for pair in exact]
        assert found["ge"] == [None if pair is None else pair[0] >= pair[1] for pair in exact]
        assert found["between"] == found["eq"]


def test_a_time_that_is_written_is_compared_with_columns_of_coarser_and_finer_units() -> None:
    far = [253402214400 * 10**3, 0, -62135596800 * 10**3]
    env = fn.Environment()
    columns = {"ms": pa.array(far, pa.timestamp("ms")), "ns": pa.array([0, 1, 2], pa.timestamp("ns"))}
    fine, late = datetime(1970, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59)
    collected = (
        env.from_arrow(pa.table(columns))
        .select(fine=fn.col("ms") < fine, late=fn.col("ns") < late, day=fn.col("ms").dt.date() < date(1970, 1, 2))
        .collect()
    )
    env.execute(workers=0)
    assert collected.to_arrow().to_pydict() == {
        "fine": [False, True, True],
        "late": [True, True, True],
        "day": [False, True, True],
    }
