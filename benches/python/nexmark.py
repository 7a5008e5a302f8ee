"""Nexmark's queries q0 to q8, the programs on rows beside those on objects: how many events a second.

Both are those of ``examples/nexmark``, over the same events, as many of the kinds that a query looks at: persons and
auctions for q3 and q8, auctions and bids for q4 and q6, bids for the others. Events are made before: a list of records
for the objects, a table of each kind for the rows, a part for each subtask. The two run by turns in each round, so that
whatever disturbs the machine disturbs both: believe the ratios, which are those of one round, as medians over the
rounds. Results are dropped by a sink where they come out. Before the first round both run once more, and have to find
the same.

The clock runs from when all sources have their events, which workers read from files before, and all sinks are open,
until the last sink has all there is.

``--flink`` runs Flink SQL by turns with them, in one JVM with as many subtasks, which has the events in memory as rows
of its own and has run the query three times before the first round; what it finds in the end is held against what the
rows find. Flink is installed from PyPI on first use, and needs a JDK 17 or newer. It has no q6.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import pickle
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turns import last_noted, note

import flownet as fn

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples" / "nexmark"), str(ROOT / "benches" / "peers")]
nexmark, nexmark_rows = importlib.import_module("nexmark"), importlib.import_module("nexmark_rows")
flink_sql = importlib.import_module("flink_sql")

EVENTS_OF_50 = {nexmark.Person: 1, nexmark.Auction: 3, nexmark.Bid: 46}
"""How many of 50 events are of a kind."""

QUERIES = {f"q{number}": [nexmark.Bid] for number in (0, 1, 2, 5, 7)}
QUERIES |= {query: [nexmark.Person, nexmark.Auction] for query in ("q3", "q8")}
QUERIES |= {query: [nexmark.Auction, nexmark.Bid] for query in ("q4", "q6")}
"""What they look at."""

WARM_RUNS = 2
"""Of Flink, beside the one that says what it finds: its code is compiled as it runs."""

Describe = Callable[[fn.Environment], "fn.Stream[Any] | fn.Rows"]


class Discard(fn.Sink[Any]):
    """Takes everything and keeps nothing, and notes when it begins and when that was all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        """Note the beginning."""
        note(self.folder / "began")

    def write(self, records: list[Any]) -> None:
        """Drop them."""

    def flush(self) -> None:
        """Note the end."""
        note(self.folder / "ended")


class Source:
    """Gives each subtask its part, and notes when it has it."""

    def __init__(self, folder: Path, name: str, parts: list[Any], workers: int) -> None:
        self.folder, self.name = folder, name
        self.parts = None if workers else parts
        for subtask, part in enumerate(parts):
            self.file(subtask).write_bytes(pickle.dumps(part))

    def file(self, subtask: int) -> Path:
        """Say where a part lies for workers."""
        return self.folder / f"{self.name}-{subtask}"

    def __call__(self, subtask: int, subtasks: int) -> Any:
        """Give a subtask its part."""
        part = pickle.loads(self.file(subtask).read_bytes()) if self.parts is None else self.parts[subtask]
        note(self.folder / "began")
        return part


def events_for(query: str, options: argparse.Namespace) -> list[list[Any]]:
    """Make the events that a query looks at, a part for each subtask."""
    kinds = QUERIES[query]
    events_of_all = options.events * 50 // sum(EVENTS_OF_50[kind] for kind in kinds)
    events = [event for event in nexmark.generate(events_of_all) if type(event) in kinds]
    return [events[subtask :: options.parallelism] for subtask in range(options.parallelism)]


def programs(
    query: str, parts: list[list[Any]], options: argparse.Namespace, folder: Path
) -> tuple[Describe, Describe]:
    """Say how a query over these events is described: on objects, and on rows."""
    kinds = QUERIES[query]
    tables = {kind: [nexmark_rows.table(kind, part) for part in parts] for kind in kinds}
    of_objects = Source(folder, "events", parts, options.workers)
    of_rows = {kind: Source(folder, kind.__name__, tables[kind], options.workers) for kind in kinds}

    def on_objects(env: fn.Environment) -> fn.Stream[Any]:
        stream: fn.Stream[Any] = importlib.import_module(query).query(nexmark.timed(env.from_iterable(of_objects)))
        return stream

    def on_rows(env: fn.Environment) -> fn.Stream[Any] | fn.Rows:
        def read(kind: type) -> fn.Rows:
            schema = tables[kind][0].schema
            return env.from_arrow(of_rows[kind], schema=schema, event_time="time_ms", delay=nexmark_rows.DELAY)

        streams = nexmark_rows.Streams(read)
        found: fn.Stream[Any] | fn.Rows = importlib.import_module(f"{query}_rows").query(streams)
        return found

    return on_objects, on_rows


