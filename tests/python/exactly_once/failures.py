"""What the tests of checkpoints share: a failure in the middle of a job, and what files say in the end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import flownet as fn
from flownet import errors

T = TypeVar("T")


class FailsOnce(Generic[T]):
    """Raises when it is given a record for the first time in all runs.

    Where it is told where checkpoints are, it raises at a later record, when two have come to count meanwhile: the
    second was taken behind the first, so it has of the records before.
    """

    def __init__(self, record: T, mark: Path, checkpoints: Path | None = None) -> None:
        self.record, self.mark, self.checkpoints = record, mark, checkpoints
        self.seen: int | None = None

    def __call__(self, record: T) -> T:
        if (record != self.record and self.seen is None) or self.mark.exists():
            return record
        if self.checkpoints is None or self._two_count(self.checkpoints):
            self.mark.touch()
            raise ValueError("once")
        # Between records checkpoints get on; a busy machine may need longer for one.
        time.sleep(0.02)
        return record

    def _two_count(self, checkpoints: Path) -> bool:
        counted = newest_line(checkpoints)
        self.seen = counted if self.seen is None else self.seen
        return counted >= self.seen + 2


def newest_line(checkpoints: Path) -> int:
    """Number of the last line of the log with what counts: of line 0, which says who writes it, or of a checkpoint."""
    lines = checkpoints / "epochs"
    return max((int(line.name) for line in lines.iterdir() if line.name.isdigit()), default=0) if lines.exists() else 0


def manifests(checkpoints: Path) -> list[bytes]:
    """Read what the checkpoints of a folder are made of, of those that are not removed meanwhile."""
    found = list[bytes]()
    # Unlike glob it passes over a folder that is gone as it comes to it.
    for folder, _, names in os.walk(checkpoints):
        if "manifest" in names:
            with contextlib.suppress(FileNotFoundError):
                found.append(Path(folder, "manifest").read_bytes())
    return found


def lines(folder: Path) -> list[str]:
    """Return the lines of the text files of a folder, in order."""
    return sorted(line for file in folder.glob("*.txt") for line in file.read_text().splitlines())


def run_until(
    env: fn.Environment,
    workers: int,
    checkpoints: int,
    *,
    abruptly: bool = True,
    holds: Callable[[], bool] | None = None,
) -> None:
    """Run a job until so many checkpoints were made, unless it ends before; end it as if it was killed, or stop it.

    Where something is to hold of what they keep, it goes on until it does.
    """
    with env.execute_async(workers) as running:
        while (status := running.status()).state != "ended":
            if status.checkpoints_made >= checkpoints and (holds is None or holds()):
                break
            time.sleep(0.002)
        if abruptly:
            running.cancel()
        else:
            running.stop(drain=False)
        # It may have come to its end before.
        with contextlib.suppress(errors.CancelledError):
            running.wait()
