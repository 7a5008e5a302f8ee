"""Aggregates of rows: beside those of objects and of polars, whatever parallelism, workers and batches."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet.errors import OperatorError, PlanError

Row = tuple[Any, int, int]


def some_rows(seed: int, count: int = 3000) -> list[Row]:
    """Draw rows of a key, a time that goes on and at times back, and a value."""
    draw = random.Random(seed)
    now, rows = 1_700_000_000_000, []
    for _ in range(count):
        now += draw.choice([0, 0, 1, 5, 40, 900 if draw.random() < 0.05 else 3])
        rows.append(
            (draw.choice([0, 1, 2, 7, -5, 63, 64, 10**12, None]), now - draw.randint(0, 300), draw.randint(-9, 99))
        )
    return rows


def table_of(rows: list[Row]) -> pa.Table:
    schema = pa.schema([("key", pa.int64()), ("ms", pa.int64()), ("value", pa.int64())])
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)


WINDOWS: dict[str, fn.Tumbling | fn.Sliding | fn.Session] = {
    "tumbling": fn.Tumbling("1s"),
    "tumbling with an offset": fn.Tumbling("700ms", offset="33ms"),
    "sliding": fn.Sliding("2s", "500ms"),
    "sliding with gaps": fn.Sliding("300ms", "1s"),
    "sessions": fn.Session("150ms"),
}


def of_objects(rows: list[Row], window: Any) -> list[tuple[Any, ...]]:
    env = fn.Environment()
    strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("300ms").with_timestamp_assigner(1)
    stream = env.from_collection(rows).assign_timestamps_and_watermarks(strategy)

    def summed(key: Any, window: fn.Window, records: list[Row]) -> list[tuple[Any, ...]]:
        values = [value for _, _, value in records]
        return [(key, window.start_ms, window.end_ms, len(values), sum(values), min(values), max(values))]

    collected = stream.key_by(lambda row: row[0]).window(window).process(summed).collect()
    env.execute(workers=0)
    return sorted(collected, key=repr)


def of_rows(
    rows: list[Row], window: Any, *, parallelism: int = 1, workers: int = 0, batch: int = 500, **environment: Any
) -> list[tuple[Any, ...]]:
    env = fn.Environment(parallelism=parallelism, **environment)
    source = table_of(rows).to_reader(max_chunksize=batch)
    stream = env.from_arrow(source, event_time="ms", delay="300ms").key_by("key").window(window)
    value = fn.col("value")
    collected = stream.agg(n=fn.count(), total=fn.sum(value), low=fn.min("value"), high=fn.max("value")).collect()
    env.execute(workers=workers)
    found = collected.to_arrow()
    for name in ("window_start", "window_end"):
        at = found.schema.get_field_index(name)
        found = found.set_column(at, name, found[name].cast(pa.int64()))
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
@pytest.mark.parametrize(("parallelism", "workers", "batch"), [(1, 0, 500), (3, 0, 7), (2, 2, 4000)])
def test_windows_of_rows_are_those_of_objects(window: Any, parallelism: int, workers: int, batch: int) -> None:
    for seed in (1, 2):
        rows = some_rows(seed)
        expected = of_objects(rows, window)
        assert of_rows(rows, window, parallelism=parallelism, workers=workers, batch=batch) == expected


@pytest.mark.parametrize("backend", ["memory", "disk"])
def test_windows_of_rows_hold_with_little_memory_for_state_and_for_buffers(backend: str) -> None:
    rows = some_rows(3)
    settings: dict[str, Any] = {"state_backend": backend, "network_memory": "1MiB", "segment_size": "4KiB"}
    found = of_rows(rows, fn.Tumbling("1s"), parallelism=4, batch=100, **settings)
    assert found == of_objects(rows, fn.Tumbling("1s"))


def late(lateness: str) -> tuple[list[tuple[Any, ...]], int]:
    rows = [("a", 0, 1), ("a", 5_000, 1), ("a", 100, 10), ("b", 200, 10), ("a", 9_000, 1)]
    env = fn.Environment(buffer_timeout="0ms")
    script = [table_of_text(rows[at : at + 1]) for at in range(len(rows))]

    def batches() -> Any:
        import time

        for table in script:
            yield from table.to_batches()
            # Watermarks are said every 200 ms.
            time.sleep(0.5)

    reader = pa.RecordBatchReader.from_batches(script[0].schema, batches())
    timed = env.from_arrow(reader, event_time="ms", delay="0s")
    windows = timed.key_by("key").window(fn.Tumbling("1s")).allowed_lateness(lateness)
    collected = windows.agg(n=fn.count(), total=fn.sum("value")).collect()
    result = env.execute(workers=0)
    dropped = sum(task.late_records for task in result.tasks)
    found = collected.to_arrow().drop_columns(["window_start", "window_end"])
    return [tuple(row.values()) for row in found.to_pylist()], dropped


def table_of_text(rows: list[Any]) -> pa.Table:
    return pa.table(
        {"key": [row[0] for row in rows], "ms": [row[1] for row in rows], "value": [row[2] for row in rows]}
    )


def test_rows_that_come_too_late_are_dropped_and_counted_or_taken_where_that_is_allowed() -> None:
    found, dropped = late("0s")
    assert (sorted(found), dropped) == ([("a", 1, 1), ("a", 1, 1), ("a", 1, 1)], 2)
    found, dropped = late("20s")
    assert (sorted(found), dropped) == ([("a", 1, 1), ("a", 1, 1), ("a", 1, 1), ("a", 2, 11), ("b", 1, 10)], 0)


VALUES = {
    "i": (pa.int32(), st.none() | st.integers(-(2**31), 2**31 - 1)),
    "u": (pa.uint64(), st.none() | st.integers(0, 2**60)),
    "x": (pa.float64(), st.none() | st.floats(-1e9, 1e9)),
    "s": (pa.string(), st.none() | st.text(max_size=5)),
    "b": (pa.bool_(), st.none() | st.booleans()),
    "t": (pa.timestamp("us", "UTC"), st.none() | st.integers(-(10**15), 10**15)),
    "d": (pa.date32(), st.none() | st.integers(-(10**5), 10**5)),
    "c": (pa.decimal128(12, 3), st.none() | st.decimals(-(10**6), 10**6, places=3)),
}
KEYS = {
    "int": (pa.int16(), st.none() | st.integers(-3, 70)),
    "unsigned": (pa.uint64(), st.sampled_from([None, 0, 2**63, 2**64 - 1])),
    "float": (pa.float64(), st.sampled_from([None, 0.0, 1.0, 0.5, -(2.0**70), 2.0**64, 1e300])),
    "text": (pa.string(), st.none() | st.text(max_size=2)),
    "bool": (pa.bool_(), st.none() | st.booleans()),
}
AGGREGATES: dict[str, tuple[fn.rows.Aggregate, pl.Expr]] = {
    "n": (fn.count(), pl.len()),
    **{f"n_{c}": (fn.count(c), pl.col(c).count()) for c in VALUES},
    **{
        f"sum_{c}": (
            fn.sum(c),
            pl.col(c)
            .cast(pl.Int64 if c == "i" else pl.Int64 if c == "b" else pl.UInt64 if c == "u" else pl.Float64)
            .sum(),
        )
        for c in "iuxb"
    },
    **{f"mean_{c}": (fn.mean(c), pl.col(c).mean()) for c in "ixb"},
    **{f"min_{c}": (fn.min(c), pl.col(c).min()) for c in VALUES},
    **{f"max_{c}": (fn.max(c), pl.col(c).max()) for c in VALUES},
    **{f"first_{c}": (fn.first(c), pl.col(c).drop_nulls().first()) for c in VALUES},
    **{f"last_{c}": (fn.last(c), pl.col(c).drop_nulls().last()) for c in VALUES},
    # There are too few for estimates.
    **{f"distinct_{c}": (fn.approx_count_distinct(c), pl.col(c).drop_nulls().n_unique()) for c in VALUES},
    # No row has a time: lists are in the order of values.
    **{f"all_{c}": (fn.collect(c), pl.col(c).drop_nulls().sort()) for c in VALUES},
    "sum_c": (fn.sum("c"), pl.col("c").sum()),
    "var": (fn.var("x"), pl.col("x").var()),
    "std": (fn.std("i"), pl.col("i").std()),
    "expression": (fn.sum(fn.col("i").cast("int64") * 2 + 1), (pl.col("i").cast(pl.Int64) * 2 + 1).sum()),
}


@pytest.mark.parametrize("keys", [["int"], ["unsigned"], ["float"], ["text"], ["bool"], ["text", "int"], list(KEYS)])
@given(data=st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
def test_aggregates_are_those_of_polars(keys: list[str], data: st.DataObject) -> None:
    columns = {**{key: KEYS[key] for key in keys}, **VALUES}
    drawn = data.draw(st.lists(st.tuples(*(values for _, values in columns.values())), max_size=40))
    arrays = [pa.array([row[at] for row in drawn], kind) for at, (kind, _) in enumerate(columns.values())]
    table = pa.table(arrays, names=list(columns))
    env = fn.Environment()
    windowed = env.from_arrow(table.to_reader(max_chunksize=7)).key_by(*keys).window(fn.EndOfInput())
    collected = windowed.agg(**{name: ours for name, (ours, _) in AGGREGATES.items()}).collect()
    env.execute(workers=0)
    frame = pl.DataFrame(table)
    expected = frame.group_by(keys).agg(**{name: theirs for name, (_, theirs) in AGGREGATES.items()})
    found = collected.to_polars()
    by = [pl.col(key).cast(pl.String) for key in keys]
    pairs = zip(found.sort(by).rows(), expected.sort(by).rows(), strict=True)
    for one, other in pairs:
        for name, ours, theirs in zip(found.columns, one, other, strict=True):
            assert is_same(ours, theirs), (name, one, other)


QUANTILES = (0, 0.25, 0.5, 0.9, 1)


@given(
    values=st.lists(st.none() | st.integers(-1000, 1000) | st.floats(-1e300, 1e300), max_size=60),
    kind=st.sampled_from([pa.int64(), pa.float32(), pa.float64()]),
)
@settings(max_examples=40, deadline=None)
def test_quantiles_are_near_those_of_polars(values: list[float | None], kind: pa.DataType) -> None:
    if pa.types.is_integer(kind):
        values = [None if value is None else int(value % 1e15) for value in values]
    elif kind == pa.float32():
        values = [None if value is None else value % 1e30 for value in values]
    table = pa.table({"key": pa.array([1] * len(values), pa.int64()), "value": pa.array(values, kind)})
    env = fn.Environment()
    windowed = env.from_arrow(table.to_reader(max_chunksize=7)).key_by("key").window(fn.EndOfInput())
    collected = windowed.agg(**{f"q{q}": fn.approx_quantile("value", q) for q in QUANTILES}).collect()
    env.execute(workers=0)
    for row in collected.to_arrow().to_pylist():
        of_polars = pl.Series(table["value"])
        for q in QUANTILES:
            expected = of_polars.quantile(q, "nearest")
            assert (row[f"q{q}"] is None) == (expected is None)
            # What is smaller than that has fewer bits.
            assert expected is None or math.isclose(row[f"q{q}"], expected, rel_tol=1 / 256, abs_tol=1e-300)


def test_sketches_are_the_same_whatever_parallelism_and_batches() -> None:
    draw = random.Random(11)
    values = [draw.lognormvariate(5, 2) for _ in range(20_000)]
    found = set()
    for parallelism, batch in ((1, 20_000), (3, 100), (2, 4_000)):
        draw.shuffle(values)
        env = fn.Environment(parallelism=parallelism)
        table = pa.table({"key": [n % 2 for n in range(len(values))], "value": sorted(values)})
        rows = env.from_arrow(table.to_reader(max_chunksize=batch)).rebalance().select("key", "value")
        results = rows.key_by("key").window(fn.EndOfInput())
        counted = results.agg(p99=fn.approx_quantile("value", 0.99), values=fn.approx_count_distinct("value")).collect()
        env.execute(workers=0)
        found.add(tuple(sorted(tuple(row.values()) for row in counted.to_arrow().to_pylist())))
    (rows_found,) = found
    for key, p99, distinct in rows_found:
        assert math.isclose(p99, sorted(values)[key::2][9_899], rel_tol=1 / 256)
        # Four standard errors.
        assert math.isclose(distinct, 10_000, rel_tol=0.065)


@pytest.mark.parametrize("window", [fn.Tumbling("1s"), fn.Session("150ms")], ids=["tumbling", "session"])
def test_collected_values_come_in_the_order_of_their_times(window: Any) -> None:
    rows = some_rows(12)
    env = fn.Environment(parallelism=3)
    source = table_of(rows).to_reader(max_chunksize=50)
    keyed = env.from_arrow(source, event_time="ms", delay="300ms").key_by("key").window(window)
    collected = keyed.agg(values=fn.collect("value"), times=fn.collect("ms")).collect()
    env.execute(workers=0)
    found = collected.to_arrow().to_pylist()
    assert sum(len(row["values"]) for row in found) == len(rows)
    of_rows: dict[tuple[Any, int], list[int]] = {}
    for key, ms, value in rows:
        of_rows.setdefault((key, ms), []).append(value)
    for row in found:
        assert row["times"] == sorted(row["times"])
        times = sorted(set(row["times"]))
        assert row["values"] == [value for ms in times for value in sorted(of_rows[row["key"], ms])]


def test_a_collected_list_may_be_longer_than_a_buffer() -> None:
    env = fn.Environment(segment_size="4KiB", network_memory="1MiB", parallelism=2)
    table = pa.table({"key": [0] * 30_000, "text": [f"{n:010}" for n in range(30_000)]})
    keyed = env.from_arrow(table.to_reader(max_chunksize=999)).rebalance().select("key", "text").key_by("key")
    collected = keyed.window(fn.EndOfInput()).agg(texts=fn.collect("text")).filter(fn.col("key") == 0).collect()
    env.execute(workers=0)
    assert collected.to_arrow()["texts"].to_pylist() == [table["text"].to_pylist()]


@pytest.mark.parametrize("q", [-0.1, 1.5, float("nan"), "0.5", True])
def test_a_quantile_is_between_0_and_1(q: Any) -> None:
    with pytest.raises(PlanError, match=r"quantile\(q=.*must be a number from 0 to 1"):
        fn.approx_quantile("value", q)


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return bool(one == other)


@pytest.mark.parametrize("workers", [0, 2])
def test_running_aggregates_end_with_what_all_rows_come_to(workers: int) -> None:
    rows = some_rows(5)
    env = fn.Environment(parallelism=2)
    source = table_of(rows).to_reader(max_chunksize=64)
    collected = env.from_arrow(source).key_by("key").running_agg(n=fn.count(), total=fn.sum("value")).collect()
    env.execute(workers=workers)
    last = {row["key"]: (row["n"], row["total"]) for row in collected.to_arrow().to_pylist()}
    expected: dict[Any, tuple[int, int]] = {}
    for key, _, value in rows:
        n, total = expected.get(key, (0, 0))
        expected[key] = (n + 1, total + value)
    assert last == expected


def test_a_sum_that_does_not_fit_names_column_and_key_whatever_the_order() -> None:
    big = 2**63 - 1
    fits = pa.table({"key": ["a"] * 4, "value": [big, big, -big, -big]})
    env = fn.Environment()
    collected = env.from_arrow(fits).key_by("key").window(fn.EndOfInput()).agg(total=fn.sum("value")).collect()
    env.execute(workers=0)
    assert collected.to_arrow()["total"].to_pylist() == [0]
    env = fn.Environment()
    table = pa.table({"key": ["a", "a"], "value": [big, 1]})
    env.from_arrow(table).key_by("key").window(fn.EndOfInput()).agg(total=fn.sum("value")).collect()
    with pytest.raises(
        OperatorError, match=r"total = sum\(col\(\"value\"\)\) of key 'a' is 9223372036854775808"
    ) as raised:
        env.execute(workers=0)
    assert raised.value.operator == "agg"


def test_a_sum_of_decimals_has_all_digits_that_there_are() -> None:
    most, least = Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99")
    for values, expected in (([most, most, least], most), ([most, Decimal("0.01")], None)):
        env = fn.Environment()
        table = pa.table({"key": ["a"] * len(values), "price": pa.array(values, pa.decimal128(38, 2))})
        sums = env.from_arrow(table).key_by("key").window(fn.EndOfInput()).agg(total=fn.sum("price"))
        assert dict(sums.schema) == {"key": "utf8", "total": "decimal(38, 2)"}
        collected = sums.collect()
        if expected is None:
            with pytest.raises(OperatorError, match=r"of key 'a' is 1000000000000000000000000000000000000\.00, which"):
                env.execute(workers=0)
            continue
        env.execute(workers=0)
        assert collected.to_arrow()["total"].to_pylist() == [expected]


def test_sums_of_floats_do_not_depend_on_the_order_of_rows() -> None:
    draw = random.Random(7)
    values = [draw.uniform(-1, 1) * 10 ** draw.randint(-12, 12) for _ in range(5000)]
    totals = set()
    for batch in (1, 10, 5000):
        draw.shuffle(values)
        env = fn.Environment(parallelism=3)
        source = pa.table({"key": [1] * len(values), "value": values}).to_reader(max_chunksize=batch)
        keyed = env.from_arrow(source).rebalance().select("key", "value").key_by("key").window(fn.EndOfInput())
        collected = keyed.agg(total=fn.sum("value")).collect()
        env.execute(workers=0)
        totals.update(collected.to_arrow()["total"].to_pylist())
    assert totals == {math.fsum(values)}


def test_windows_follow_windows() -> None:
    """Results have the event time of their window, so another window can follow."""
    rows = some_rows(9)
    env = fn.Environment(parallelism=2)
    seconds = env.from_arrow(table_of(rows), event_time="ms", delay="300ms").key_by("key").window(fn.Tumbling("1s"))
    per_second = seconds.agg(n=fn.count())
    per_ten = per_second.key_by("key").window(fn.Tumbling("10s")).agg(seconds=fn.count(), rows=fn.sum("n")).collect()
    env.execute(workers=0)
    found = sorted(
        (row["key"], row["seconds"], row["rows"]) for row in per_ten.to_arrow().to_pylist() if row["key"] is not None
    )
    expected: dict[tuple[Any, int], dict[int, int]] = {}
    for key, ms, _ in rows:
        in_ten = expected.setdefault((key, ms // 10_000), {})
        in_ten[ms // 1000] = in_ten.get(ms // 1000, 0) + 1
    wanted = sorted((key, len(of), sum(of.values())) for (key, _), of in expected.items() if key is not None)
    assert found == wanted


def test_windows_of_event_time_need_one() -> None:
    env = fn.Environment()
    env.from_arrow(table_of(some_rows(1, 3))).key_by("key").window(fn.Tumbling("1s", time="event")).agg(
        n=fn.count()
    ).collect()
    with pytest.raises(OperatorError, match="rows have no event time"):
        env.execute(workers=0)
