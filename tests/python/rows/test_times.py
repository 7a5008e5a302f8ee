"""Times of rows beside polars: parts, truncation and casts, in zones and before 1970."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

import flownet as fn

ZONES = [
    None,
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Beirut",
    "America/Havana",
    "Asia/Kolkata",
]
UNITS: list[Literal["ms", "us", "ns"]] = ["ms", "us", "ns"]
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# From 1906 on, some within the hours in which clocks of these zones change.
SECONDS = st.integers(-2_000_000_000, 4_000_000_000) | st.sampled_from(
    [1_772_953_200, 1_793_509_200, 1_541_300_400, 1_774_735_200, 1_775_343_600, 1_791_082_800]
).flatmap(lambda at: st.integers(at - 90_000, at + 90_000))
FRACTIONS = st.sampled_from([0, 1, 499_999_999, 999_999_999]) | st.integers(0, 999_999_999)
times = st.lists(st.tuples(SECONDS, FRACTIONS), min_size=1, max_size=12)
EVERY = ["1d", "1w", "1mo", "3mo", "2d", "1h", "15m", "90s", "250ms", "6h"]


def column(moments: list[tuple[int, int]], unit: str, zone: str | None) -> pa.Array:
    values = [second * PER_SECOND[unit] + nanos * PER_SECOND[unit] // 10**9 for second, nanos in moments]
    return pa.array(values, pa.timestamp(unit, zone))


def of_rows(array: pa.Array, **columns: Any) -> dict[str, list[Any]]:
    env = fn.Environment()
    result = env.from_arrow(pa.table({"at": array})).select(**columns).collect()
    env.execute(workers=0)
    table = result.to_arrow()
    return {name: as_numbers(table[name]) for name in table.column_names}


def as_numbers(array: Any) -> list[Any]:
    """Times as the numbers that they are, as Python has no nanoseconds."""
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        array = array.cast(pa.int64())
    found: list[Any] = array.to_pylist()
    return found


def of_polars(array: pa.Array, **columns: pl.Expr) -> dict[str, list[Any]]:
    frame = pl.from_arrow(pa.table({"at": array}))
    assert isinstance(frame, pl.DataFrame)
    return {name: as_numbers(series.to_arrow()) for name, series in frame.select(**columns).to_dict().items()}


@settings(max_examples=60, deadline=None)
@given(times, st.sampled_from(UNITS), st.sampled_from(ZONES))
@example([(-1_220_054_400 - 1, 999_999_999), (-1, 999_999_999)], "us", None)
def test_parts_and_casts_of_times_are_those_of_polars(
    moments: list[tuple[int, int]], unit: str, zone: str | None
) -> None:
    array = column(moments, unit, zone)
    at, other = fn.col("at").dt, pl.col("at").dt
    names = ["year", "month", "day", "hour", "minute", "second", "millisecond", "weekday", "ordinal_day", "date"]
    found = of_rows(array, **{name: getattr(at, name)() for name in names}, epoch=at.epoch())
    expected = of_polars(array, **{name: getattr(other, name)() for name in names}, epoch=other.epoch("ms"))
    assert found == expected
    suffix = "" if zone is None else f", {zone}"
    casts = {f"to_{to}": fn.col("at").cast(f"timestamp[{to}{suffix}]") for to in UNITS}
    assert of_rows(array, **casts) == of_polars(array, **{f"to_{to}": other.cast_time_unit(to) for to in UNITS})
    seconds = of_rows(array, s=fn.col("at").cast(f"timestamp[s{suffix}]"), date=fn.col("at").cast("date"))
    assert seconds["s"] == [second for second, _ in moments]
    assert seconds["date"] == expected["date"]


@settings(max_examples=150, deadline=None)
@given(times, st.sampled_from(UNITS), st.sampled_from(ZONES), st.sampled_from(EVERY))
def test_truncated_times_are_those_of_polars(
    moments: list[tuple[int, int]], unit: str, zone: str | None, every: str
) -> None:
    array = column(moments, unit, zone)
    found = of_rows(array, cut=fn.col("at").dt.truncate(every))["cut"]
    for at, cut in zip(array.cast(pa.int64()).to_pylist(), found, strict=True):
        assert cut <= at
        try:
            (expected,) = of_polars(pa.array([at], pa.timestamp(unit, zone)), cut=pl.col("at").dt.truncate(every))[
                "cut"
            ]
        except pl.exceptions.ComputeError:
            # polars refuses a beginning that clocks skip; here it is where they go on.
            local = pl.from_arrow(pa.table({"at": pa.array([cut, cut - 1], pa.timestamp(unit, zone))}))
            assert isinstance(local, pl.DataFrame)
            offsets = local.select(pl.col("at").dt.base_utc_offset() + pl.col("at").dt.dst_offset())["at"]
            assert offsets[0] > offsets[1], "clocks go forward just there"
            continue
        if every.endswith(("d", "w", "o")) and cut != expected:
            # Clocks show that midnight twice: for times of the second one polars gives the second, which would make two
            # days of one; here all times of the day begin with the first.
            both = pl.from_arrow(pa.table({"at": pa.array([cut, expected], pa.timestamp(unit, zone))}))
            assert isinstance(both, pl.DataFrame)
            assert both.select(pl.col("at").dt.replace_time_zone(None))["at"].n_unique() == 1
            assert cut < expected
            continue
        assert cut == expected, (at, zone, every)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-9 * 10**9, 9 * 10**9), min_size=1), st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_spans_of_time_that_get_a_coarser_unit_are_rounded_down(values: list[int], unit: str, to: str) -> None:
    found = of_rows(pa.array(values, pa.duration(unit)), cut=fn.col("at").cast(f"duration[{to}]"))["cut"]
    assert found == [value * PER_SECOND[to] // PER_SECOND[unit] for value in values]


@settings(max_examples=40, deadline=None)
@given(times, st.sampled_from(UNITS))
def test_event_times_of_rows_are_rounded_down(moments: list[tuple[int, int]], unit: str) -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.table({"at": column(moments, unit, "UTC")}), event_time="at", delay="100000d")
    result = rows.key_by(k=fn.lit(0)).window(fn.Tumbling("1ms")).agg(n=fn.count()).collect()
    env.execute(workers=0)
    found = {as_ms for as_ms in as_numbers(result.to_arrow()["window_start"])}
    assert found == {
        second * 1000 + nanos * PER_SECOND[unit] // 10**9 * 1000 // PER_SECOND[unit] for second, nanos in moments
    }


def test_a_beginning_that_the_type_cannot_hold_is_an_error_with_its_row() -> None:
    least = pa.array([-(2**63) + 1], pa.timestamp("ns", "Europe/Berlin"))
    with pytest.raises(fn.errors.OperatorError, match="beyond the type in row 0|row 0 of a batch.*beyond"):
        of_rows(least, cut=fn.col("at").dt.truncate("1mo"))


def test_days_of_a_zone_are_counted_as_by_the_calendar() -> None:
    hours = [dt.datetime(2026, 3, 7, 5, tzinfo=dt.UTC) + dt.timedelta(hours=hour) for hour in range(72)]
    array = pa.array(hours, pa.timestamp("ms", "America/New_York"))
    env = fn.Environment()
    keyed = env.from_arrow(pa.table({"at": array})).key_by(day=fn.col("at").dt.truncate("1d"))
    result = keyed.window(fn.EndOfInput()).agg(n=fn.count()).collect()
    env.execute(workers=0)
    assert [row["n"] for row in result.to_arrow().sort_by("day").to_pylist()] == [24, 23, 24, 1]