def environment(options: argparse.Namespace) -> fn.Environment:
    """Make one in which the functions without workers are used as they are, with their events, and not copied."""
    return fn.Environment(parallelism=options.parallelism, object_reuse=not options.workers)


def found_by(describe: Describe, options: argparse.Namespace) -> Counter[Any]:
    """Run a query, and give what it finds."""
    env = environment(options)
    found = describe(env)
    results = (found.to_objects(as_dicts=False) if isinstance(found, fn.Rows) else found).collect()
    env.execute(options.workers)
    return Counter(results)


def seconds(describe: Describe, options: argparse.Namespace, folder: Path) -> float:
    """Run a query, and say how long it took."""
    env = environment(options)
    describe(env).sink_to(Discard(folder))
    env.execute(options.workers)
    return last_noted(folder / "ended") - last_noted(folder / "began")


def in_flink(query: str, parts: list[list[Any]], folder: Path) -> Any:
    """Start a JVM that has the events, and the query in Flink SQL."""
    kinds = {
        kind.__name__.lower(): [[event for event in part if type(event) is kind] for part in parts]
        for kind in QUERIES[query]
    }
    return flink_sql.FlinkSql(query, kinds, folder)


def standing(query: str, found: Counter[Any]) -> Counter[Any]:
    """Say what stands at the end, as Flink's tables do: of the means of q4 the last of each category."""
    if query == "q4":
        last = {category: mean for category, time_ms, mean in sorted(found)}
        found = Counter(last.items())
    return Counter({flink_sql.comparable(row): times for row, times in found.items()})


def measure(query: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run a query's two programs by turns, and Flink's if that is wanted and there is one."""
    parts = events_for(query, options)
    both = programs(query, parts, options, folder)
    on_objects, on_rows = (found_by(describe, options) for describe in both)
    (folder / "began").unlink()
    if on_objects != on_rows:
        raise SystemExit(f"{query}: the two programs differ in {(on_objects - on_rows) + (on_rows - on_objects)}")
    with contextlib.ExitStack() as stack:
        timed = [functools.partial(seconds, describe, options, folder) for describe in both]
        if options.flink and query in flink_sql.QUERIES:
            flink = stack.enter_context(in_flink(query, parts, folder))
            check_flink(query, flink.found(), standing(query, on_rows))
            for _ in range(WARM_RUNS):
                flink.seconds()
            timed.append(flink.seconds)
        rounds = [[run() for run in timed] for _ in range(options.rounds)]
    objects, rows, *of_flink = ([options.events / times / 1e6 for times in runs] for runs in zip(*rounds, strict=True))
    row = {
        "query": query,
        "results": on_rows.total(),
        "objects": spread(objects),
        "rows": spread(rows),
        "ratio": spread([of_rows / of_objects for of_objects, of_rows in zip(objects, rows, strict=True)]),
    }
    for rates in of_flink:
        row["flink"] = spread(rates)
        row["ratio_to_flink"] = spread([of_rows / rate for of_rows, rate in zip(rows, rates, strict=True)])
    return row


def check_flink(query: str, found: Counter[Any], expected: Counter[Any]) -> None:
    """Compare what Flink and the rows find."""
    if found != expected:
        raise SystemExit(f"{query}: Flink and the rows differ in {(found - expected) + (expected - found)}")


def spread(values: list[float]) -> list[float]:
    """Median, least and most."""
    return [statistics.median(values), min(values), max(values)]


def show(row: dict[str, Any]) -> str:
    """Write a row for people."""

    def shown(what: str) -> str:
        median, least, most = row[what]
        return f"{median:6.2f} [{least:.2f}-{most:.2f}]"

    flink = f"; Flink SQL {shown('flink')}, ratio {shown('ratio_to_flink')}" if "flink" in row else ""
    return (
        f"{row['query']}  objects {shown('objects')}, rows {shown('rows')} M events/s, ratio {shown('ratio')}{flink}, "
        f"{row['results']} results"
    )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: all in this one (%(default)s)")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--flink", action="store_true", help="run Flink SQL beside them")
    parser.add_argument("--only", choices=sorted(QUERIES), nargs="*", default=sorted(QUERIES))
    parser.add_argument("--json", action="store_true", help="one line of JSON for each query")
    parser.add_argument("--smoke", action="store_true", help="once, with few events: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.events, options.rounds = 20_000, 1
    if options.flink:
        print(flink_sql.prepare())
    print(f"{options.events} events, medians of {options.rounds} on {os.cpu_count()} cores")
    for query in options.only:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(query, options, Path(folder))
        print(json.dumps(row) if options.json else show(row), flush=True)


if __name__ == "__main__":
    main()
