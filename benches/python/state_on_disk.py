"""What state costs that is larger than the memory for it: rate and memory of jobs with state in memory and on disk.

Each job runs in a process of its own, without workers, twice through all keys in an order without a pattern, so that on
disk nearly every record finds its key there: the worst there is. ``--hot`` takes nine of ten records from the first
hundredth of the keys. The rate is of all records, the memory is the most that the process had in RAM beyond what it had
before the job; pages that the system caches of the file are not in it.

``--checkpoint 30s`` runs another job, on disk alone, which keeps a text of ``--value-bytes`` for each key: it makes all
of them and is told to stop, and another process goes on from the checkpoint and changes each. What it takes to go on is
the CPU time of all threads, and the most memory, until the first record has come. With ``--restore memory`` it goes on
in memory instead. State and checkpoints lie in ``--folder`` until the end: have room for four times the state.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flownet as fn

BATCH = 1000


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


class KeepsText(fn.KeyedProcessFunction[int, int, Any]):
    """A text for each key."""

    def __init__(self, value_bytes: int) -> None:
        self.rest = "." * value_bytes

    def process(self, record: int, ctx: fn.ProcessContext[int]) -> None:
        """Make it, or make it anew; a second record of a key has to find the first one's."""
        is_found = "text" in ctx.state
        if is_found is not (record < 0):
            raise ValueError(f"the text of key {abs(record)} is {'there already' if is_found else 'gone'}")
        ctx.state["text"] = f"{record}{self.rest}"


def run(job: str, keys: int, is_hot: bool, memory: str | None) -> dict[str, float]:
    """Run one job here."""
    settings: dict[str, Any] = {} if memory is None else {"state_backend": "disk", "state_memory": memory}
    env = fn.Environment(**settings)
    source = env.from_iterable(lambda subtask, subtasks: records(keys, is_hot))
    if job in ("tumbling", "sessions"):
        strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
        source = source.assign_timestamps_and_watermarks(strategy)
    stream = source.key_by(0)
    results: Any
    if job == "dicts":
        results = stream.process(Keeps())
    elif job == "tumbling":
        # One window has all keys.
        results = stream.window(fn.Tumbling(f"{2 * keys}ms", time="event")).count()
    elif job == "sessions":
        results = stream.window(fn.Session(f"{2 * keys}ms", time="event")).count()
    else:
        results = stream.count()
    results.filter(lambda result: False).print()
    before, began = resident_mib(), time.perf_counter()
    env.execute()
    return {"rate": 2 * keys / (time.perf_counter() - began), "mib": resident_mib() - before}


