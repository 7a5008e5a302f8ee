"""``hash()`` in partitioners: a value must have one hash wherever its records are sent from."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import CodeType
from typing import Any


class Hashing:
    """A partitioner that calls ``hash``. Loaded where a text may have another hash than elsewhere, it refuses."""

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
    """Say whether a function, or one inside of it, names ``hash``."""
    code = getattr(function, "__code__", function)
    if not isinstance(code, CodeType):
        return False
    return "hash" in code.co_names or any(map(calls_hash, code.co_consts))


def is_seeded() -> bool:
    """Say whether the hash of a text in this process is that of others with the same ``PYTHONHASHSEED``."""
    return os.environ.get("PYTHONHASHSEED", "random").isdecimal()
