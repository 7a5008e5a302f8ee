"""flownet's side of the workloads with Python functions, in two worker processes.

    flownet_peer.py objects COUNT    numbers -> map -> key_by (100 keys) -> reduce, a result for every record -> discard
    flownet_peer.py words FILE       FILE names the files to read: lines -> flat_map(str.split) -> key_by -> window
                                     count -> discard, as ``flownet demo wordcount`` does it

The clock runs from the first batch a worker reads to the last close of a sink; starting is not in it. CPU is user and
system time of both workers over that span. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

import flownet as fn

BATCH = 1000
"""Numbers made by one call, as in the other peers' sources."""


def stamp(folder: str, moment: str, records: int = 0) -> None:
    """Leave a time where the caller finds it; functions run in processes of their own."""
    with open(os.path.join(folder, f"{moment}-{os.getpid()}-{time.monotonic_ns()}"), "w") as file:
        cpu = time.process_time()
        json.dump({"pid": os.getpid(), "at": time.monotonic(), "cpu": cpu, "records": records}, file)


def read_stamps(folder: str, moment: str) -> list[dict[str, Any]]:
    """Read what `stamp` left."""
    return [json.load(open(os.path.join(folder, name))) for name in os.listdir(folder) if name.startswith(moment)]


class Discard(fn.Sink[Any]):
    """Counts records, or for words adds up their counts, so that the caller can see whether all arrived."""

    def __init__(self, folder: str, *, is_objects: bool) -> None:
        self.folder = folder
        self.is_objects = is_objects
        self.records = 0

    def write(self, records: list[Any]) -> None:
        """Count a batch."""
        self.records += len(records) if self.is_objects else sum(count for _, count in records)

    def close(self) -> None:
        """Tell the caller."""
        stamp(self.folder, "close", self.records)


class Numbers:
    """Makes the numbers of a batch from its index, in the worker."""

    def __init__(self, folder: str) -> None:
        self.folder: str | None = folder

    def __call__(self, first: int) -> Iterable[int]:
        """Make a batch, whose first number is given."""
        if self.folder is not None:
            stamp(self.folder, "open")
            self.folder = None
        return range(first, first + BATCH)


class Split:
    """Splits lines into words."""

    def __init__(self, folder: str) -> None:
        self.folder: str | None = folder

    def __call__(self, line: str) -> list[str]:
        """Split a line."""
        if self.folder is not None:
            stamp(self.folder, "open")
            self.folder = None
        return line.split()


def main(job: str, what: str) -> None:
    """Run a job and print its figures."""
    env = fn.Environment(parallelism=2, name=job)
    with tempfile.TemporaryDirectory() as folder:
        if job == "objects":
            numbers = env.from_collection(range(0, int(what), BATCH)).rebalance().flat_map(Numbers(folder))
            keyed = numbers.map(lambda value: value + 1).key_by(lambda value: value % 100)
            keyed.reduce(lambda total, value: total + value).sink_to(Discard(folder, is_objects=True))
        else:
            with open(what) as file:
                lines = env.read_text(file.read().splitlines(), errors="replace")
            words = lines.flat_map(Split(folder)).key_by(lambda word: word)
            words.window(fn.Tumbling("5s")).count().sink_to(Discard(folder, is_objects=False))
        result = env.execute(workers=2)
        opened, closed = read_stamps(folder, "open"), read_stamps(folder, "close")
    cpu_before = {row["pid"]: row["cpu"] for row in sorted(opened, key=lambda row: -float(row["at"]))}
    cpu_after = {row["pid"]: row["cpu"] for row in sorted(closed, key=lambda row: float(row["at"]))}
    print(
        json.dumps(
            {
                "seconds": max(row["at"] for row in closed) - min(row["at"] for row in opened),
                "cpu_seconds": sum(cpu_after.values()) - sum(cpu_before.values()),
                "bytes_tcp": result.bytes_tcp,
                "records": sum(row["records"] for row in closed),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
