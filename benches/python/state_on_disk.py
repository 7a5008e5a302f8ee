"""What state costs that is larger than the memory for it: rate and memory of jobs with state in memory and on disk.

Each job runs in a process of its own, without workers, twice through all keys in an order without a pattern, so that on
disk nearly every record finds its key there: the worst there is. ``--hot`` takes nine of ten records from the first
hundredth of the keys. The rate is of all records, the memory is the most that the process had in RAM beyond what it had
before the job; pages that the system caches of the file are not in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flownet as fn


def records(keys: int, is_hot: bool) -> Iterator[tuple[int, int]]:
    """Make two records for each key, or as many with a favourite hundredth."""
    favourites = max(1, keys // 100)
    for number in range(2 * keys):
        key = number * 7919 % keys
        yield (key % favourites if is_hot and number % 10 else key), number


class Keeps(fn.KeyedProcessFunction[int, tuple[int, int], Any]):
    """A dict of a few entries for each key."""

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> None:
        """Change it."""
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.state["last"] = record[1]
        ctx.state["name"] = f"user {record[0]}"


def run(job: str, keys: int, is_hot: bool, memory: str | None) -> dict[str, float]:
    """Run one job here."""
    settings: dict[str, Any] = {} if memory is None else {"state_backend": "disk", "state_memory": memory}
    env = fn.Environment(**settings)
    stream = env.from_iterable(lambda subtask, subtasks: records(keys, is_hot)).key_by(0)
    if job == "dicts":
        stream.process(Keeps()).print()
    else:
        stream.count().filter(lambda pair: False).print()
    before, began = resident_mib(), time.perf_counter()
    env.execute()
    return {"rate": 2 * keys / (time.perf_counter() - began), "mib": resident_mib() - before}


def resident_mib() -> float:
    """Return the most that this process had in RAM so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run all jobs, and say what they did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--memory", default="32MiB", help="state_memory of the jobs on disk")
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a tiny size, to see that it runs")
    parser.add_argument("--one", nargs=2, metavar=("JOB", "MEMORY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    keys, memory = (2000, "64KiB") if given.smoke else (given.keys, given.memory)
    if given.one:
        job, of = given.one
        print(json.dumps(run(job, keys, given.hot, None if of == "none" else of)))
        return
    print(f"{keys:,} keys, {2 * keys:,} records; on disk with {memory} of memory")
    for job in ("counts", "dicts"):
        found = {}
        for of in ("none", memory):
            command = [sys.executable, str(Path(__file__)), "--keys", str(keys), "--one", job, of]
            command += ["--hot"] * given.hot + ["--smoke"] * given.smoke
            found[of] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        here, there = found["none"], found[memory]
        print(
            f"{job}: in memory {here['rate']:,.0f} records/s, {here['mib']:.0f} MiB; "
            f"on disk {there['rate']:,.0f} records/s ({there['rate'] / here['rate']:.2f}), {there['mib']:.0f} MiB"
        )


if __name__ == "__main__":
    main()
