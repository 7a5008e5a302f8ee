"""What tests of rows and checkpoints share: rows that come slowly, and a failure on the way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import flownet as fn

ROWS = 40_000


class Half:
    """The rows of one of two subtasks: slowly, so that checkpoints come in between.

    A job that is to be stopped on the way takes a longer pause: it takes ten seconds to its end, on any machine.
    """

    def __init__(self, pause_s: float = 0.005) -> None:
        self.pause_s = pause_s

    def __call__(self, subtask: int, subtasks: int) -> Any:
        import pyarrow

        def batches() -> Any:
            for start in range(0, ROWS, 400):
                numbers = [n for n in range(start, start + 400) if n % subtasks == subtask]
                yield pyarrow.record_batch({"key": [n % 100 for n in numbers], "ms": numbers, "n": numbers})
                time.sleep(self.pause_s)

        schema = pyarrow.schema([("key", pyarrow.int64()), ("ms", pyarrow.int64()), ("n", pyarrow.int64())])
        return pyarrow.RecordBatchReader.from_batches(schema, batches())


def is_checkpoint(name: str) -> bool:
    """Say whether this is a line of the log with a checkpoint.

    The first line, number 0, says only who writes it, and one that is being written has a name with a mark.
    """
    return name.isdigit() and int(name) > 0


class FailsOnce:
    """Hands batches on, and fails at one behind the middle, when there is a checkpoint, if nobody did before."""

    def __init__(self, folder: Path) -> None:
        self.mark, self.counted = folder / "failed", folder / "checkpoints" / "epochs"

    def __call__(self, batch: Any) -> Any:
        if not len(batch) or batch["n"][0].as_py() < ROWS // 2 or self.mark.exists():
            return batch
        if self.counted.exists() and any(is_checkpoint(line.name) for line in self.counted.iterdir()):
            self.mark.touch()
            raise ValueError("once")
        # A busy machine may need longer for the first one.
        time.sleep(0.05)
        return batch


class Pauses:
    """Hands batches on, each after a while."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def __call__(self, batch: Any) -> Any:
        time.sleep(self.pause_s)
        return batch


def stop_on_the_way(env: fn.Environment, checkpoints: int = 3) -> None:
    """Run a job that takes seconds until so many checkpoints were made, and stop it without draining."""
    with env.execute_async() as running:
        while running.status().checkpoints_made < checkpoints:
            time.sleep(0.01)
        running.stop(drain=False)
        running.wait()
