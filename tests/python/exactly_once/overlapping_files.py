"""Writes files that overlap in time, and reads the results of jobs over them."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from .overlapping_jobs import DELAY_MS, FIRST_NUMBER, Plan, Record

KEYS = 5
SIDES = ("left", "right")


def write_files(plan: Plan, folder: Path, rows: int) -> tuple[list[Record], list[Record]]:
    """Write the files of both sides of a job, at least so many rows of each.

    Returns
    -------
    tuple
        The rows of both sides that the job has to take.
    """
    draw = random.Random(f"files of {plan.seed}")
    sides = []
    for side, format in zip(SIDES, plan.formats, strict=True):
        files = some_files(draw, plan.keeps_delay, rows)
        if format == "parquet" and draw.random() < 0.4:
            # Of so many files each is a split with several batches; of fewer each row group is a split.
            files += [[]] * (64 - len(files))
        for number, file in enumerate(files):
            half = folder / side / ("a" if number % 2 == 0 else "b")
            half.mkdir(parents=True, exist_ok=True)
            # Names sort otherwise than times do.
            write_file(draw, half / f"{draw.randrange(1000):03}-{number}", format, file, plan.time_type)
        least = FIRST_NUMBER if plan.shape == "filtered" else 0
        sides.append([row for file in files for row in file if row[2] >= least])
    return sides[0], sides[1]


def some_files(draw: random.Random, keeps_delay: bool, rows: int) -> list[list[Record]]:
    """Draw files of rows: they overlap, drift apart in time, are in order or not, and some are empty.

    No two rows of a key have the same time, so that each time has one version.
    """
    files: list[list[Record]] = []
    taken = set[tuple[int, int]]()
    while len(taken) < rows:
        begin, span = draw.randint(-2_000, 4_000), draw.choice([100, 1_000, 6_000])
        times = [begin + draw.randint(0, span) for _ in range(draw.choice([0, 1, 40, 120, 300]))]
        if keeps_delay:
            times.sort(key=lambda time_ms: time_ms + draw.randint(0, DELAY_MS))
        elif draw.random() < 0.4:
            times.sort()
        file: list[Record] = []
        for time_ms in times:
            key = draw.randrange(KEYS)
            if (key, time_ms) not in taken:
                file.append((key, time_ms, len(taken)))
                taken.add((key, time_ms))
        files.append(file)
    return files


def write_file(draw: random.Random, path: Path, format: str, rows: list[Record], time_type: str) -> None:
    """Write a file of a format; its name gets an end."""
    if format == "parquet":
        _write_parquet(draw, path.with_suffix(".parquet"), rows, time_type)
        return
    # A reader takes a MiB of lines at once: files of long lines have several batches.
    pad = " " * (2_500_000 // len(rows) if len(rows) >= 40 and draw.random() < 0.4 else 0)
    if format == "csv":
        lines = ["key,at,n,pad", *(f"{key},{_text(time_ms, time_type)},{n},{pad}" for key, time_ms, n in rows)]
        path = path.with_suffix(".csv")
    else:
        lines = [json.dumps({"key": key, "at": _text(time_ms, time_type), "n": n}) + pad for key, time_ms, n in rows]
        path = path.with_suffix(".jsonl")
    data = "".join(f"{line}\n" for line in lines).encode()
    if draw.random() < 0.2:
        Path(f"{path}.gz").write_bytes(gzip.compress(data, 1))
    else:
        path.write_bytes(data)


def _write_parquet(draw: random.Random, path: Path, rows: list[Record], time_type: str) -> None:
    types = {"int64": pa.int64(), "timestamp[ms]": pa.timestamp("ms"), "timestamp[us, UTC]": pa.timestamp("us", "UTC")}
    times = pa.array([time_ms for _, time_ms, _ in rows], pa.int64())
    if time_type != "int64":
        times = times.cast(pa.timestamp("ms")).cast(types[time_type])
    numbers: Any = {name: pa.array([row[at] for row in rows], pa.int64()) for name, at in (("key", 0), ("n", 2))}
    table = pa.table({"key": numbers["key"], "at": times, "n": numbers["n"]})
    # Without statistics nothing is known of the times of a row group.
    pq.write_table(table, path, draw.choice([15, 60, 1_000]), write_statistics=draw.random() < 0.85)


def _text(time_ms: int, time_type: str) -> Any:
    if time_type == "int64":
        return time_ms
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + ("Z" if "UTC" in time_type else "")


def results(out: Path) -> list[str]:
    """Read what a job has written, as lines of numbers."""
    if (database := out / "lines.db").exists():
        connection = sqlite3.connect(database)
        try:
            return [line for (line,) in connection.execute("select line from lines")]
        finally:
            connection.close()
    # Parts that are not complete have other ends.
    found = [line for file in out.rglob("*.txt") for line in file.read_text().splitlines()]
    tables = [pq.read_table(file) for file in out.rglob("*.parquet")]
    tables += [pyarrow.json.read_json(file) for file in out.rglob("*.jsonl") if file.stat().st_size]
    found += [" ".join(map(str, row.values())) for table in tables for row in table.to_pylist()]
    for file in out.rglob("*.csv"):
        found += [line.replace(",", " ") for line in file.read_text().splitlines() if not line[0].isalpha()]
    return found
