"""Sums by key and windows of a second: of rows, in Flink's DataStream, which is Java, and in Flink SQL.

All run by turns in each round: believe the ratios, which are those of one round, as medians over the rounds. A row is a
key, a size, a time and a price, 8 bytes each, and all are made before: tables for the rows, tuples of Java for Flink.
Rows go through two worker processes, Flink's through one JVM with as many subtasks, which reuses objects and has run
both ways before the first round. What they find is held equal. The clock runs from when all sources have their rows
until the last sink has all there is.

Flink is installed from PyPI on first use, and needs a JDK 17 or newer.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from turns import last_noted, note, shown

import flownet as fn

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))
flink_jvm = importlib.import_module("flink_jvm")

SUBTASKS = 2
WARM_RUNS = 2
WAYS = ("rows", "stream", "sql")
COLUMNS = {"key": "int64", "size": "int64", "ms": "int64", "price": "float64"}


class Source:
    """Makes the rows of a subtask, those that Flink's has, and notes when it has them."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder = folder
        self.rows, self.keys, self.of_ms = options.rows, options.keys, options.rows_in_ms

    def __call__(self, subtask: int, subtasks: int) -> Any:
        """Make them."""
        import numpy
        import pyarrow

        numbers = numpy.arange(subtask, self.rows // subtasks * subtasks, subtasks)
        columns = [numbers * 7919 % self.keys, numbers % 1000, numbers // self.of_ms, numbers / 7.0]
        table = pyarrow.table(columns, names=list(COLUMNS))
        note(self.folder / "began")
        return table


class Noted(fn.Sink[Any]):
    """Drops results, and notes how many there were, what they sum to, and when that was all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        """Begin to count."""
        self.results, self.total = 0, 0

    def write(self, records: list[Any]) -> None:
        """Count them."""
        for batch in records:
            self.results += len(batch)
            self.total += batch["total"].to_numpy().sum()

    def flush(self) -> None:
        """Note the end."""
        note(self.folder / "ended")

    def close(self) -> None:
        """Say what there was."""
        with (self.folder / "found").open("a") as found:
            found.write(f"{self.results} {self.total}\n")


def by_rows(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Sum rows, and say what Flink's program says."""
    env = fn.Environment(parallelism=SUBTASKS)
    rows = env.from_arrow(Source(folder, options), schema=COLUMNS, event_time="ms", delay="0s")
    rows.key_by("key").window(fn.Tumbling("1s")).agg(total=fn.sum("size")).sink_to(Noted(folder), format="arrow")
    env.execute(workers=SUBTASKS)
    found = [line.split() for line in (folder / "found").read_text().splitlines()]
    (folder / "found").unlink()
    results, totals = zip(*found, strict=True)
    seconds = last_noted(folder / "ended") - last_noted(folder / "began")
    return {"seconds": seconds, "results": sum(map(int, results)), "total": sum(map(int, totals))}


def main() -> None:
    """Run all, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rows-in-ms", type=int, default=1_000, help="of event time (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    flink_jvm.compiled("FlinkWindowsPeer")
    print(flink_jvm.versions())
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        told = map(str, (options.rows, options.keys, options.rows_in_ms, SUBTASKS))
        with flink_jvm.Jvm("FlinkWindowsPeer", folder, *told) as flink:
            for number in range(WARM_RUNS + options.rounds):
                found = {way: by_rows(folder, options) if way == "rows" else flink.ask(way) for way in WAYS}
                if len({(one["results"], one["total"]) for one in found.values()}) > 1:
                    raise SystemExit(f"they differ: {found}")
                if number >= WARM_RUNS:
                    for way, one in found.items():
                        speeds[way].append(options.rows / one["seconds"] / 1e6)
    ratios = {way: [a / b for a, b in zip(speeds["rows"], speeds[way], strict=True)] for way in WAYS[1:]}
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "million rows/s": speeds, "ratios": ratios}, indent=2))
        return
    print(f"{options.rows} rows, medians of {options.rounds} on {os.cpu_count()} cores")
    for way, values in speeds.items():
        print(f"{way:<14} {shown(values)} M rows/s")
    for way, values in ratios.items():
        print(f"rows / {way:<7} {shown(values)}")


if __name__ == "__main__":
    main()
