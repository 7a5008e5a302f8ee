"""Bytewax dataflows, for ``python -m bytewax.run``.

Settings come from the environment:

    PEER_JOB=objects   ints -> map -> key_on (100 keys) -> stateful_map, a result for every record -> discard
    PEER_JOB=words     lines of files -> flat_map(str.split) -> count_final per word -> discard
    PEER_RECORDS       ints in all
    PEER_FILES         a file with the names of the files to read, one a line
    PEER_OUT           where each worker appends its figures as lines of JSON

Every worker has a source of its own, which makes its share of the records in batches of 1000.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

IS_OBJECTS = os.environ["PEER_JOB"] == "objects"
BATCH = 1000
KEYS = [str(key) for key in range(100)]


def report(**figures: float) -> None:
    with open(os.environ["PEER_OUT"], "a") as file:
        file.write(json.dumps(figures) + "\n")


def numbers(worker: int, workers: int) -> Iterator[int]:
    return iter(range(worker, int(os.environ["PEER_RECORDS"]), workers))


def lines(worker: int, workers: int) -> Iterator[str]:
    with open(os.environ["PEER_FILES"]) as file:
        names = file.read().splitlines()
    for name in names[worker::workers]:
        with open(name, encoding="utf-8", errors="replace") as text:
            yield from text


class Part(StatelessSourcePartition[Any]):
    def __init__(self, records: Iterator[Any]) -> None:
        self.records = records
        self.has_begun = False

    def next_batch(self) -> list[Any]:
        if not self.has_begun:
            self.has_begun = True
            report(first=time.monotonic(), cpu_before=time.process_time())
        batch = list(itertools.islice(self.records, BATCH))
        if not batch:
            raise StopIteration
        return batch


class Source(DynamicSource[Any]):
    def __init__(self, make: Any) -> None:
        self.make = make

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
        return Part(self.make(worker_index, worker_count))


class Discard(StatelessSinkPartition[Any]):
    """Counts records, or for words adds up their counts, so that the caller can see whether all arrived."""

    def __init__(self) -> None:
        self.records = 0

    def write_batch(self, items: list[Any]) -> None:
        self.records += len(items) if IS_OBJECTS else sum(count for _, count in items)

    def close(self) -> None:
        report(last=time.monotonic(), cpu_after=time.process_time(), records=self.records)


class Sink(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Discard:
        return Discard()


def add(state: int | None, value: int) -> tuple[int, int]:
    total = (state or 0) + value
    return total, total


flow = Dataflow("peer")
if IS_OBJECTS:
    mapped = op.map("map", op.input("in", flow, Source(numbers)), lambda value: value + 1)
    keyed = op.key_on("key", mapped, lambda value: KEYS[value % 100])
    results = op.stateful_map("reduce", keyed, add)
else:
    words = op.flat_map("split", op.input("in", flow, Source(lines)), str.split)
    results = op.count_final("count", words, lambda word: word)
op.output("out", results, Sink())
