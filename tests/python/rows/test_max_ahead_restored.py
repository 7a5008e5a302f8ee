"""A bound for clocks that run ahead holds behind a stop without drain and at another parallelism."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flownet as fn

from .halves import stop_on_the_way

DAY = 86_400_000
ROWS = 20_000
SCHEMA = pa.schema([("key", pa.int64()), ("ms", pa.int64())])


def at(row: int) -> int:
    """Ten rows a second, of which the clock of one in a hundred is days ahead."""
    return 1_000_000_000_000 + row * 100 + (DAY * (1 + row % 7) if row % 100 == 50 else 0)


class Slowly:
    """The rows of a subtask, slowly, so that checkpoints and watermarks come in between."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def __call__(self, subtask: int, subtasks: int) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, ROWS, 200):
                rows = [row for row in range(start, start + 200) if row % subtasks == subtask]
                yield pa.record_batch([[row % 5 for row in rows], [at(row) for row in rows]], schema=SCHEMA)
                time.sleep(self.pause_s)

        return pa.RecordBatchReader.from_batches(SCHEMA, batches())


@pytest.mark.parametrize("parallelism", [1, 3])
def test_no_row_is_late_behind_a_restore(parallelism: int, tmp_path: Path) -> None:
    def job(parallelism: int, pause_s: float) -> tuple[fn.Environment, Any]:
        env = fn.Environment(parallelism=parallelism)
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        source = env.from_arrow(Slowly(pause_s), schema=SCHEMA).set_parallelism(2).uid("source")
        timed = source.assign_timestamps("ms", delay="10s", max_ahead="1h").set_parallelism(2).uid("times")
        counts = timed.key_by("key").window(fn.Tumbling("10s")).agg(n=fn.count()).uid("counts")
        return env, counts.collect()

    env, before = job(2, 0.1)
    stop_on_the_way(env, checkpoints=10)
    env, after = job(parallelism, 0.02)
    result = env.execute()
    assert result.resumed_from is not None
    assert sum(task.late_records for task in result.tasks) == 0
    # Windows behind the last checkpoint come twice, with the same count.
    windows = {
        (row["key"], row["window_start"]): row["n"]
        for collected in (before, after)
        for row in collected.to_arrow().to_pylist()
    }
    assert sum(windows.values()) == ROWS
    assert before.to_arrow().num_rows > 0
