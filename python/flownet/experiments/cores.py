"""Keeps runs of one host from disturbing each other: each holds the cores it uses, and waits until they are free.

Spark's slots do not do that: they may be more than the host has cores, a run may use several, and several executors may
share a host. So the cores of a host are files, locked by whoever uses them; the system unlocks those of a process that
dies.

# Invariants
- I1: runs that hold cores hold no more of them together than the host has.
- I2: cores are taken by one run at a time, all that it needs, so that no two wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


def count() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def reserved(wanted: int) -> Iterator[None]:
    """Hold so many cores of this host, all of them if it has fewer, and wait until they are free."""
    folder = Path(tempfile.gettempdir()) / f"flownet-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as held:
        with _locked(folder / "turn"):
            for core in _taken(folder, min(max(wanted, 1), count())):
                held.callback(os.close, core)
        yield


def _taken(folder: Path, wanted: int) -> list[int]:
    taken = list[int]()
    free = list(range(count()))
    try:
        while True:
            for core in tuple(free):
                if len(taken) == wanted:
                    return taken
                if (lock := _try_lock(folder / f"core-{core}")) is not None:
                    taken.append(lock)
                    free.remove(core)
            if len(taken) == wanted:
                return taken
            time.sleep(_SECONDS_BETWEEN_TRIES)
    except BaseException:
        for lock in taken:
            os.close(lock)
        raise


def _try_lock(path: Path) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


_SECONDS_BETWEEN_TRIES = 0.005
