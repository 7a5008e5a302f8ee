"""The queries of Nexmark as jobs that may be ended anywhere: on objects and on rows, from sources that can be repeated.

``flownet run nexmark_jobs.py:killed`` runs the one that ``CHAOS_PROGRAM`` names.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import flownet as fn

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "nexmark"))

nexmark: Any = importlib.import_module("nexmark")
nexmark_rows: Any = importlib.import_module("nexmark_rows")

QUERIES = [f"q{number}" for number in range(9)]
PROGRAMS = [*QUERIES, *(f"{query}_rows" for query in QUERIES)]
SEED, EVENTS_PER_SECOND = 7, 75
"""Of event time."""
SPLITS = 3
ROWS_PER_GROUP = 20


Found = tuple[fn.Environment, fn.Stream[str]]


def write_tables(folder: Path, events: int) -> None:
    """Write the tables that the jobs on rows read: small groups, so that many a checkpoint comes in between."""
    made = list(nexmark.generate(events, SEED, EVENTS_PER_SECOND))
    for kind in (nexmark.Person, nexmark.Auction, nexmark.Bid):
        pq.write_table(nexmark_rows.table(kind, made), folder / f"{kind.__name__}.parquet", ROWS_PER_GROUP)


def found(program: str, tables: Path, events: int, rate: int | None, parallelism: int, **given: Any) -> Found:
    """Describe a program whose sources emit so many events a second, all together; its results are texts."""
    env = fn.Environment(parallelism=parallelism, max_parallelism=32, buffer_timeout="5ms", **given)
    query = importlib.import_module(program).query
    if not program.endswith("_rows"):
        return env, _lines(query(_events(env, events, rate)))
    return env, _lines(query(_tables(env, tables, events, rate and rate / parallelism)))


def killed() -> fn.Environment:
    """Describe what is killed, as its environment says."""
    folder, events, rate, parallelism = (
        os.environ[f"CHAOS_{name}"] for name in ("INPUT", "EVENTS", "RATE", "PARALLELISM")
    )
    restarts: Any = {"restart": "fixed:10000:20ms", "heartbeat_timeout": "30s"}
    described = found(os.environ["CHAOS_PROGRAM"], Path(folder), int(events), int(rate), int(parallelism), **restarts)
    env, results = described
    results.write_text(os.environ["CHAOS_OUTPUT"])
    return env


def _lines(results: Any) -> fn.Stream[str]:
    records: fn.Stream[Any] = results.to_objects(as_dicts=False) if isinstance(results, fn.Rows) else results
    return records.map(repr)


def _events(env: fn.Environment, events: int, rate: int | None) -> fn.Stream[Any]:
    def read(split: int, position: int | None) -> Iterator[tuple[int, Any]]:
        for number, event in enumerate(nexmark.generate(events, SEED, EVENTS_PER_SECOND)):
            if number % SPLITS == split and number >= (position or 0):
                yield number + 1, event

    stream: fn.Stream[Any] = nexmark.timed(env.from_generator(read, splits=range(SPLITS), rate_limit=rate))
    return stream


class Slowly:
    """Hands batches on at a rate, which files know nothing of, or at once."""

    def __init__(self, rows_per_second: float | None) -> None:
        self.rows_per_second = rows_per_second

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.rows_per_second is not None:
            time.sleep(len(batch) / self.rows_per_second)
        return batch


def _tables(env: fn.Environment, folder: Path, events: int, rate: float | None) -> Any:
    """Describe the streams of each kind, of which a subtask emits its share of so many events a second."""
    made = list(nexmark.generate(events, SEED, EVENTS_PER_SECOND))

    def read(kind: type[Any]) -> fn.Rows:
        share = sum(isinstance(event, kind) for event in made) / events
        slowly = Slowly(None if rate is None else rate * share)
        rows = env.read_parquet(folder / f"{kind.__name__}.parquet").map_batches(slowly)
        return rows.assign_timestamps("time_ms", delay=nexmark_rows.DELAY)

    return nexmark_rows.Streams(read, EVENTS_PER_SECOND)
