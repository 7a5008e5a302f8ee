"""Rows by keys of every type: the groups, joins and bests of a loop over objects, which are equal where keys are."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet import codec, state
from flownet.errors import OperatorError, PlanError

from .halves import ROWS, Half, stop_on_the_way

several = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))

WHEN = datetime(2026, 11, 26, 10, 30)
KEYS: dict[pa.DataType, list[Any]] = {
    pa.date32(): [date(2026, 11, 26), date(1, 1, 1), date(9999, 12, 31), None],
    pa.time32("s"): [time(0, 0), time(23, 59, 59), None],
    pa.time64("us"): [time(0, 0), time(10, 30, 0, 1), None],
    pa.timestamp("s"): [WHEN, datetime(1969, 12, 31, 23, 59, 59), None],
    pa.timestamp("us"): [WHEN, WHEN + timedelta(microseconds=1), datetime(1, 1, 1), None],
    pa.timestamp("ns"): [WHEN, WHEN - timedelta(microseconds=1), None],
    pa.timestamp("ms", "UTC"): [WHEN.replace(tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC), None],
    pa.duration("ms"): [timedelta(0), timedelta(milliseconds=-1), timedelta(days=365), None],
    pa.decimal128(12, 2): [Decimal("0.10"), Decimal("12.00"), Decimal("-0.25"), Decimal("1234567890.12"), None],
    pa.decimal128(38, 0): [Decimal(10**37), Decimal(-(10**37)), None],
    pa.binary(2): [b"ab", b"cd", None],
    pa.bool_(): [True, False, None],
    pa.float32(): [0.5, -3.0, None],
    pa.uint64(): [0, 2**64 - 1, None],
}


def grouped(keys: list[Any]) -> dict[Any, int]:
    sums: dict[Any, int] = defaultdict(int)
    for row, key in enumerate(keys):
        sums[key] += row
    return dict(sums)


@pytest.mark.parametrize("key_type", KEYS, ids=str)
def test_a_key_groups_as_its_objects_do(key_type: pa.DataType, workers: int) -> None:
    column = KEYS[key_type] * 50
    table = pa.table({"key": pa.array(column, key_type), "row": range(len(column))})
    env = fn.Environment(parallelism=2)
    by_key = env.from_arrow(table).rebalance().key_by("key").running_agg(total=fn.sum("row")).collect()
    both = env.from_arrow(table.append_column("bit", pa.array([row % 2 for row in range(len(column))])))
    by_both = both.rebalance().key_by("bit", "key").window(fn.EndOfInput()).agg(total=fn.sum("row")).collect()
    env.execute(workers)
    last = by_key.to_arrow()
    assert last.schema.field("key").type == key_type
    found: dict[Any, int] = {}
    for row in last.to_pylist():
        found[row["key"]] = max(found.get(row["key"], 0), row["total"])
    assert found == grouped(column)
    pairs = {(row["bit"], row["key"]): row["total"] for row in by_both.to_arrow().to_pylist()}
    assert pairs == grouped([(row % 2, key) for row, key in enumerate(column)])


class Where(fn.MapFunction[dict[str, Any], tuple[Any, int]]):
    """Tells with each key in which subtask it is."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.subtask = ctx.subtask

    def map(self, value: dict[str, Any]) -> tuple[Any, int]:
        return value["key"], self.subtask


@pytest.mark.parametrize("key_type", KEYS, ids=str)
def test_a_key_lies_where_an_equal_object_does(key_type: pa.DataType) -> None:
    env = fn.Environment(parallelism=5)
    rows = env.from_arrow(pa.table({"key": pa.array(KEYS[key_type], key_type)}))
    found = rows.key_by("key").deduplicate().to_objects().map(Where()).collect()
    env.execute()
    assert dict(found) == {key: codec.subtask_of(key, 5) for key in KEYS[key_type]}


