"""What checkpoints cost: throughput with one a second beside none, how long tasks stand still, how soon a job is back.

All jobs run in two worker processes and keep their checkpoints in a folder that is deleted afterwards. The first three
run once without checkpoints and once with one a second in each round, by turns: believe the ratios, as medians over the
rounds. The rate is that of the task that took the most records. A run ends with a checkpoint more, or two, for which
the task waits; so that these are few of all, and one a second is what is measured, it has to last for several seconds.

``words``     the words of real text, counted
``windows``   counts by event time, a minute by key
``keys``      running sums of 450,000 keys
``latency``   1,000 records a second through an exchange: how old they are where they arrive
``state``     a million keys, windows of a million keys, and a million Python dicts, of which 1 % change: how long the
              task stands still, and what is written
``pressure``  a slow function with all queues full before it: how long a checkpoint takes, aligned and unaligned
``kill``      a worker is killed; from then to the first output of the next attempt
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import flownet as fn

WORKERS = 2
Describe = Callable[[fn.Environment, int], None]


class Discard(fn.Sink[Any]):
    """Takes everything and keeps nothing."""

    def write(self, records: list[Any]) -> None:
        """Drop them."""


def numbers(env: fn.Environment, records: int) -> fn.Stream[int]:
    """Make numbers; a failure is not part of what is measured, so nothing has to be repeated."""
    return env.from_iterable(lambda subtask, subtasks: range(subtask, records, subtasks))


def words(env: fn.Environment, records: int) -> None:
    """Count the words of Python's own modules, read again and again."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in Path(os.__file__).parent.glob("*.py")]
    lines = [line for text in texts for line in text.splitlines()]
    spread_words = numbers(env, records // 4).flat_map(lambda number: lines[number % len(lines)].split())
    spread_words.key_by(lambda word: word).count().sink_to(Discard())


def windows(env: fn.Environment, records: int) -> None:
    """Count a thousand keys by the minute."""
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    timed = numbers(env, records).map(lambda number: (number % 1000, number))
    timed.assign_timestamps_and_watermarks(strategy).key_by(0).window(fn.Tumbling("60s")).count().sink_to(Discard())


def keys(env: fn.Environment, records: int) -> None:
    """Sum by 450,000 keys."""
    pairs = numbers(env, records).map(lambda number: (number * 7919 % 450_000, 1))
    pairs.key_by(0).reduce(lambda one, other: (one[0], one[1] + other[1])).sink_to(Discard())


THROUGHPUT: dict[str, Describe] = {"words": words, "windows": windows, "keys": keys}


def environment(storage: str | None, **settings: Any) -> fn.Environment:
    """Make an environment, with a checkpoint a second if there is a folder for them."""
    env = fn.Environment(**{"parallelism": WORKERS, **settings})
    if storage is not None:
        env.enable_checkpointing("1s", storage=storage, allow_non_replayable=True)
    return env


def throughput(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a job without and with checkpoints, by turns."""
    rounds = []
    for _ in range(options.repeat):
        without, made = rate(THROUGHPUT[name], options.records, with_checkpoints=False)
        with_them, made = rate(THROUGHPUT[name], options.records, with_checkpoints=True)
        rounds.append((without, with_them, made))
    return {
        "job": name,
        "records_per_s_without": spread([without for without, _, _ in rounds]),
        "ratio": spread([with_them / without for without, with_them, _ in rounds]),
        "checkpoints": statistics.median([made for _, _, made in rounds]),
    }


def rate(describe: Describe, records: int, *, with_checkpoints: bool) -> tuple[float, int]:
    """Run a job; records a second, and the checkpoints that it made."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(folder if with_checkpoints else None)
        describe(env, records)
        result = env.execute(WORKERS)
    return max(task.records_per_second for task in result.tasks), result.checkpoints_made


class Ages(fn.Sink[int]):
    """Writes the ages of records, in microseconds, to a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, context: fn.TaskContext) -> None:
        """Begin with none."""
        self.ages: list[int] = []

    def write(self, records: list[int]) -> None:
        """Remember how old they are."""
        now = time.monotonic_ns()
        self.ages.extend((now - sent) // 1000 for sent in records)

    def close(self) -> None:
        """Write them."""
        Path(self.path).write_text(json.dumps(self.ages))


def latency(options: argparse.Namespace) -> dict[str, Any]:
    """See how old records are behind an exchange, without and with checkpoints, by turns."""
    rounds = [[ages_of(options, with_checkpoints=each) for each in (False, True)] for _ in range(options.repeat)]
    return {
        "job": "latency",
        "p99_ms_without": spread([percentile(without, 0.99) for without, _ in rounds]),
        "p99_ms_with": spread([percentile(with_them, 0.99) for _, with_them in rounds]),
        "ratio": spread([percentile(with_them, 0.99) / percentile(without, 0.99) for without, with_them in rounds]),
    }


def ages_of(options: argparse.Namespace, *, with_checkpoints: bool) -> list[int]:
    """Run the job; ages in microseconds, but for those of the first second."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(folder if with_checkpoints else None, parallelism=1, buffer_timeout="1ms")
        sent = env.from_iterable(lambda *_: range(options.paced), rate_limit=1000.0).map(lambda _: time.monotonic_ns())
        counted = sent.key_by(lambda stamp: stamp % 1000).map(lambda stamp: stamp)
        counted.sink_to(Ages(os.path.join(folder, "ages")))
        env.execute(WORKERS)
        ages: list[int] = json.loads(Path(folder, "ages").read_text())
        return ages[min(1000, options.paced // 2) :]


def percentile(ages: list[int], share: float) -> float:
    """One of them, in milliseconds."""
    return sorted(ages)[int(share * (len(ages) - 1))] / 1000


def first_all_then_some(keys: int) -> Iterator[int]:
    """Make every key once, and then one in a hundred again and again."""
    yield from range(keys)
    for _ in range(6):
        for key in range(0, keys, 100):
            if key % (keys // 10) == 0:
                time.sleep(0.05)
            yield key


def keyed_counts(stream: fn.Stream[int]) -> None:
    """Count by key."""
    stream.key_by(lambda key: key).count().sink_to(Discard())


def keyed_dicts(stream: fn.Stream[int]) -> None:
    """Keep the last dict of each key."""
    dicts = stream.map(lambda key: {"key": key, "name": f"user {key}", "seen": key * 1000, "score": key / 7})
    dicts.key_by("key").reduce(lambda _, last: last).sink_to(Discard())


def keyed_windows(stream: fn.Stream[int], window: Any) -> None:
    """Count by key in windows that are open until the end."""
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda _: 0)
    stream.assign_timestamps_and_watermarks(strategy).key_by(lambda key: key).window(window).count().sink_to(Discard())


STATES: dict[str, Callable[[fn.Stream[int]], None]] = {
    "counts": keyed_counts,
    "windows": partial(keyed_windows, window=fn.Tumbling("1d")),
    "sessions": partial(keyed_windows, window=fn.Session("1d")),
    "dicts": keyed_dicts,
}


def state(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """See how long the task with all the keys stands still."""
    with tempfile.TemporaryDirectory() as folder:
        env = environment(folder, parallelism=1)
        STATES[name](env.from_iterable(lambda *_: first_all_then_some(options.keys)))
        result = env.execute(WORKERS)
    whole = max(checkpoint.bytes for checkpoint in result.checkpoints)
    last = result.checkpoints[-1]
    return {
        "job": f"state, {options.keys} {name}",
        "megabytes": whole / 1e6,
        "stood_still_ms": spread([1000 * each.stood_still_seconds for each in result.checkpoints[-5:]]),
        "written_megabytes": spread([each.written_bytes / 1e6 for each in result.checkpoints[-5:]]),
        "checkpoint_ms": 1000 * last.seconds,
    }


def slowly(number: int) -> int:
    """Take some 0.2 ms."""
    time.sleep(0.0001)
    return number


def pressure(options: argparse.Namespace) -> dict[str, Any]:
    """See how long checkpoints take while everything before a slow function is full."""
    row: dict[str, Any] = {"job": "pressure"}
    for name, unaligned in [("aligned", False), ("unaligned", True)]:
        taken = [one for _ in range(options.repeat) for one in seconds_under_pressure(options, unaligned=unaligned)]
        row[f"{name}_ms"] = spread([1000 * seconds for seconds in taken])
    return row


def seconds_under_pressure(options: argparse.Namespace, *, unaligned: bool) -> list[float]:
    """Run the job until it has made a few checkpoints."""
    with tempfile.TemporaryDirectory() as folder:
        env = fn.Environment(parallelism=WORKERS)
        env.enable_checkpointing("500ms", storage=folder, allow_non_replayable=True, unaligned=unaligned)
        numbers(env, 100 * options.records).rebalance().map(slowly).sink_to(Discard())
        with env.execute_async(WORKERS) as job:
            while len(made := job.status().checkpoints) < (4 if unaligned else 1):
                time.sleep(0.01)
            job.cancel()
    # The first finds queues that are still being filled.
    return [checkpoint.seconds for checkpoint in made[1 if unaligned else 0 :]]


class Once:
    """Kills its process, the first time that it has seen so many records."""

    def __init__(self, records: int, path: str) -> None:
        self.left, self.path = records, path

    def __call__(self, record: int) -> int:
        """Hand on, or kill."""
        self.left -= 1
        if self.left == 0 and not os.path.exists(self.path):
            Path(self.path).write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
        return record


class FirstAfter(fn.Sink[int]):
    """Writes down when it first gets something after the kill."""

    def __init__(self, killed: str, path: str) -> None:
        self.killed, self.path = killed, path

    def open(self, context: fn.TaskContext) -> None:
        """See whether it is before the kill."""
        self.is_after = os.path.exists(self.killed) and not os.path.exists(self.path)

    def write(self, records: list[int]) -> None:
        """Write down when the first came."""
        if self.is_after:
            Path(self.path).write_text(str(time.monotonic()))
            self.is_after = False


def kill(options: argparse.Namespace) -> dict[str, Any]:
    """Kill a worker and see how long it takes until something comes out again."""
    return {"job": "kill", "seconds": spread([back_after(options) for _ in range(options.repeat)])}


def back_after(options: argparse.Namespace) -> float:
    """Run the job; seconds from the kill to the first output of the next attempt."""
    with tempfile.TemporaryDirectory() as folder:
        killed, back = os.path.join(folder, "killed"), os.path.join(folder, "back")
        env = environment(os.path.join(folder, "checkpoints"), parallelism=1)
        paced = env.from_collection(range(options.paced), rate_limit=1000.0)
        counted = paced.key_by(lambda number: number % 100).map(Once(options.paced * 2 // 3, killed))
        counted.sink_to(FirstAfter(killed, back))
        env.execute(WORKERS)
        return float(Path(back).read_text()) - float(Path(killed).read_text())


def spread(values: list[float]) -> list[float]:
    """Median, least and most."""
    return [statistics.median(values), min(values), max(values)]


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run everything that was chosen; yield a row for each."""
    jobs: dict[str, list[Callable[[], dict[str, Any]]]] = {
        **{name: [partial(throughput, name, options)] for name in THROUGHPUT},
        "latency": [partial(latency, options)],
        "state": [partial(state, name, options) for name in STATES],
        "pressure": [partial(pressure, options)],
        "kill": [partial(kill, options)],
    }
    for name, runs in jobs.items():
        if not options.job or name in options.job:
            yield from (run() for run in runs)


def show(row: dict[str, Any]) -> str:
    """Write a row for people."""
    told = (
        f"{what} {value[0]:.2f} [{value[1]:.2f}-{value[2]:.2f}]" if isinstance(value, list) else f"{what} {value:.1f}"
        for what, value in row.items()
        if what != "job"
    )
    return f"{row['job']:24} {'   '.join(told)}"


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--job", choices=[*THROUGHPUT, "latency", "state", "pressure", "kill"], action="append", help="only this"
    )
    parser.add_argument("--records", type=int, default=24_000_000, help="of each throughput job")
    parser.add_argument("--paced", type=int, default=6_000, help="records of the jobs that get 1,000 a second")
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the state")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    parser.add_argument("--smoke", action="store_true", help="once, with few records: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.paced, options.keys, options.repeat = 20_000, 1_500, 1_000, 1
    print(f"{options.records} records, medians of {options.repeat} on {os.cpu_count()} cores")
    for row in measure(options):
        print(json.dumps(row) if options.json else show(row), flush=True)


if __name__ == "__main__":
    main()