def run_with_checkpoints(keys: int, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run the job of texts here: with nothing to go on from it makes them, and stops; else it goes on, and ends."""
    goes_on = (folder / "checkpoints").exists()
    last = 2 * keys if goes_on else keys
    (folder / "state").mkdir(exist_ok=True)

    def read(position: int | None) -> Iterator[tuple[int, list[int]] | None]:
        for first in range(position or 0, last, BATCH):
            behind = min(first + BATCH, last)
            yield behind, [text_record(number, keys) for number in range(first, behind)]
        while not goes_on:
            yield None  # One that comes to its end has nothing to go on with.

    on_disk: dict[str, Any] = {
        "state_backend": "disk",
        "state_memory": given.memory,
        "state_dir": str(folder / "state"),
    }
    is_in_memory = goes_on and given.restore == "memory"
    env = fn.Environment(**({} if is_in_memory else on_disk), restart="none", stop_timeout="1h")
    env.enable_checkpointing(given.checkpoint, storage=str(folder / "checkpoints"), timeout="1h")
    stream = env.from_generator(read, batches=True).key_by(abs)
    stream.process(KeepsText(given.value_bytes)).print()
    before, began, began_cpu = resident_mib(), time.perf_counter(), time.process_time()
    with env.execute_async() as job:
        waited_s = waited_cpu_s = waited_mib = 0.0
        has_all = False
        while not has_all and (status := job.status()).state != "ended":
            now, taken = time.perf_counter() - began, status.tasks[-1].records_in
            if not taken:
                waited_s, waited_cpu_s, waited_mib = now, time.process_time() - began_cpu, resident_mib() - before
            has_all = taken >= keys
            time.sleep(0.05)
        # A short one has ended between two looks.
        now = time.perf_counter() - began
        if not goes_on:
            job.stop(drain=False)
        made = job.wait().checkpoints
    return {
        "rate": keys / (now - waited_s),
        "mib": resident_mib() - before,
        "first_record_s": waited_s,
        "first_record_cpu_s": waited_cpu_s,
        "first_record_mib": waited_mib,
        "checkpoints": len(made),
        "checkpoint_s": [each.seconds for each in made],
        "stood_still_s": [each.stood_still_seconds for each in made],
        "written_mb": [each.written_bytes / 1e6 for each in made],
        "state_mb": made[-1].bytes / 1e6,
    }


def text_record(number: int, keys: int) -> int:
    """Make the record of a key; one below zero says that the key came before."""
    key = 1 + number * 7919 % keys
    return key if number < keys else -key


def resident_mib() -> float:
    """Return the most that this process had in RAM so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_own_process(*arguments: str) -> dict[str, Any]:
    """Run a job in another process."""
    command = [sys.executable, str(Path(__file__)), *arguments]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return told


def compare(keys: int, memory: str, given: argparse.Namespace) -> None:
    """Run the jobs in memory and on disk."""
    print(f"{keys:,} keys, {2 * keys:,} records; on disk with {memory} of memory")
    for job in ("counts", "dicts", "tumbling", "sessions"):
        common = ["--keys", str(keys), *["--hot"] * given.hot]
        here, there = (of_own_process(*common, "--one", job, of) for of in ("none", memory))
        print(
            f"{job}: in memory {here['rate']:,.0f} records/s, {here['mib']:.0f} MiB; "
            f"on disk {there['rate']:,.0f} records/s ({there['rate'] / here['rate']:.2f}), {there['mib']:.0f} MiB"
        )


def compare_with_checkpoints(keys: int, memory: str, given: argparse.Namespace) -> None:
    """Run the job of texts, and go on with it."""
    print(f"{keys:,} texts of {given.value_bytes:,} bytes, {memory} of memory, a checkpoint each {given.checkpoint}")
    common = ["--keys", str(keys), "--memory", memory, "--value-bytes", str(given.value_bytes)]
    common += ["--restore", given.restore]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        kept_mb = 0.0
        for phase in ("made", "gone on"):
            told = of_own_process(*common, "--checkpoint", given.checkpoint, "--one", "texts", folder)
            cpu_s = told["first_record_cpu_s"]
            print(
                f"{phase}: first record after {told['first_record_s']:.1f} s, {cpu_s:.2f} CPU-s "
                f"({kept_mb / max(cpu_s, 0.01):,.0f} MB a CPU-s) and {told['first_record_mib']:.0f} MiB; "
                f"{told['rate']:,.0f} records/s, "
                f"{told['mib']:.0f} MiB; {told['checkpoints']} checkpoints of up to {told['state_mb']:,.0f} MB",
                *(f"{what} {spread(told[what])}" for what in ("checkpoint_s", "stood_still_s", "written_mb")),
                sep="; ",
                flush=True,
            )
            kept_mb = told["state_mb"]


def spread(values: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


def main() -> None:
    """Run all jobs, and say what they did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--memory", default="32MiB", help="state_memory of the jobs on disk")
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--checkpoint", metavar="INTERVAL", help="the job of texts, with a checkpoint so often")
    parser.add_argument("--value-bytes", type=int, default=1000, help="length of its texts")
    parser.add_argument("--restore", choices=("disk", "memory"), default="disk", help="where it goes on")
    parser.add_argument("--folder", help="where its state and checkpoints lie; default: that of temporary files")
    parser.add_argument("--smoke", action="store_true", help="a tiny size, to see that it runs")
    parser.add_argument("--one", nargs=2, metavar=("JOB", "WITH"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        job, of = given.one
        if job == "texts":
            told = run_with_checkpoints(given.keys, Path(of), given)
        else:
            told = run(job, given.keys, given.hot, None if of == "none" else of)
        print(json.dumps(told))
        return
    keys, memory = (2000, "64KiB") if given.smoke else (given.keys, given.memory)
    if given.checkpoint is None:
        compare(keys, memory, given)
    if given.smoke and given.checkpoint is None:
        given.checkpoint = "50ms"
    if given.checkpoint is not None:
        compare_with_checkpoints(keys, memory, given)


if __name__ == "__main__":
    main()