@pytest.mark.parametrize(
    ("column", "objects"),
    [
        (pa.array([1, 1_001], pa.timestamp("ns")), [pd.Timestamp(1), pd.Timestamp(1_001)]),
        (pa.array([1, -1], pa.timestamp("ns", "UTC")), [pd.Timestamp(1, tz="UTC"), pd.Timestamp(-1, tz="UTC")]),
        (pa.array([10**12], pa.timestamp("s")), [np.datetime64(10**12, "s")]),
        (
            pa.array([1, -(10**18) - 1], pa.duration("ns")),
            [np.timedelta64(1, "ns"), np.timedelta64(-(10**18) - 1, "ns")],
        ),
        (pa.array([-(2**62)], pa.duration("ms")), [np.timedelta64(-(2**62), "ms")]),
    ],
    ids=lambda side: str(side.type) if isinstance(side, pa.Array) else "",
)
def test_so_does_one_that_is_of_pandas_or_numpy_alone(column: pa.Array, objects: list[Any]) -> None:
    env = fn.Environment(parallelism=16)
    rows = env.from_arrow(pa.table({"key": column, "at": range(len(column))}))
    found = rows.key_by("key").deduplicate().select(key=fn.col("at")).to_objects().map(Where()).collect()
    env.execute()
    assert dict(found) == {at: codec.subtask_of(one, 16) for at, one in enumerate(objects)}


moments = st.datetimes().map(lambda at: at.replace(fold=0))
columns = (
    st.tuples(st.just(pa.date32()), st.lists(st.none() | st.dates()))
    | st.tuples(st.sampled_from([pa.timestamp("us"), pa.timestamp("us", "UTC")]), st.lists(st.none() | moments))
    | st.tuples(st.just(pa.time64("us")), st.lists(st.none() | st.times().map(lambda at: at.replace(fold=0))))
    | st.tuples(
        st.just(pa.duration("us")),
        st.lists(st.none() | st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000))),
    )
    | st.tuples(st.just(pa.decimal128(20, 4)), st.lists(st.none() | st.decimals(-(10**15), 10**15, places=4)))
)


@several
@given(columns, st.integers(1, 3))
def test_any_of_them_do(column: tuple[pa.DataType, list[Any]], parallelism: int) -> None:
    key_type, values = column
    if getattr(key_type, "tz", None):
        values = [value and value.replace(tzinfo=UTC) for value in values]
    env = fn.Environment(parallelism=parallelism)
    table = pa.table({"key": pa.array(values, key_type), "row": pa.array(range(len(values)), pa.int64())})
    results = env.from_arrow(table).key_by("key").window(fn.EndOfInput()).agg(total=fn.sum("row")).collect()
    env.execute()
    assert {row["key"]: row["total"] for row in results.to_arrow().to_pylist()} == grouped(values)


def test_nanoseconds_and_years_that_python_does_not_have_are_keys_too() -> None:
    far = pa.array([10**12, 10**12, -(10**12), 0], pa.timestamp("s"))
    fine = pa.array([1, 1_001, 1, 1_000], pa.timestamp("ns", "UTC"))
    env = fn.Environment(parallelism=2)
    rows = env.from_arrow(pa.table({"far": far, "fine": fine}))
    results = rows.key_by("far", "fine").running_agg(n=fn.count()).collect()
    env.execute()
    found = results.to_arrow()
    numbers = [found[name].cast("int64").to_pylist() for name in ("far", "fine", "n")]
    assert sorted(zip(*numbers, strict=True)) == [
        (-(10**12), 1, 1),
        (0, 1_000, 1),
        (10**12, 1, 1),
        (10**12, 1_001, 1),
    ]


def test_what_is_computed_is_a_key() -> None:
    at = [datetime(2026, 11, 26, hour) for hour in range(24)] + [datetime(2026, 11, 27, 5, 59)]
    env = fn.Environment(parallelism=2)
    rows = env.from_arrow(pa.table({"at": at, "n": range(len(at))}))
    by_day = rows.key_by(day=fn.col("at").dt.date()).window(fn.EndOfInput()).agg(n=fn.count()).collect()
    by_hours = rows.key_by(of=fn.col("at").dt.truncate("6h")).window(fn.EndOfInput()).agg(n=fn.count()).collect()
    env.execute()
    assert {row["day"]: row["n"] for row in by_day.to_arrow().to_pylist()} == {
        date(2026, 11, 26): 24,
        date(2026, 11, 27): 1,
    }
    found = {row["of"]: row["n"] for row in by_hours.to_arrow().to_pylist()}
    assert found == {datetime(2026, 11, 26, hour): 6 for hour in (0, 6, 12, 18)} | {datetime(2026, 11, 27): 1}


