"""Event time of the rows that an inlet takes: it passes at the end of a micro-batch, and at no other time.

The partitions of a micro-batch arrive in any order. So each is a split of the source, and one more split without rows
holds event time while a micro-batch is under way. At its end event time is the least over the partitions. These splits
end when the next micro-batch of the query begins.

Invariants
----------
- B1: from the first rows of a micro-batch until its end, a split without rows is open.
- B2: a subtask that had no rows of the last micro-batch of a query has no split of it open, so it holds up no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .._flownet import SplitMark
from .staging_buffer import Name


@dataclass
class _Query:
    """The splits of one query that are open."""

    hold: int | None = None
    """Without rows, while a micro-batch is under way."""
    partitions: dict[int, int] = field(default_factory=dict)
    """Of the micro-batch under way, or of the last one."""


class MicroBatches:
    """Numbers the splits of one subtask, and gives the marks that say of which split its rows are."""

    def __init__(self) -> None:
        self._count = 0
        self._current: int | None = None
        self._queries = dict[str, _Query]()

    def begin(self, name: Name) -> Iterator[SplitMark]:
        """Yield the marks in front of rows of a partition."""
        query = self._queries.setdefault(name.query, _Query())
        if query.hold is None:
            query.hold = self._count
            yield self._grow()
            yield from self._end_partitions(query)
        split = query.partitions.get(name.partition)
        if split is None:
            split = query.partitions[name.partition] = self._count
            yield self._grow()
        if split != self._current:
            self._current = split
            yield SplitMark("of", split)

    def end(self, query_id: str) -> Iterator[SplitMark]:
        """Yield the marks at the end of a micro-batch, with or without rows here."""
        query = self._queries.setdefault(query_id, _Query())
        if query.hold is not None:
            yield SplitMark("ended", query.hold)
            query.hold = None
            return
        yield from self._end_partitions(query)
        if not self._count:
            # Says that there is no split, so nobody waits for one.
            yield SplitMark("growing", 0)

    def _grow(self) -> SplitMark:
        self._count += 1
        return SplitMark("growing", self._count)

    def _end_partitions(self, query: _Query) -> Iterator[SplitMark]:
        for split in query.partitions.values():
            yield SplitMark("ended", split)
        query.partitions.clear()
        self._current = None
