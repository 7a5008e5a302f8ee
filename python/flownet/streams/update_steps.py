"""Updates of a table as one step: the old row of an update waits for the new one.

An update comes as two records, ``UPDATE_BEFORE`` and ``UPDATE_AFTER``. Worked in one after the other they take the
result through rows that no table ever had. So the first waits in the state of its key, and both are worked in together:
the result goes from the old rows to the new ones, and equal rows are not emitted.

- I1: an old row waits until the next change of its key, until event time reaches it, or for `WAIT_MS`. Then it is
  worked in as ``DELETE``: the new row has another key, or is late.
- I2: at every watermark the sum of the changes is the answer over the rows that have come.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from ..api.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Change, identity_of
from ..api.functions import KeyedCoProcessFunction, KeyedFunction, KeyedProcessFunction

WAIT_MS: Final = 100
_STATE: Final = "update_before"


class OldRow(NamedTuple):
    """An old row that waits for the new one."""

    side: int
    row: Any
    timestamp_ms: int | None
    until_ms: int


class UpdateSteps(KeyedFunction[Any, Any]):
    """Works both records of an update in at once."""

    @abstractmethod
    def step(self, side: int, change: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change of one input and emit those of the result."""

    def take(self, side: int, change: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change of one input; the old row of an update waits."""
        old = _take_old_row(ctx)
        if change.kind is UPDATE_BEFORE:
            gone = () if old is None else self._deleted(old, ctx)
            _keep_old_row(side, change.value, ctx)
            return gone
        if old is None:
            return self.step(side, change, ctx)
        if old.side != side or change.kind is not UPDATE_AFTER:
            return [*self._deleted(old, ctx), *self.step(side, change, ctx)]
        return self.update(side, Change(UPDATE_BEFORE, old.row), change, ctx)

    def update(self, side: int, old: Change[Any], new: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take both records of an update and emit how the result differs."""
        return _difference([*self.step(side, old, ctx), *self.step(side, new, ctx)])

    def on_timer(self, timestamp_ms: int, ctx: Any) -> Iterable[Change[Any]]:
        """Stop waiting for the new row."""
        old = _take_old_row(ctx)
        if old is not None and old.timestamp_ms is not None:
            ctx._as_of(old.timestamp_ms)
        return () if old is None else self._deleted(old, ctx)

    def _deleted(self, old: OldRow, ctx: Any) -> list[Change[Any]]:
        return list(self.step(old.side, Change(DELETE, old.row), ctx))


class OneInput(UpdateSteps, KeyedProcessFunction[Any, Any, Any]):
    """Works on the changes of one table."""

    def process(self, value: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change."""
        # Most changes are no part of an update, and take the short way.
        if value.kind is UPDATE_BEFORE or _STATE in ctx.state:
            return self.take(0, value, ctx)
        return self.step(0, value, ctx)


class TwoInputs(UpdateSteps, KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Works on the changes of two tables."""

    def process1(self, value: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change of the first table."""
        return self.take(0, value, ctx)

    def process2(self, value: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change of the second table."""
        return self.take(1, value, ctx)


def without_cancelled(changes: Iterable[Change[Any]]) -> list[Change[Any]]:
    """Leave out each pair of changes of which one adds the row that the other takes away."""
    places: dict[tuple[Hashable, bool], list[int]] = {}
    kept: list[Change[Any] | None] = []
    for change in changes:
        identity = identity_of(change.value)
        opposite = places.get((identity, not change.adds))
        if opposite:
            kept[opposite.pop()] = None
        else:
            places.setdefault((identity, change.adds), []).append(len(kept))
            kept.append(change)
    return [change for change in kept if change is not None]


def _difference(changes: list[Change[Any]]) -> Iterator[Change[Any]]:
    """Make one step of the changes of an update: each new row follows the old one whose place it takes."""
    kept = without_cancelled(changes)
    old = [change.value for change in kept if not change.adds]
    new = [change.value for change in kept if change.adds]
    for before, after in zip_longest(old, new, fillvalue=_MISSING):
        if after is _MISSING:
            yield Change(DELETE, before)
        elif before is _MISSING:
            yield Change(INSERT, after)
        else:
            yield Change(UPDATE_BEFORE, before)
            yield Change(UPDATE_AFTER, after)


_MISSING: Final = object()


def _keep_old_row(side: int, row: Any, ctx: Any) -> None:
    timestamp_ms, until_ms = ctx._event_time_ms(), ctx.now_ms() + WAIT_MS
    ctx.state[_STATE] = (side, row, timestamp_ms, until_ms)
    ctx.register_processing_time_timer(until_ms)
    if timestamp_ms is not None:
        ctx.register_event_time_timer(timestamp_ms)


def _take_old_row(ctx: Any) -> OldRow | None:
    kept = ctx.state.pop(_STATE, None)
    if kept is None:
        return None
    old = OldRow(*kept)
    ctx.delete_processing_time_timer(old.until_ms)
    if old.timestamp_ms is not None:
        ctx.delete_event_time_timer(old.timestamp_ms)
    return old
