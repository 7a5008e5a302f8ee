"""What rows reach: filters, sums by key and window, text, functions over batches; beside polars on the finished table.

All run once in each round, in turn, so that whatever disturbs the machine disturbs all: believe the ratios, which are
those of one round, as medians over the rounds. Tables are made before, and read from memory by two subtasks; the clock
runs from `execute()` to its end, the start of the job included. CPU time is that of the process and of its workers.

``filter``     a comparison and a product: what stays is counted by one row a subtask
``windows``    sums by key over windows of a second of event time, 10,000 keys, rows of 32 bytes
``ended``      the same over one window, to the end of the input
``polars``     the same as ``windows`` by polars, of the finished table, without an exchange
``workers``    as ``windows``, in two worker processes, five times the rows; what they read is made as they go
``words``      lines of ten words, split by an expression and counted: a row is a word
``batches``    polars in `map_batches`, 8,192 rows a call
``alone``      the same calls of polars, without anything else
``objects``    as ``windows`` by a stream of tuples, of a twentieth of the rows
``files``      as ``windows``, from Parquet files to Parquet files
``lazy``       the same by a lazy frame of polars
``many``       as ``windows``, of a fifth of the rows, each with a key of its own
``numbers``    a column of whole numbers, each dealt out to another subtask as it is, and counted there
``texts``      the same with texts of ten bytes
``best``       the three best of each second and of each of a hundred keys, of a fifth of the rows
``as_of``      a tenth of the rows, each with the newest of a tenth as many others of its key before it
``paired``     the same rows, each with all of those others in its second: ten each
``near``       the same, each with those of a tenth of a second around it: two each, which go out at once
``asof``       the same by polars, of the finished tables
``tuples``     the same by streams of tuples, of a twentieth of the rows
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from turns import shown

import flownet as fn

KEYS = 10_000
SUBTASKS = 2
ROWS_A_MS = 10_000
CALL_ROWS = 8192
OBJECTS_OF = 20
MANY_OF = 5
BEST_OF = 5
JOINED_OF = 10
WORKERS_TIMES = 5
Result = dict[str, float]
Tuples = list[tuple[Any, ...]]


def table(rows: int, subtask: int) -> pa.Table:
    """Make the rows of one subtask: a key, a time, a whole number and a price, 8 bytes each."""
    draw = np.random.default_rng(subtask)
    mine = rows // SUBTASKS
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("key", "ms", "size")])
    schema = schema.append(pa.field("price", pa.float64(), nullable=False))
    times = np.arange(mine) * SUBTASKS // ROWS_A_MS
    return pa.table(
        [draw.integers(0, KEYS, mine), times, draw.integers(0, 1000, mine), draw.random(mine)], schema=schema
    )


class Going:
    """Makes the rows of one subtask as they are read: the same again and again, at times that go on."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, subtask: int, subtasks: int) -> Any:
        """Make them."""
        import numpy
        import pyarrow

        draw, rows = numpy.random.default_rng(subtask), 1 << 17
        key, size, price = draw.integers(0, KEYS, rows), draw.integers(0, 1000, rows), draw.random(rows)
        of_chunk = numpy.arange(rows) * subtasks // ROWS_A_MS
        names = ["key", "ms", "size", "price"]

        def batches() -> Any:
            for start in range(0, self.rows // subtasks, rows):
                times = of_chunk + start * subtasks // ROWS_A_MS
                yield pyarrow.record_batch([key, times, size, price], names=names)

        first = pyarrow.record_batch([key, of_chunk, size, price], names=names)
        return pyarrow.RecordBatchReader.from_batches(first.schema, batches())


def lines(rows: int, subtask: int) -> pa.Table:
    """Make lines of ten words, of a thousand."""
    draw = np.random.default_rng(subtask)
    words = np.array([f"word{number}" for number in range(1000)])
    text = [" ".join(of) for of in words[draw.integers(0, 1000, (10_000, 10))]]
    return pa.table({"line": (text * (rows // SUBTASKS // 10 // 10_000 + 1))[: rows // SUBTASKS // 10]})


class Parts:
    """The tables of the subtasks, which are there before the clock runs."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self.tables = tables

    def rows(self, env: fn.Environment, event_time: str | None = None) -> fn.Rows:
        """Read each in a subtask of its own; rows are in order of event time."""
        return env.from_arrow(
            lambda subtask, _: self.tables[subtask], schema=self.tables[0].schema, event_time=event_time, delay="0s"
        )


def by_window(rows: fn.Rows, window: Any) -> fn.rows.CollectedRows:
    """Sum by key and window."""
    return rows.key_by("key").window(window).agg(total=fn.sum("size")).collect()


def filtered(rows: fn.Rows) -> fn.rows.CollectedRows:
    """Keep a part of the rows, with one column more, and bring almost nothing home."""
    dear = rows.filter(fn.col("price") * 2 > 1.9).select(worth=fn.col("price") * fn.col("size"), one=fn.lit(1))
    return dear.key_by("one").window(fn.EndOfInput()).agg(worth=fn.sum("worth"), n=fn.count()).collect()


def dealt(rows: fn.Rows) -> fn.rows.CollectedRows:
    """Let all rows go to other subtasks as they are, and count them there."""
    counted = rows.rebalance().with_columns(one=fn.lit(1)).key_by("one")
    return counted.window(fn.EndOfInput()).agg(n=fn.count()).collect()


def best(rows: fn.Rows) -> fn.rows.CollectedRows:
    """Find the three best of each key of a hundred and second."""
    keyed = rows.with_columns(key=fn.col("key") % 100).key_by("key")
    return keyed.window(fn.Tumbling("1s")).top_n(3, "price").collect()


def called(frame: pl.DataFrame) -> pl.DataFrame:
    """Do what the function over batches does."""
    return frame.filter(pl.col("price") > 0.999).select("key", worth=pl.col("price") * pl.col("size"))


def measured(rows: int, run: Callable[[], object]) -> Result:
    """Run, and say rows a second and CPU time a row."""

    def cpu() -> float:
        return sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )

    started, before = time.perf_counter(), cpu()
    run()
    seconds = time.perf_counter() - started
    return {"million rows/s": rows / seconds / 1e6, "CPU-ns a row": (cpu() - before) / rows * 1e9}


def job(describe: Callable[[fn.Environment], object], workers: int = 0) -> Callable[[], object]:
    """Describe a job, which is then run."""
    # Without workers functions and their tables are used as they are, and not copied.
    env = fn.Environment(parallelism=SUBTASKS, object_reuse=not workers)
    describe(env)
    return lambda: env.execute(workers=workers)


JOINS: dict[str, Callable[[fn.KeyedRows, fn.KeyedRows], fn.Rows]] = {
    "as_of": lambda rows, others: rows.as_of_join(others),
    "paired": lambda rows, others: rows.join(others, fn.Tumbling("1s")),
    "near": lambda rows, others: rows.interval_join(others, "-100ms", "100ms"),
}


def joined(join: str, env: fn.Environment, left: Parts, right: Parts) -> object:
    """Join rows with others by key, and bring almost nothing home."""
    others = right.rows(env, "ms").select("key", rate=fn.col("price")).key_by("key")
    pairs = JOINS[join](left.rows(env, "ms").key_by("key"), others).select(worth=fn.col("rate") * fn.col("size"))
    total = pairs.with_columns(one=fn.lit(1)).key_by("one").window(fn.EndOfInput())
    return total.agg(n=fn.count(), worth=fn.sum("worth")).collect()


def as_of_tuples(env: fn.Environment, left: list[Tuples], right: list[Tuples]) -> object:
    """Do the same with tuples."""
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)

    def keyed(of: list[Tuples]) -> fn.KeyedStream[Any, tuple[Any, ...]]:
        source = env.from_iterable(lambda subtask, _: of[subtask])
        return source.assign_timestamps_and_watermarks(strategy).key_by(0)

    worth = keyed(left).as_of_join(keyed(right)).process(lambda one, other: (1, one[2] * other[3]))
    return worth.key_by(0).window(fn.EndOfInput()).sum(1).collect()


def of_polars_as_of(left: pl.DataFrame, right: pl.DataFrame) -> object:
    """Do the same in one call."""
    joined = left.join_asof(right.select("key", "ms", rate="price"), on="ms", by="key", check_sortedness=False)
    return joined.drop_nulls("rate").select((pl.col("rate") * pl.col("size")).sum())


def as_objects(env: fn.Environment, parts: list[Tuples]) -> object:
    """Sum tuples by key and window."""
    source = env.from_iterable(lambda subtask, _: parts[subtask])
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    keyed = source.assign_timestamps_and_watermarks(strategy).key_by(0)
    return keyed.window(fn.Tumbling("1s")).sum(2).collect()


def tuples(tables: list[pa.Table], most: int) -> list[Tuples]:
    """Make tuples of the first rows of the tables, so many of all together."""
    return [list(zip(*(column.to_pylist() for column in of[: most // len(tables)]), strict=True)) for of in tables]


def of_polars(frame: Any) -> Any:
    """Sum by key and window in one call."""
    return frame.group_by("key", pl.col("ms") // 1000).agg(total=pl.col("size").sum())


def of_files(folder: Path) -> object:
    """Sum from files to a file."""
    frame = pl.scan_parquet(folder / "in-*.parquet")
    return of_polars(frame).sink_parquet(folder / "polars.parquet")


def round_of(options: argparse.Namespace) -> list[tuple[str, int, Callable[[], object]]]:
    """List what is run, with its number of rows."""
    rows = options.rows
    tables = [table(rows, subtask) for subtask in range(SUBTASKS)]
    parts, text = Parts(tables), Parts([lines(rows, subtask) for subtask in range(SUBTASKS)])
    frame = pl.DataFrame(pa.concat_tables(tables))
    few = tuples(tables, rows // OBJECTS_OF)
    # Each fraction of a stream goes over the same time.
    lefts, versions = (
        [of.take(np.arange(0, of.num_rows, step)) for of in tables] for step in (JOINED_OF, JOINED_OF**2)
    )
    lefts_frame, versions_frame = (pl.DataFrame(pa.concat_tables(of)).sort("ms") for of in (lefts, versions))
    of_joined = [tuples([of.take(np.arange(0, of.num_rows, 2)) for of in both], rows) for both in (lefts, versions)]
    own = [
        of.slice(0, of.num_rows // MANY_OF).set_column(
            0, "key", [np.arange(of.num_rows // MANY_OF) * SUBTASKS + subtask]
        )
        for subtask, of in enumerate(tables)
    ]
    numbers = [of.select(["key"]) for of in tables]
    texts = [pa.table({"text": pc.utf8_lpad(of["key"].cast(pa.string()), 10, "0")}) for of in tables]
    ranked = [of.slice(0, of.num_rows // BEST_OF) for of in tables]
    folder = Path(options.folder)
    for subtask, of in enumerate(tables):
        pq.write_table(of, folder / f"in-{subtask}.parquet", row_group_size=1 << 17)
    calls = [pl.DataFrame(batch) for of in tables for batch in of.to_batches(CALL_ROWS)]
    going, schema = Going(rows * WORKERS_TIMES), pa.schema([of.with_nullable(True) for of in tables[0].schema])
    second = fn.Tumbling("1s")

    def words(env: fn.Environment) -> object:
        split = text.rows(env).select(word=fn.col("line").str.split(" ")).explode("word")
        return split.key_by("word").window(fn.EndOfInput()).agg(n=fn.count()).collect()

    def files(env: fn.Environment) -> object:
        read = env.read_parquet(folder.glob("in-*.parquet"), columns=["key", "ms", "size"]).assign_timestamps("ms")
        return read.key_by("key").window(second).agg(total=fn.sum("size")).write_parquet(folder / "out")

    jobs: list[tuple[str, int, Callable[[], Callable[[], object]]]] = [
        ("filter", rows, lambda: job(lambda env: filtered(parts.rows(env)))),
        ("windows", rows, lambda: job(lambda env: by_window(parts.rows(env, "ms"), second))),
        ("polars", rows, lambda: lambda: of_polars(frame)),
        ("ended", rows, lambda: job(lambda env: by_window(parts.rows(env), fn.EndOfInput()))),
        (
            "workers",
            rows * WORKERS_TIMES,
            lambda: job(
                lambda env: by_window(env.from_arrow(going, schema=schema, event_time="ms", delay="0s"), second), 2
            ),
        ),
        ("words", rows, lambda: job(words)),
        ("batches", rows, lambda: job(lambda env: parts.rows(env).map_batches(called, format="polars").collect())),
        ("alone", rows, lambda: lambda: [called(call) for call in calls]),
        ("objects", rows // OBJECTS_OF, lambda: job(lambda env: as_objects(env, few))),
        ("files", rows, lambda: job(files)),
        ("lazy", rows, lambda: lambda: of_files(folder)),
        ("many", rows // MANY_OF, lambda: job(lambda env: by_window(Parts(own).rows(env, "ms"), second))),
        ("numbers", rows, lambda: job(lambda env: dealt(Parts(numbers).rows(env)))),
        ("texts", rows, lambda: job(lambda env: dealt(Parts(texts).rows(env)))),
        ("best", rows // BEST_OF, lambda: job(lambda env: best(Parts(ranked).rows(env, "ms")))),
        ("as_of", rows // JOINED_OF, lambda: job(lambda env: joined("as_of", env, Parts(lefts), Parts(versions)))),
        ("paired", rows // JOINED_OF, lambda: job(lambda env: joined("paired", env, Parts(lefts), Parts(versions)))),
        ("near", rows // JOINED_OF, lambda: job(lambda env: joined("near", env, Parts(lefts), Parts(versions)))),
        ("asof", rows // JOINED_OF, lambda: lambda: of_polars_as_of(lefts_frame, versions_frame)),
        ("tuples", rows // JOINED_OF // 2, lambda: job(lambda env: as_of_tuples(env, *of_joined))),
    ]
    return [(name, count, make()) for name, count, make in jobs if not options.only or name in options.only]


RATIOS = {
    "windows / polars": ("windows", "polars"),
    "batches / alone": ("batches", "alone"),
    "windows / objects": ("windows", "objects"),
    "files / lazy": ("files", "lazy"),
    "numbers / texts": ("numbers", "texts"),
    "as_of / asof": ("as_of", "asof"),
    "as_of / tuples": ("as_of", "tuples"),
}


def main() -> None:
    """Run all, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a little of everything, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.rows, options.rounds = 200_000, 1
    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as options.folder:
        for _ in range(options.rounds):
            for name, rows, run in round_of(options):
                found.setdefault(name, []).append(measured(rows, run))
    speed = {name: [result["million rows/s"] for result in results] for name, results in found.items()}
    ratios = {
        name: [a / b for a, b in zip(speed[one], speed[other], strict=True)]
        for name, (one, other) in RATIOS.items()
        if one in speed and other in speed
    }
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "results": found, "ratios": ratios}, indent=2))
        return
    for name, results in found.items():
        cpu = statistics.median(result["CPU-ns a row"] for result in results)
        print(f"{name:<10} {shown(speed[name])} M rows/s, {cpu:7.1f} CPU-ns a row")
    for name, values in ratios.items():
        print(f"{name:<18} {shown(values)}")


if __name__ == "__main__":
    main()