def joined(left: pa.Array, right: pa.Array) -> list[tuple[int, int]]:
    env = fn.Environment(parallelism=2)
    sides = [
        env.from_arrow(pa.table({"key": keys, name: range(len(keys))})).key_by("key")
        for keys, name in ((left, "left"), (right, "right"))
    ]
    pairs = sides[0].join(sides[1], fn.EndOfInput()).collect()
    env.execute()
    return sorted((row["left"], row["right"]) for row in pairs.to_arrow().to_pylist())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([WHEN, None], pa.timestamp("s")), pa.array([WHEN], pa.timestamp("ns"))),
        (pa.array([WHEN], pa.timestamp("ms", "UTC")), pa.array([WHEN], pa.timestamp("us", "Europe/Berlin"))),
        (pa.array([time(1, 2)], pa.time32("s")), pa.array([time(1, 2)], pa.time64("ns"))),
        (pa.array([timedelta(1)], pa.duration("s")), pa.array([timedelta(1)], pa.duration("us"))),
        (pa.array([Decimal("12.00")], pa.decimal128(9, 2)), pa.array([12], pa.int8())),
        (pa.array([Decimal("0.25")], pa.decimal128(9, 2)), pa.array([0.25])),
    ],
    ids=lambda side: str(side.type),
)
def test_equal_times_and_numbers_meet_whatever_their_unit(left: pa.Array, right: pa.Array) -> None:
    assert joined(left, right) == [(0, 0)]
    assert joined(right, left) == [(0, 0)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([WHEN], pa.timestamp("s")), pa.array([WHEN], pa.timestamp("s", "UTC"))),
        (pa.array([WHEN.date()]), pa.array([WHEN])),
        (pa.array([time(1)]), pa.array([timedelta(hours=1)])),
        (pa.array([0], pa.int64()), pa.array([date(1970, 1, 1)])),
    ],
    ids=lambda side: str(side.type),
)
def test_times_of_other_kinds_are_never_equal(left: pa.Array, right: pa.Array) -> None:
    with pytest.raises(PlanError, match="which are never equal"):
        joined(left, right)


def test_a_sum_that_is_too_large_names_its_day() -> None:
    env = fn.Environment()
    table = pa.table({"day": [date(2026, 11, 26)] * 2, "cost": pa.array([Decimal("1.5")] * 2), "n": [2**62] * 2})
    env.from_arrow(table).key_by("day", "cost").window(fn.EndOfInput()).agg(n=fn.sum("n")).collect()
    with pytest.raises(OperatorError, match=r"\(2026-11-26, 1\.5\)"):
        env.execute()


@pytest.mark.parametrize("backend", ["memory", "disk"])
def test_days_go_on_from_a_checkpoint_and_are_days_to_who_reads_it(
    backend: Literal["memory", "disk"], tmp_path: Path
) -> None:
    def job(parallelism: int, pause_s: float) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment(parallelism=parallelism, state_backend=backend, max_parallelism=128)
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        rows = env.from_arrow(Half(pause_s), schema={"key": "int64", "ms": "int64", "n": "int64"}).set_parallelism(2)
        at = (fn.col("key") * 86_400_000).cast("timestamp[ms]")
        keyed = rows.uid("numbers").key_by(day=at.dt.date(), at=at)
        keyed.deduplicate().uid("first").collect()
        fine = rows.key_by(fine=(fn.col("key") * 1_001).cast("timestamp[ns]"))
        fine.deduplicate().uid("fine").collect()
        fine.join(fine).uid("pairs").filter(fn.col("n") < 0).collect()
        return env, keyed.window(fn.EndOfInput()).agg(total=fn.sum("n")).uid("sums").collect()

    env, _ = job(2, pause_s=0.1)
    stop_on_the_way(env)
    days = {(date(1970, 1, 1) + timedelta(days=key), datetime(1970, 1, 1) + timedelta(days=key)) for key in range(100)}
    kept = state.read(tmp_path / "checkpoints")
    assert set(kept.values("first")) == days
    # One of a thousand nanoseconds is a time of Python, too.
    shown = {type(key) for key in kept.values("fine")}
    assert shown == {datetime, bytes}
    assert {type(entry.value) for entry in kept.entries("pairs")} == {bytes}
    env, collected = job(3, pause_s=0)
    assert env.execute().resumed_from is not None
    totals = {(row["day"], row["at"]): row["total"] for row in collected.to_arrow().to_pylist()}
    assert totals == {day: sum(range(key, ROWS, 100)) for key, day in enumerate(sorted(days))}
