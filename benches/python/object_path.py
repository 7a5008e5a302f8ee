"""How fast Python objects go through two worker processes: a running reduce, and word count.

``reduce`` is the work of the Bytewax job in the comparison: ints made in the workers, a map, an exchange by key (100
keys), a function of the value so far and the next value for every record, and a sink that only counts. ``words`` reads
text, splits it and counts the words of a window.

The clock runs from the first source or sink that opens to the last sink that closes, so process starts are not in it.
CPU time is that of the worker processes between their own first and last such moment, and of this process over the
whole run.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flownet as fn

KEYS = 100
WORDS = 10_000
Result = dict[str, float]


class Stamps:
    """A file to which worker processes append one line for each thing they note."""

    def __init__(self, path: str) -> None:
        self.path = path

    def note(self, **values: float) -> None:
        """Append values, with the clocks of this process."""
        line = json.dumps({"at": time.time(), "cpu": time.process_time(), "pid": os.getpid(), **values})
        with open(self.path, "a") as file:
            file.write(line + "\n")

    def read(self) -> tuple[float, float, int]:
        """Seconds between the first and the last line, CPU seconds of each process between its own, sum of ``n``."""
        lines = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
        times = [line["at"] for line in lines]
        cpu: dict[int, list[float]] = {}
        for line in lines:
            cpu.setdefault(line["pid"], []).append(line["cpu"])
        return (
            max(times) - min(times),
            sum(max(marks) - min(marks) for marks in cpu.values()),
            sum(line.get("n", 0) for line in lines),
        )


class Discard(fn.Sink[Any]):
    """Counts what it is given: records, or the counts in the pairs of word count."""

    def __init__(self, stamps: Stamps, count: Callable[[list[Any]], int]) -> None:
        self.stamps, self.count, self.n = stamps, count, 0

    def open(self, ctx: fn.TaskContext) -> None:
        """Note the beginning: sinks open with the sources."""
        self.stamps.note()

    def write(self, records: list[Any]) -> None:
        """Count."""
        self.n += self.count(records)

    def close(self) -> None:
        """Note the end."""
        self.stamps.note(n=self.n)


def reduce_job(env: fn.Environment, stamps: Stamps, options: argparse.Namespace) -> None:
    """Make ints -> map -> key_by -> reduce -> discard."""
    records = options.records

    def numbers(subtask: int, subtasks: int) -> range:
        stamps.note()
        return range(subtask, records, subtasks)

    key = operator.itemgetter(0) if options.itemgetter else lambda pair: pair[0]
    pairs = env.from_iterable(numbers).map(lambda x: (x % KEYS, x))
    pairs.key_by(key).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(Discard(stamps, len))


def words_job(env: fn.Environment, stamps: Stamps, options: argparse.Namespace) -> None:
    """Read text -> flat_map(str.split) -> key_by -> count of a window -> discard."""
    words = env.read_text(options.text).flat_map(str.split)
    counts = words.key_by(lambda word: word).window(fn.Tumbling("1h")).count()
    counts.sink_to(Discard(stamps, lambda pairs: sum(count for _, count in pairs)))


def write_text(path: Path, words: int) -> None:
    """Write lines of 10 words out of 10 000, the frequent ones more often."""
    rng = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgk"
    known = ["".join(rng.choices(letters, k=2 + min(rank // 200, 8))) for rank in range(WORDS)]
    with path.open("w") as file:
        for _ in range(0, words, 10):
            file.write(" ".join(known[int(WORDS * rng.random() ** 3)] for _ in range(10)) + "\n")


def run(job: Callable[..., None], options: argparse.Namespace, folder: str) -> Result:
    """Run one job once."""
    stamps = Stamps(os.path.join(folder, "stamps"))
    Path(stamps.path).unlink(missing_ok=True)
    env = fn.Environment(parallelism=max(options.workers, 1))
    job(env, stamps, options)
    own_cpu = time.process_time()
    env.execute(options.workers)
    own_cpu = time.process_time() - own_cpu
    seconds, cpu, records = stamps.read()
    if records != options.records:
        sys.exit(f"{records} records arrived, not {options.records}")
    # With workers=0 the stamps are this process's own.
    cpu += own_cpu if options.workers else 0.0
    return {"records_per_s": records / seconds, "cpu_ns_per_record": cpu / records * 1e9}


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run the jobs in turn, so that whatever disturbs the machine disturbs both; yield a row for each job."""
    jobs = {"reduce": reduce_job, "words": words_job}
    chosen = {name: job for name, job in jobs.items() if options.job in (None, name)}
    runs: dict[str, list[Result]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory() as folder:
        if "words" in chosen:
            options.text = os.path.join(folder, "text")
            write_text(Path(options.text), options.records)
        for _ in range(options.repeat):
            for name, job in chosen.items():
                runs[name].append(run(job, options, folder))
    for name, results in runs.items():
        yield {
            "job": name,
            "workers": options.workers,
            "records": options.records,
            "repeat": options.repeat,
            **{
                f"{what}{suffix}": of([result[what] for result in results])
                for what in ("records_per_s", "cpu_ns_per_record")
                for suffix, of in (("", statistics.median), ("_min", min), ("_max", max))
            },
        }


def show(row: dict[str, Any]) -> str:
    """Write a row for people."""
    rate, slowest, fastest = (row[f"records_per_s{suffix}"] / 1e6 for suffix in ("", "_min", "_max"))
    cpu, least, most = (row[f"cpu_ns_per_record{suffix}"] for suffix in ("", "_min", "_max"))
    return (
        f"{row['job']:8} {rate:6.2f} M records/s [{slowest:.2f}-{fastest:.2f}]"
        f"   {cpu:5.0f} CPU-ns a record [{least:.0f}-{most:.0f}]"
        f"   {row['workers']} workers, {row['records']} records, median of {row['repeat']}"
    )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=["reduce", "words"], help="only this one")
    parser.add_argument("--records", type=int, default=4_000_000, help="ints, or words; a multiple of 10")
    parser.add_argument("--workers", type=int, default=2, help="worker processes; 0: all in this one")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--itemgetter", action="store_true", help="key by operator.itemgetter(0) instead of a lambda")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each job")
    parser.add_argument("--smoke", action="store_true", help="once, with few records: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.repeat = 10_000, 1
    for row in measure(options):
        print(json.dumps(row) if options.json else show(row))


if __name__ == "__main__":
    main()
