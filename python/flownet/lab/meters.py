"""Meters: counters in a mapped file. Tasks in the workers count, the laboratory reads, nobody waits for anybody.

They are apart from the engine on purpose: what the engine says of itself can be held against them.

Each counter is an aligned word of 8 bytes with one writer. The file also holds time zero, on the clock that all
processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from typing import NamedTuple


class Count(NamedTuple):
    """What one task has done so far; sums over its subtasks."""

    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True, slots=True)
class Meters:
    """The meters of one run.

    Parameters
    ----------
    path
        The file; `create` makes it.
    tasks
        Names of the tasks, each with its number of subtasks.
    """

    path: str
    tasks: dict[str, int]

    @classmethod
    def create(cls, path: str, tasks: dict[str, int]) -> Meters:
        """Make the file with all counters at 0."""
        words = 1 + _WORDS * sum(tasks.values())
        with open(path, "wb") as file:
            file.truncate(words * 8)
        return cls(path, tasks)

    def of(self, task: str, subtask: int = 0) -> Meter:
        """Meter of a subtask, for the worker that runs it."""
        before = list(self.tasks).index(task)
        return Meter(self.path, 1 + _WORDS * (sum(list(self.tasks.values())[:before]) + subtask))

    def start(self) -> None:
        """Make this moment time zero."""
        _words(self.path)[0] = time.monotonic_ns()

    def read(self) -> dict[str, Count]:
        """Read every counter."""
        words = _words(self.path)
        counts, first = {}, 1
        for task, subtasks in self.tasks.items():
            block = words[first : first + _WORDS * subtasks].tolist()
            counts[task] = Count(*(sum(block[offset::_WORDS]) for offset in (_IN, _OUT)))
            first += _WORDS * subtasks
        return counts

    def close(self) -> None:
        """Let go of the file in this process."""
        _MAPPED.pop(self.path, None)

    def pids(self, task: str) -> set[int]:
        """Find the processes that run subtasks of a task and have begun."""
        words = _words(self.path)
        pids = (words[self.of(task, subtask).first + _PID] for subtask in range(self.tasks[task]))
        return {pid for pid in pids if pid}


class Meter:
    """Counters of one subtask. It can be sent to a worker, where it is opened when it is first used."""

    def __init__(self, path: str, first: int) -> None:
        self.path = path
        self.first = first
        self._mapped: memoryview | None = None

    def __reduce__(self) -> tuple[type[Meter], tuple[str, int]]:
        return Meter, (self.path, self.first)

    def open(self) -> None:
        """Say that this process runs the subtask."""
        self._open()[self.first + _PID] = os.getpid()

    def take(self, size: int) -> None:
        """Count bytes that came in."""
        words = self._mapped or self._open()
        words[self.first + _IN] += size

    def give(self, size: int) -> None:
        """Count bytes that went out."""
        words = self._mapped or self._open()
        words[self.first + _OUT] += size

    def clock(self) -> float:
        """Seconds since time zero; less than 0 before it is known."""
        zero = (self._mapped or self._open())[0]
        return (time.monotonic_ns() - zero) / 1e9 if zero else -1.0

    def _open(self) -> memoryview:
        self._mapped = _words(self.path)
        return self._mapped


def _words(path: str) -> memoryview:
    """Map the file once a process; it is unmapped when the last view of it is gone."""
    view = _MAPPED.get(path)
    if view is None:
        with open(path, "r+b") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        _MAPPED[path] = view
    return view


_MAPPED: dict[str, memoryview] = {}
_WORDS = 3
_PID, _IN, _OUT = range(_WORDS)
