"""``hash()`` in partitioners. A value must have the same hash in all processes that send its records."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import CodeType
from typing import Any


class Hashing:
    """A partitioner that calls ``hash``. It cannot be loaded in a process whose hash seed may differ."""

    def __init__(self, partitioner: Callable[[Any, int], int]) -> None:
        self._partitioner = partitioner

    def __call__(self, record: Any, subtasks: int) -> int:
        """Choose the subtask of a record."""
        return self._partitioner(record, subtasks)

    def __getstate__(self) -> tuple[Callable[[Any, int], int], int]:
        return self._partitioner, os.getpid()

    def __setstate__(self, state: tuple[Callable[[Any, int], int], int]) -> None:
        self._partitioner, home = state
        if home != os.getpid() and not is_seeded():
            raise ValueError(
                "the partitioner calls hash(), and the hash of a text differs between these workers: set "
                "PYTHONHASHSEED to one number where they run, in Spark by spark.executorEnv.PYTHONHASHSEED"
            )


def calls_hash(function: object) -> bool:
    """Return whether a function, or a function inside of it, uses the name ``hash``."""
    code = getattr(function, "__code__", function)
    if not isinstance(code, CodeType):
        return False
    return "hash" in code.co_names or any(map(calls_hash, code.co_consts))


def is_seeded() -> bool:
    """Return whether ``PYTHONHASHSEED`` fixes the hash seed of this process."""
    return os.environ.get("PYTHONHASHSEED", "random").isdecimal()
