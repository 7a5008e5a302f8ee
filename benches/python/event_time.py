"""What event time costs: windows by it beside those of the wall clock, windows that slide, sessions, joins by interval.

Every job makes its records the same way, with a map, and counts what comes out. All run once in each round, in turn, so
that whatever disturbs the machine disturbs all: believe the ratios, which are those of one round, as medians over the
rounds. CPU time is that of the process, or of the workers and this process, while the job runs.

``tumbling``     windows of a minute by the wall clock, counted by key
``event``        the same by event time, with the operator that assigns it
``sliding``      a minute by the second: a record is of sixty windows, and each key has a result for each second
``bursts``       as ``event``, over keys that come and go
``sessions``     over the same: ten records, then nothing for ten seconds
``interval``     two streams joined by key, each record with the one of its millisecond; in two worker processes
``group``        a count by key over changes, each of which changes a row of the result
``regroup``      a sum over these counts: each record changes a row of its input
``join``         a regular join by key of two tables that only grow, each row with the one of its millisecond
``async``        a coroutine function that sleeps for 10 ms for each of a hundredth of the records, 100 at a time
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import flownet as fn

KEYS = 1000
BURST_MS = 10_000
Result = dict[str, float]
Job = Callable[[fn.Environment, argparse.Namespace], None]


class Discard(fn.Sink[Any]):
    """Takes everything and keeps nothing."""

    def write(self, records: list[Any]) -> None:
        """Drop them."""


def numbers(env: fn.Environment, records: int) -> fn.Stream[int]:
    """Make one number a millisecond."""
    return env.from_iterable(lambda subtask, subtasks: range(subtask, records, subtasks))


def steady(env: fn.Environment, records: int) -> fn.Stream[tuple[int, int]]:
    """Make records of all keys in turn: one a second of each."""
    return numbers(env, records).map(lambda number: (number % KEYS, number))


def bursts(env: fn.Environment, records: int) -> fn.Stream[tuple[int, int]]:
    """Make records of one half of the keys, then of the other."""
    return numbers(env, records).map(lambda number: (number % KEYS + KEYS * (number // BURST_MS % 2), number))


def timed(stream: fn.Stream[tuple[int, int]]) -> fn.KeyedStream[Any, tuple[int, int]]:
    """Assign the times of the records."""
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    return stream.assign_timestamps_and_watermarks(strategy).key_by(0)


def windows(
    source: Callable[..., fn.Stream[tuple[int, int]]], window: Callable[[], Any], *, by_event_time: bool = True
) -> Job:
    """Count by key and window."""

    def describe(env: fn.Environment, options: argparse.Namespace) -> None:
        records = source(env, options.records)
        keyed = timed(records) if by_event_time else records.key_by(0)
        keyed.window(window()).count().sink_to(Discard())

    return describe


def interval(env: fn.Environment, options: argparse.Namespace) -> None:
    """Join two streams, each of half of the records."""
    left, right = (timed(steady(env, options.records // 2)) for _ in range(2))
    left.interval_join(right).between("0ms", "1ms").process(lambda one, other: (one, other)).sink_to(Discard())


def group(env: fn.Environment, options: argparse.Namespace) -> None:
    """Count by key, with a change of the result for each record."""
    steady(env, options.records).as_changelog().key_by(0).count().to_stream().sink_to(Discard())


def regroup(env: fn.Environment, options: argparse.Namespace) -> None:
    """Sum the counts of ten keys each: updates come in, and updates go out."""
    counts = steady(env, options.records).as_changelog().key_by(0).count()
    counts.key_by(lambda count: count[0] // 10).sum(1).to_stream().sink_to(Discard())


def join(env: fn.Environment, options: argparse.Namespace) -> None:
    """Join two tables, each of half of the records."""
    left, right = (steady(env, options.records // 2).as_changelog() for _ in range(2))
    left.join(right).where(1).equal_to(1).apply().to_stream().sink_to(Discard())


ASLEEP_SECONDS, CAPACITY, OF_RECORDS = 0.01, 100, 100


async def asleep(number: int) -> int:
    """Take as long as somebody over the network would."""
    await asyncio.sleep(ASLEEP_SECONDS)
    return number


def calls(env: fn.Environment, options: argparse.Namespace) -> None:
    """Call for a part of the records."""
    numbers(env, options.records // OF_RECORDS).map_async(asleep, capacity=CAPACITY).sink_to(Discard())


JOBS: dict[str, tuple[Job, int]] = {
    "tumbling": (windows(steady, lambda: fn.Tumbling("60s", time="processing"), by_event_time=False), 0),
    "event": (windows(steady, lambda: fn.Tumbling("60s")), 0),
    "sliding": (windows(steady, lambda: fn.Sliding("60s", "1s")), 0),
    "bursts": (windows(bursts, lambda: fn.Tumbling("60s")), 0),
    "sessions": (windows(bursts, lambda: fn.Session("5s")), 0),
    "interval": (interval, 2),
    "group": (group, 0),
    "regroup": (regroup, 0),
    "join": (join, 0),
    "async": (calls, 0),
}
"""What to run, and in how many worker processes."""

RATIOS = [("event", "tumbling"), ("sliding", "event"), ("sessions", "bursts")]
"""How fast the first is, as part of the second, by CPU time."""


def cpu_seconds() -> float:
    """CPU time of this process and of its workers that have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in usage)


