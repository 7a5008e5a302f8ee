"""`CollectedRecords`, the records that a job brought to this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class CollectedRecords(Sequence[T], Generic[T]):
    """Result of `Stream.collect`: a sequence of the records, after ``execute()`` has returned.

    It is empty before that. Records of one subtask are in order. Across subtasks there is no order. Another
    ``execute()`` replaces the records.
    """

    def __init__(self) -> None:
        self._records: list[T] = []

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[T]:
        return iter(self._records)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, CollectedRecords):
            return self._records == other._records
        return self._records == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(record) for record in self._records[:10])
        more = f", ... {len(self._records) - 10} more" if len(self._records) > 10 else ""
        return f"CollectedRecords([{shown}{more}])"

    def _restart(self) -> list[T]:
        """Start with an empty list, which the runtime fills in the next run."""
        self._records = []
        return self._records
