"""What works on changes by key: groups, the best, and joins. Each keeps what it needs to take back what it has emitted.

A row that comes is worked in, one that goes is worked out again; the difference between the result before and after
goes on as changes. An update is one step (`update_steps`). All state lies in that of the key.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right, insort_left
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, Protocol

from ..api.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Change, RowKind, identity_of
from ..errors import RetractionError
from ..internal.numpy_scalars import plain
from ..state import MapState, MapStateDescriptor, OpenContext
from .update_steps import OneInput, TwoInputs, without_cancelled


class Retractable(Protocol):
    """An aggregate that rows can go out of again."""

    def create(self) -> Any:
        """Return what stands before the first row."""

    def add(self, accumulator: Any, value: Any) -> Any:
        """Return the accumulator with a row in it."""

    def retract(self, accumulator: Any, value: Any) -> Any:
        """Return the accumulator without a row that was in it."""

    def result(self, accumulator: Any) -> Any:
        """Return the result; there is at least one row."""


class GroupAggregate(OneInput):
    """One row for each key: the key, and the result over the rows of that key."""

    def __init__(self, aggregate: Retractable) -> None:
        self._aggregate = aggregate

    def step(self, side: int, value: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change and emit those of the result."""
        aggregate, state = self._aggregate, ctx.state
        rows = state.get("rows", 0)
        accumulator = state["accumulator"] if rows else aggregate.create()
        before = aggregate.result(accumulator) if rows else None
        if value.adds:
            accumulator, left = aggregate.add(accumulator, value.value), rows + 1
        else:
            if not rows:
                raise unknown(value)
            accumulator, left = aggregate.retract(accumulator, value.value), rows - 1
        if not left:
            state.clear()
            return [Change(DELETE, (ctx.key, before))]
        state["rows"], state["accumulator"] = left, accumulator
        after = aggregate.result(accumulator)
        if not rows:
            return [Change(INSERT, (ctx.key, after))]
        return _update(ctx.key, before, after)

    def update(self, side: int, old: Change[Any], new: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take the new row in and the old one out, and look at the result once."""
        aggregate, state = self._aggregate, ctx.state
        rows = state.get("rows", 0)
        if not rows:
            raise unknown(old)
        accumulator = state["accumulator"]
        before = aggregate.result(accumulator)
        accumulator = aggregate.retract(accumulator, old.value)
        # Of the only row nothing is left, not even the rounding error of a sum.
        accumulator = aggregate.add(accumulator if rows > 1 else aggregate.create(), new.value)
        state["accumulator"] = accumulator
        return _update(ctx.key, before, aggregate.result(accumulator))


def _update(key: Any, before: Any, after: Any) -> Iterable[Change[Any]]:
    if _are_equal(before, after):
        return ()
    return [Change(UPDATE_BEFORE, (key, before)), Change(UPDATE_AFTER, (key, after))]


class RetractableCount:
    """How many rows there are."""

    def create(self) -> int:
        """Return what stands before the first row."""
        return 0

    def add(self, accumulator: int, value: object) -> int:
        """Work a row in."""
        return accumulator + 1

    def retract(self, accumulator: int, value: object) -> int:
        """Work a row out."""
        return accumulator - 1

    def result(self, accumulator: int) -> int:
        """Return the result."""
        return accumulator


class RetractableSum:
    """The sum of a field.

    The accumulator is the sum itself. From the first infinity or NaN until the last one is taken back it is a dict,
    which counts these beside the sum of all other values: no subtraction takes an infinity out of a sum.
    """

    def __init__(self, field: Callable[[Any], Any]) -> None:
        self._field = field

    def create(self) -> Any:
        """Return what stands before the first row."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """Work a row in."""
        given = self._field(value)
        kind = _kind_of(given)
        if kind is None and not isinstance(accumulator, dict):
            return given if accumulator is None else accumulator + given
        sums = _not_finite(accumulator)
        if kind is None:
            sums["finite"] = given if sums["finite"] is None else sums["finite"] + given
        else:
            sums[kind] += 1
        return sums

    def retract(self, accumulator: Any, value: Any) -> Any:
        """Work a row out."""
        given = self._field(value)
        kind = _kind_of(given)
        if not isinstance(accumulator, dict):
            return accumulator - given
        if kind is None:
            accumulator["finite"] -= given
        else:
            accumulator[kind] -= 1
        return accumulator if any(accumulator[kind] for kind in _KINDS) else accumulator["finite"]

    def result(self, accumulator: Any) -> Any:
        """Return the result."""
        if not isinstance(accumulator, dict):
            return accumulator
        if accumulator["nan"] or (accumulator["inf"] and accumulator["-inf"]):
            return math.nan
        return math.inf if accumulator["inf"] else -math.inf


_KINDS = ("inf", "-inf", "nan")


def _kind_of(value: Any) -> str | None:
    """Say which of the values that are not finite this is; None if it is finite, or no float."""
    number = plain(value)
    if not isinstance(number, float | Decimal) or math.isfinite(number):
        return None
    return "nan" if number != number else "inf" if number > 0 else "-inf"


def _not_finite(accumulator: Any) -> dict[str, Any]:
    """Make the accumulator that counts values which are not finite, beside the sum of the others."""
    return accumulator if isinstance(accumulator, dict) else {"finite": accumulator, "inf": 0, "-inf": 0, "nan": 0}


class RetractableMean(RetractableSum):
    """The mean of a field."""

    def create(self) -> Any:
        """Return what stands before the first row."""
        return (None, 0)

    def add(self, accumulator: Any, value: Any) -> Any:
        """Work a row in."""
        return (super().add(accumulator[0], value), accumulator[1] + 1)

    def retract(self, accumulator: Any, value: Any) -> Any:
        """Work a row out."""
        return (super().retract(accumulator[0], value), accumulator[1] - 1)

    def result(self, accumulator: Any) -> Any:
        """Return the result."""
        return super().result(accumulator[0]) / accumulator[1]


class RetractableExtreme:
    """The least or the greatest of a field. All values are kept, sorted: any of them may be the next.

    NaN is sorted last, and is a result only if there is nothing else, as for rows.
    """

    def __init__(self, field: Callable[[Any], Any], place: int) -> None:
        self._field = field
        self._place = place

    def create(self) -> list[Any]:
        """Return what stands before the first row."""
        return []

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Work a row in."""
        insort_left(accumulator, self._field(value), key=_rank)
        return accumulator

    def retract(self, accumulator: list[Any], value: Any) -> list[Any]:
        """Work a row out."""
        given = self._field(value)
        place = bisect_left(accumulator, _rank(given), key=_rank)
        if place == len(accumulator) or _rank(accumulator[place]) != _rank(given):
            raise unknown(Change(DELETE, value))
        del accumulator[place]
        return accumulator

    def result(self, accumulator: list[Any]) -> Any:
        """Return the result."""
        if self._place == -1 and _is_nan(accumulator[-1]):
            numbers = bisect_left(accumulator, True, key=_is_nan)
            return accumulator[numbers - 1]
        return accumulator[self._place]


def _are_equal(one: Any, other: Any) -> bool:
    if one == other:
        return True
    # Only a NaN, or a row that holds one, is not equal to itself.
    return type(one) not in _EQUAL_TO_THEMSELVES and identity_of(one) == identity_of(other)


_EQUAL_TO_THEMSELVES = frozenset({bool, bytes, int, str, type(None)})


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _rank(value: Any) -> Any:
    """Make what values are sorted by: NaN, which has no place among numbers, is above them all."""
    if isinstance(value, tuple):
        return tuple(map(_rank, value))
    return (True, 0) if _is_nan(value) else (False, value)


class UserAggregate:
    """An aggregate of plain functions."""

    def __init__(self, init: Any, add: Any, retract: Any, result: Any) -> None:
        self._init, self._add, self._retract, self._result = init, add, retract, result

    def create(self) -> Any:
        """Return what stands before the first row."""
        return self._init() if callable(self._init) else copy.deepcopy(self._init)

    def add(self, accumulator: Any, value: Any) -> Any:
        """Work a row in."""
        return self._add(accumulator, value)

    def retract(self, accumulator: Any, value: Any) -> Any:
        """Work a row out."""
        return self._retract(accumulator, value)

    def result(self, accumulator: Any) -> Any:
        """Return the result."""
        # What was emitted has to be taken back as it was, whatever becomes of the accumulator.
        return copy.deepcopy(accumulator if self._result is None else self._result(accumulator))


class TopRows(OneInput):
    """The rows with the greatest values of each key. All rows are kept: any of them may come to be among the best."""

    def __init__(self, count: int, by: Callable[[Any], Any]) -> None:
        self._count = count
        self._by = by

    def _rank_of(self, row: Any) -> Any:
        return _rank(self._by(row))

    def step(self, side: int, value: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change and emit those of the result."""
        # The best last; of equal ones those that came first are better.
        rows: list[Any] = ctx.state.setdefault("rows", [])
        before = rows[-self._count :]
        by = self._rank_of(value.value)
        place = bisect_left(rows, by, key=self._rank_of)
        if value.adds:
            rows.insert(place, value.value)
        else:
            end = bisect_right(rows, by, key=self._rank_of)
            found = next((at for at in range(place, end) if _are_equal(rows[at], value.value)), None)
            if found is None:
                raise unknown(value)
            place = found
            del rows[place]
        if not rows:
            ctx.state.clear()
        # What lies before the best moves none of them in or out.
        if value.adds and len(rows) - place > self._count:
            return
        if value.adds:
            if len(before) == self._count:
                yield Change(DELETE, before[0])
            yield Change(INSERT, value.value)
        elif len(rows) + 1 - place <= self._count:
            yield Change(DELETE, value.value)
            if len(rows) >= self._count:
                yield Change(INSERT, rows[-self._count])


class ChangelogJoin(TwoInputs):
    """Each row of one side with each of the other that has its key; those without, for outer joins, with None.

    As in SQL and in joins of rows, a key that is None, or a tuple with a None in it, is equal to none.
    """

    def __init__(
        self, how: str, ttl: str | timedelta | None, function: Callable[[Any, Any], Any] | None = None
    ) -> None:
        self._descriptors = [MapStateDescriptor(side, ttl) for side in ("left", "right")]
        self._keeps = (how in ("left", "full"), how in ("right", "full"))
        self._function = function

    def open(self, ctx: OpenContext) -> None:
        """Find the rows of both sides."""
        self._sides = [Rows(ctx.get_map_state(descriptor)) for descriptor in self._descriptors]

    def step(self, side: int, change: Change[Any], ctx: Any) -> Iterable[Change[Any]]:
        """Take a change of one table and emit those of the result."""
        pairs, function = self._take(side, change, ctx), self._function
        if function is not None:
            return without_cancelled(Change(kind, function(*pair)) for kind, pair in pairs)
        # A row that is None looks like a partner that is missing.
        return without_cancelled(pairs) if change.value is None else pairs

    def _take(self, side: int, change: Change[Any], ctx: Any) -> Iterator[Change[Any]]:
        own, other, row = self._sides[side], self._sides[1 - side], change.value
        was_empty = not own
        is_alone = not other or _meets_nobody(ctx.key)
        shown_alone = 0
        if change.adds:
            own.add(row, alone=is_alone and self._keeps[side])
        else:
            found = own.remove(row, alone=is_alone)
            if found is None:
                if self._descriptors[side].ttl_ms is None:
                    raise unknown(change)
                # It has expired.
                ctx._drop_late()
                return
            shown_alone = found
        if is_alone:
            if self._keeps[side] and (change.adds or shown_alone):
                yield _pair(change.kind, side, row, None)
            return
        comes_first = change.adds and was_empty and self._keeps[1 - side]
        goes_last = not change.adds and not own and self._keeps[1 - side]
        for entry in other.entries():
            partner, count, alone = entry
            for number in range(count):
                if comes_first and number < alone:
                    yield _pair(UPDATE_BEFORE, side, None, partner)
                    yield _pair(UPDATE_AFTER, side, row, partner)
                elif goes_last:
                    yield _pair(UPDATE_BEFORE, side, row, partner)
                    yield _pair(UPDATE_AFTER, side, None, partner)
                else:
                    yield _pair(change.kind, side, row, partner)
            entry[ALONE] = count if goes_last else 0 if comes_first else alone


def _meets_nobody(key: Any) -> bool:
    return key is None or (isinstance(key, tuple) and any(item is None for item in key))


def _pair(kind: RowKind, side: int, own: Any, other: Any) -> Change[Any]:
    return Change(kind, (own, other) if side == 0 else (other, own))


COUNT, ALONE = 1, 2


class Rows:
    """The rows of one side of a join that have the current key: each with how often it is there and shown alone."""

    def __init__(self, state: MapState[Any, list[Any]]) -> None:
        self._state = state

    def __bool__(self) -> bool:
        return bool(self._state)

    def add(self, row: Any, *, alone: bool) -> None:
        """Work a row in."""
        identity = identity_of(row)
        entry = self._state.get(identity) or [row, 0, 0]
        entry[COUNT] += 1
        entry[ALONE] += alone
        self._state[identity] = entry

    def remove(self, row: Any, *, alone: bool) -> int | None:
        """Take one out and say how often it was shown with None; None if it is not there."""
        identity = identity_of(row)
        entry = self._state.get(identity)
        if entry is None:
            return None
        shown = int(entry[ALONE])
        entry[COUNT] -= 1
        entry[ALONE] -= bool(alone and shown)
        if entry[COUNT]:
            self._state[identity] = entry
        else:
            del self._state[identity]
        return shown

    def entries(self) -> Iterator[list[Any]]:
        """Go through the rows that are there."""
        return iter(list(self._state.values()))


def unknown(change: Change[Any]) -> RetractionError:
    """Make the error of a row that is to go and never came."""
    return RetractionError(
        f"{change.kind} of a row that is not there: {change.value!r:.200}: each row that goes has to have come before, "
        "equal to it",
        record=repr(change.value)[:200],
    )
