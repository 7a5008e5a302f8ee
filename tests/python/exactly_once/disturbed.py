"""What the tests of checkpoints share: a failure in the middle of a job, and what files say in the end."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Generic, TypeVar

import flownet as fn
from flownet import errors

T = TypeVar("T")


class FailsOnce(Generic[T]):
    """Raises when it is given a record for the first time in all runs."""

    def __init__(self, record: T, mark: Path) -> None:
        self.record, self.mark = record, mark

    def __call__(self, record: T) -> T:
        if record == self.record and not self.mark.exists():
            self.mark.touch()
            raise ValueError("once")
        return record


def lines(folder: Path) -> list[str]:
    """Return the lines of the text files of a folder, in order."""
    return sorted(line for file in folder.glob("*.txt") for line in file.read_text().splitlines())


def run_until(env: fn.Environment, workers: int, checkpoints: int, *, abruptly: bool = True) -> None:
    """Run a job until so many checkpoints were made, unless it ends before; end it as if it was killed, or stop it."""
    with env.execute_async(workers) as running:
        while (status := running.status()).checkpoints_made < checkpoints and status.state != "ended":
            time.sleep(0.002)
        if abruptly:
            running.cancel()
        else:
            running.stop(drain=False)
        # It may have come to its end before.
        with contextlib.suppress(errors.CancelledError):
            running.wait()