def run(name: str, options: argparse.Namespace) -> Result:
    """Run one job once."""
    job, workers = JOBS[name]
    env = fn.Environment(parallelism=max(1, workers))
    job(env, options)
    began, cpu = time.perf_counter(), cpu_seconds()
    result = env.execute(workers)
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    if workers:
        # Not the start of the workers: the time that the job's busiest task took.
        seconds = max(task.records_in / task.records_per_second for task in result.tasks if task.records_per_second)
    records = options.records // (OF_RECORDS if name == "async" else 1)
    return {"seconds": seconds, "records_per_s": records / seconds, "cpu_ns_per_record": cpu / records * 1e9}


def least_seconds(options: argparse.Namespace) -> float:
    """How long the calls take if as many are under way as may be, and nothing else takes any time."""
    return float(options.records // OF_RECORDS * ASLEEP_SECONDS / CAPACITY)


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run all jobs in turn; yield a row for each job, then one for each ratio."""
    chosen = [name for name in JOBS if not options.job or name in options.job]
    rounds = [{name: run(name, options) for name in chosen} for _ in range(options.repeat)]
    for name in chosen:
        results = [each[name] for each in rounds]
        row = {"job": name, **{what: spread([result[what] for result in results]) for what in results[0]}}
        if name == "async":
            # At least, with all calls under way that may be.
            row["of_least"] = spread([result["seconds"] / least_seconds(options) for result in results])
        yield row
    for one, other in RATIOS:
        if one in chosen and other in chosen:
            what = "cpu_ns_per_record"
            yield {
                "ratio": f"{one} / {other}",
                "speed": spread([each[other][what] / each[one][what] for each in rounds]),
            }


def spread(values: list[float]) -> list[float]:
    """Median, least and most."""
    return [statistics.median(values), min(values), max(values)]


def show(row: dict[str, Any]) -> str:
    """Write a row for people."""
    if "ratio" in row:
        median, least, most = row["speed"]
        return f"{row['ratio']:20} {median:.2f} [{least:.2f}-{most:.2f}] of its speed"
    rate, cpu = row["records_per_s"], row["cpu_ns_per_record"]
    of_least = f"   {row['of_least'][0]:.2f} times as long as its calls have to" if "of_least" in row else ""
    return (
        f"{row['job']:10} {rate[0] / 1e6:6.2f} M records/s [{rate[1] / 1e6:.2f}-{rate[2] / 1e6:.2f}]"
        f"   {cpu[0]:6.0f} CPU-ns a record [{cpu[1]:.0f}-{cpu[2]:.0f}]{of_least}"
    )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=list(JOBS), action="append", help="only this one; may be repeated")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    parser.add_argument("--smoke", action="store_true", help="once, with few records: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.repeat = 20_000, 1
    print(f"{options.records} records, medians of {options.repeat} on {os.cpu_count()} cores")
    for row in measure(options):
        print(json.dumps(row) if options.json else show(row), flush=True)


if __name__ == "__main__":
    main()
