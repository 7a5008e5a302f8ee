"""How long rows take through a keyed exchange, while a million a second do: from where they are made to a sink.

Two subtasks make a batch each millisecond, whose rows carry the time at which they were made. They go by key, ten
thousand of them, and what the last row of each key in a batch says comes to a sink, which looks at the clock. Latencies
are those of these rows, with a buffer timeout of a millisecond; workers are processes, 0 is this one alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import flownet as fn

SUBTASKS = 2
KEYS = 10_000
WARM_UP_S = 1.0
SCHEMA = {"key": "int64", "size": "int64", "price": "float64", "made_ns": "int64"}


class Paced:
    """Makes the rows of one subtask: as many in each millisecond."""

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate, self.seconds = rate, seconds

    def __call__(self, subtask: int, subtasks: int) -> pa.RecordBatchReader:
        """Make them."""
        draw, rows = np.random.default_rng(subtask), self.rate // subtasks // 1000
        size, price = draw.integers(0, 1000, rows), draw.random(rows)

        def batches() -> Any:
            begun = time.monotonic()
            for number in range(int(self.seconds * 1000)):
                left = begun + number / 1000 - time.monotonic()
                if left > 0:
                    time.sleep(left)
                columns = [draw.integers(0, KEYS, rows), size, price, np.full(rows, time.monotonic_ns())]
                yield pa.record_batch(columns, names=list(SCHEMA))

        schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in SCHEMA.items()])
        return pa.RecordBatchReader.from_batches(schema, batches())


class Latencies(fn.Sink[pa.RecordBatch]):
    """Keeps how long rows took, and writes it down in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        """Begin."""
        self.path, self.found = self.folder / f"{ctx.subtask}.npy", list[Any]()
        self.counts_from = time.monotonic() + WARM_UP_S

    def write(self, records: list[pa.RecordBatch]) -> None:
        """Look at the clock."""
        if time.monotonic() > self.counts_from:
            self.found += [time.monotonic_ns() - batch["made_ns"].to_numpy() for batch in records]

    def flush(self) -> None:
        """Write down."""
        np.save(self.path, np.concatenate(self.found))


def measured(rate: int, seconds: float, workers: int) -> dict[str, float]:
    """Run once: percentiles in milliseconds, and what was reached of the rate."""
    with tempfile.TemporaryDirectory() as folder:
        env = fn.Environment(parallelism=SUBTASKS, buffer_timeout="1ms")
        rows = env.from_arrow(Paced(rate, WARM_UP_S + seconds), schema=SCHEMA)
        rows.key_by("key").running_agg(made_ns=fn.last("made_ns")).sink_to(Latencies(Path(folder)))
        result = env.execute(workers=workers)
        found = np.concatenate([np.load(path) for path in Path(folder).iterdir()]) / 1e6
    percentiles = {f"p{percent:g}": float(np.percentile(found, percent)) for percent in (50, 99, 99.9, 100)}
    (source,) = (task for task in result.tasks if task.name.startswith("from_arrow"))
    return {**percentiles, "million rows/s": source.rows_out / result.seconds / 1e6}


def main() -> None:
    """Run rounds, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a little, to see that it runs")
    options = parser.parse_args()
    if options.smoke:
        options.rate, options.seconds, options.rounds = 10_000, 0.3, 1
    found: dict[int, list[dict[str, float]]] = {workers: [] for workers in options.workers}
    for _ in range(options.rounds):
        for workers, results in found.items():
            results.append(measured(options.rate, options.seconds, workers))
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for workers, results in found.items():
        shown = []
        for name in results[0]:
            values = [result[name] for result in results]
            shown.append(f"{name} {statistics.median(values):.2f} [{min(values):.2f}-{max(values):.2f}]")
        print(f"{workers} workers: " + ", ".join(shown))


if __name__ == "__main__":
    main()
