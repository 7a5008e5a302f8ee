"""Event times below a millisecond: joins, `first`, `last`, `collect` and `top_n` go by the exact time of the column."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet.errors import ConfigError

from .halves import stop_on_the_way

Unit = Literal["us", "ns"]
PER_MS = {"us": 1_000, "ns": 1_000_000}
Rows = list[tuple[int, int]]
"""Key and time, in the unit of the column."""

several = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def times(draw: st.DrawFn, unit: Unit) -> Rows:
    """Times around 1970, many of one millisecond; none twice for a key, as then arrival decides."""
    per_ms = PER_MS[unit]
    within = st.sampled_from([0, 1, per_ms // 2, per_ms - 1]) | st.integers(0, per_ms - 1)
    row = st.tuples(st.integers(0, 2), st.builds(lambda ms, rest: ms * per_ms + rest, st.integers(-3, 3), within))
    return draw(st.lists(row, max_size=25, unique=True))


shapes = st.fixed_dictionaries(
    {
        "parallelism": st.integers(1, 4),
        "state_backend": st.sampled_from(["memory", "disk"]),
        "batch": st.sampled_from([1, 3, 100]),
        "carried": st.booleans(),
    }
)
units: st.SearchStrategy[Unit] = st.sampled_from(["us", "ns"])
TWO_SIDES = units.flatmap(lambda unit: st.tuples(st.just(unit), times(unit), times(unit)))
ONE_SIDE = units.flatmap(lambda unit: st.tuples(st.just(unit), times(unit)))


def table(rows: Rows, unit: Unit, names: tuple[str, str, str] = ("key", "time", "row")) -> pa.Table:
    columns = [[key for key, _ in rows], [at for _, at in rows], list(range(len(rows)))]
    types = [pa.int64(), pa.timestamp(unit, "UTC"), pa.int64()]
    return pa.table(dict(zip(names, map(pa.array, columns, types), strict=True)))


def timed(env: fn.Environment, rows: pa.Table, batch: int, carried: bool) -> fn.Rows:
    """Rows with their event time, which is sent through an exchange without keys if it is carried."""
    stream = env.from_arrow(rows.to_reader(max_chunksize=batch), event_time=rows.column_names[1], delay="10s")
    # The exact time stays with a row whose column is dropped.
    return stream.rebalance().drop(rows.column_names[1]) if carried else stream


def as_ints(table: pa.Table, *columns: str) -> list[tuple[int | None, ...]]:
    return sorted(
        zip(*(table[column].to_pylist() for column in columns), strict=True),
        key=lambda row: tuple((value is None, value) for value in row),
    )


@several
@given(TWO_SIDES, shapes)
def test_as_of_join_takes_the_version_that_polars_takes(sides: tuple[Unit, Rows, Rows], shape: dict[str, Any]) -> None:
    (unit, lefts, rights), (batch, carried) = sides, (shape.pop("batch"), shape.pop("carried"))
    env = fn.Environment(**shape)
    trades, quotes = table(lefts, unit), table(rights, unit, ("key", "quoted", "quote"))
    left, right = timed(env, trades, batch, carried), timed(env, quotes, batch, carried)
    joined = left.key_by("key").as_of_join(right.key_by("key"), how="left").select("row", "quote").collect()
    env.execute()
    expected = (
        pl.DataFrame(pl.from_arrow(trades))
        .sort("time")
        .join_asof(pl.DataFrame(pl.from_arrow(quotes)).sort("quoted"), left_on="time", right_on="quoted", by="key")
    )
    assert as_ints(joined.to_arrow(), "row", "quote") == as_ints(expected.to_arrow(), "row", "quote")


@several
@given(TWO_SIDES, shapes, st.integers(-3, 3), st.integers(0, 4))
def test_interval_join_compares_its_bounds_with_exact_times(
    sides: tuple[Unit, Rows, Rows], shape: dict[str, Any], lower_ms: int, width_ms: int
) -> None:
    (unit, lefts, rights), (batch, carried) = sides, (shape.pop("batch"), shape.pop("carried"))
    env = fn.Environment(**shape)
    left = timed(env, table(lefts, unit), batch, carried).key_by("key")
    right = timed(env, table(rights, unit, ("key", "other_time", "other")), batch, carried).key_by("key")
    lower, upper = timedelta(milliseconds=lower_ms), timedelta(milliseconds=lower_ms + width_ms)
    pairs = left.interval_join(right, lower, upper).select("row", "other").collect()
    env.execute()
    least, most = lower_ms * PER_MS[unit], (lower_ms + width_ms) * PER_MS[unit]
    assert as_ints(pairs.to_arrow(), "row", "other") == sorted(
        (row, other)
        for row, (key, at) in enumerate(lefts)
        for other, (other_key, other_at) in enumerate(rights)
        if key == other_key and least <= other_at - at <= most
    )


@several
@given(ONE_SIDE, shapes, st.booleans())
def test_first_last_and_collect_go_by_the_exact_time_and_windows_round_down(
    side: tuple[Unit, Rows], shape: dict[str, Any], by_window: bool
) -> None:
    (unit, rows), (batch, carried) = side, (shape.pop("batch"), shape.pop("carried"))
    env = fn.Environment(**shape)
    keyed = timed(env, table(rows, unit), batch, carried).key_by("key")
    window = fn.Tumbling("2ms") if by_window else fn.Session("2ms")
    results = keyed.window(window).agg(f=fn.first("row"), l=fn.last("row"), c=fn.collect("row")).collect()
    env.execute()
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    session: dict[int, tuple[int, int]] = {}
    for at, key, row in sorted((at, key, row) for row, (key, at) in enumerate(rows)):
        ms = at // PER_MS[unit]
        start, last = session.get(key, (ms, ms))
        session[key] = (start if ms - last < 2 else ms, ms)
        groups[key, ms // 2 * 2 if by_window else session[key][0]].append(row)
    epoch = results.to_arrow()["window_start"].cast(pa.int64())
    found = [
        {"key": row["key"], "start": start, "f": row["f"], "l": row["l"], "c": row["c"]}
        for row, start in zip(
            results.to_arrow().drop(["window_start", "window_end"]).to_pylist(), epoch.to_pylist(), strict=True
        )
    ]
    assert sorted(found, key=lambda row: (row["key"], row["start"])) == [
        {"key": key, "start": start, "f": of[0], "l": of[-1], "c": of} for (key, start), of in sorted(groups.items())
    ]


@several
@given(ONE_SIDE, shapes, st.integers(1, 3))
def test_of_equal_rows_the_earlier_one_is_better(side: tuple[Unit, Rows], shape: dict[str, Any], count: int) -> None:
    (unit, rows), (batch, carried) = side, (shape.pop("batch"), shape.pop("carried"))
    env = fn.Environment(**shape)
    same = timed(env, table(rows, unit), batch, carried).with_columns(rank=fn.lit(1))
    best = same.key_by("key").window(fn.EndOfInput()).top_n(count, by="rank").select("row").collect()
    env.execute()
    by_key: dict[int, Rows] = defaultdict(list)
    for row, (key, at) in enumerate(rows):
        by_key[key].append((at, row))
    expected = sorted(row for of in by_key.values() for _, row in sorted(of)[:count])
    assert sorted(best.to_arrow()["row"].to_pylist()) == expected


def test_results_of_joins_have_the_exact_time_too() -> None:
    env = fn.Environment()
    trades = timed(env, table([(1, 500), (1, 900)], "us"), 10, False).key_by("key")
    quotes = timed(env, table([(1, 100), (1, 700)], "us", ("key", "quoted", "quote")), 10, False).key_by("key")
    rates = timed(env, table([(1, 600), (1, 950)], "us", ("key", "rated", "rate")), 10, False).key_by("key")
    pairs = trades.as_of_join(quotes).drop("time", "quoted").key_by("key")
    found = pairs.as_of_join(rates, how="left").select("row", "quote", "rate").collect()
    near = pairs.interval_join(rates, "0s", "0s").collect()
    env.execute()
    assert as_ints(found.to_arrow(), "row", "quote", "rate") == [(0, 0, None), (1, 1, 0)]
    assert near.to_arrow().num_rows == 0


@pytest.mark.parametrize("bound", ["500us", timedelta(microseconds=1)])
def test_bounds_below_a_millisecond_are_refused(bound: Any) -> None:
    env = fn.Environment()
    keyed = timed(env, table([(1, 1)], "us"), 1, False).key_by("key")
    with pytest.raises(ConfigError, match="whole number of milliseconds"):
        keyed.interval_join(keyed, "0s", bound)


MANY = 20_000


class Slowly:
    """Rows of one side: four in each millisecond, the later ones first, slowly enough for checkpoints in between."""

    def __init__(self, names: tuple[str, str, str], shift_us: int, pause_s: float) -> None:
        self.names, self.shift_us, self.pause_s = names, shift_us, pause_s

    def schema(self) -> pa.Schema:
        types = [pa.int64(), pa.timestamp("us", "UTC"), pa.int64()]
        return pa.schema(list(zip(self.names, types, strict=True)))

    def __call__(self, subtask: int, subtasks: int) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, MANY, 200):
                rows = [row for row in range(start, start + 200) if row % subtasks == subtask]
                at = [self.at(row) for row in rows]
                columns = [[row % 7 for row in rows], at, rows]
                arrays = [pa.array(column, of.type) for column, of in zip(columns, self.schema(), strict=True)]
                yield pa.record_batch(arrays, schema=self.schema())
                time.sleep(self.pause_s)

        return pa.RecordBatchReader.from_batches(self.schema(), batches())

    def at(self, row: int) -> int:
        return row // 28 * 1_000 + (27 - row % 28) * 35 + self.shift_us


@pytest.mark.parametrize("backend", ["memory", "disk"])
@pytest.mark.parametrize("after", [1, 3])
def test_exact_times_come_back_with_the_state(tmp_path: Path, backend: Any, after: int) -> None:
    trades, quotes = Slowly(("key", "time", "row"), 17, 0.1), Slowly(("key", "quoted", "quote"), 0, 0.1)

    def job(parallelism: int, pause_s: float) -> tuple[fn.Environment, Any]:
        trades.pause_s = quotes.pause_s = pause_s
        env = fn.Environment(parallelism=2, state_backend=backend)
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        left, right = (
            env.from_arrow(side, schema=side.schema(), event_time=side.names[1], delay="1s").key_by("key")
            for side in (trades, quotes)
        )
        joined = left.as_of_join(right, how="left").uid("join").set_parallelism(parallelism)
        return env, joined.select("row", "quote").collect()

    before_env, before = job(2, 0.1)
    stop_on_the_way(before_env)
    after_env, rest = job(after, 0.0)
    after_env.execute()
    # Rows behind the last checkpoint come twice.
    found = {*as_ints(before.to_arrow(), "row", "quote"), *as_ints(rest.to_arrow(), "row", "quote")}
    sides = [
        pl.DataFrame(
            {"key": [row % 7 for row in range(MANY)], "at": [of.at(row) for row in range(MANY)], name: range(MANY)}
        )
        for of, name in ((trades, "row"), (quotes, "quote"))
    ]
    expected = sides[0].sort("at").join_asof(sides[1].sort("at"), on="at", by="key")
    assert before.to_arrow().num_rows < MANY
    assert found == set(as_ints(expected.to_arrow(), "row", "quote"))
