"""An update is one step of the result: it emits the difference between the tables before and after it, and no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet import testing
from flownet.streams import changelog

from .histories import CHANCE, Row, rows_of
from .test_changes import GROUPS, KINDS, OfAKey, best, grouped, joined

INSERT, BEFORE, AFTER, DELETE = fn.RowKind

Event: TypeAlias = tuple[fn.Change[Row], ...]
"""What happens to a table at once: a row comes, a row goes, or one takes the place of another."""


@st.composite
def events(draw: st.DrawFn, keys: str = "a", max_size: int = 25) -> list[Event]:
    """Events of a table with few different rows, so that equal ones are frequent."""
    rows: list[Row] = []
    events: list[Event] = []
    for _ in range(draw(st.integers(0, max_size))):
        new = (draw(st.sampled_from(keys)), draw(st.integers(0, 2)))
        if not rows or draw(CHANCE):
            rows.append(new)
            events.append((fn.Change(INSERT, new),))
            continue
        place = draw(st.integers(0, len(rows) - 1))
        old = rows[place]
        if draw(CHANCE):
            rows[place] = new
            events.append((fn.Change(BEFORE, old), fn.Change(AFTER, new)))
        else:
            del rows[place]
            events.append((fn.Change(DELETE, old),))
    return events


def difference(before: Counter[Any], after: Counter[Any]) -> int:
    """Count the changes that lead from one table to another, if none is in vain."""
    return (before - after).total() + (after - before).total()


def shown(pair: tuple[Any, Any]) -> Any:
    """Say of a pair whether it has partners and which parity the values have: many pairs look the same."""
    return tuple(None if row is None else row[1] % 2 for row in pair)


FUNCTIONS: list[Callable[[tuple[Any, Any]], Any] | None] = [None, shown]


@settings(max_examples=200)
@given(st.sampled_from(KINDS), st.sampled_from(FUNCTIONS), events(), events(), st.randoms(), st.booleans())
def test_a_join_emits_the_difference_and_no_more(
    how: Any, function: Any, left: list[Event], right: list[Event], chance: Any, has_time: bool
) -> None:
    context: Any = OfAKey("a")
    context.timestamp = 7 if has_time else None
    apply = None if function is None else (lambda one, other: function((one, other)))
    join = changelog.ChangelogJoin(how, None, apply)
    join.open(context)
    sides, rows = [list(left), list(right)], [Counter[Row](), Counter[Row]()]
    table = Counter[Any]()
    while any(sides):
        side = chance.choice([side for side in (0, 1) if sides[side]])
        event = sides[side].pop(0)
        emitted = [out for change in event for out in (join.process1, join.process2)[side](change, context)]
        rows[side] = rows_of([*as_inserts(rows[side]), *event])
        answer = joined(how, *rows)
        if function is not None:
            answer = Counter(map(function, answer.elements()))
        assert len(emitted) == difference(table, answer)
        # No row is less than zero times there on the way.
        table = rows_of([*as_inserts(table), *emitted])
        assert table == answer
        assert not context.timers


def as_inserts(rows: Counter[Any]) -> list[fn.Change[Any]]:
    return [fn.Change(INSERT, row) for row in rows.elements()]


@settings(max_examples=200)
@given(events(), st.integers(1, 3), st.booleans())
def test_groups_and_the_best_emit_the_difference_and_no_more(events: list[Event], count: int, has_time: bool) -> None:
    functions: list[tuple[Any, Callable[[Counter[Row]], Counter[Any]]]] = [
        (changelog.GroupAggregate(changelog.RetractableCount()), grouped(len)),
        (changelog.GroupAggregate(changelog.RetractableSum(lambda row: row[1])), grouped(sum)),
        (changelog.GroupAggregate(changelog.RetractableMean(lambda row: row[1])), grouped(lambda v: sum(v) / len(v))),
        (changelog.GroupAggregate(changelog.RetractableExtreme(lambda row: row[1], 0)), grouped(min)),
        (
            changelog.TopRows(count, lambda row: row[1]),
            lambda rows: Counter(sorted(rows.elements())[-count:]),
        ),
    ]
    for function, answer in functions:
        context: Any = OfAKey("a")
        context.timestamp = 7 if has_time else None
        rows, table = Counter[Row](), Counter[Any]()
        for event in events:
            emitted = [out for change in event for out in function.process(change, context)]
            rows = rows_of([*as_inserts(rows), *event])
            assert len(emitted) == difference(table, answer(rows))
            assert [change.kind for change in emitted] in ([], [INSERT], [DELETE], [BEFORE, AFTER], [DELETE, INSERT])
            table = rows_of([*as_inserts(table), *emitted])
            assert table == answer(rows)
        assert bool(context.state) == bool(rows), "a key without rows costs nothing"


@settings(max_examples=40)
@given(st.sampled_from(KINDS), events("abc"), events("abc"), st.sampled_from([1, 2]), st.sampled_from([0, 0, 2]))
def test_updates_that_change_the_key_end_at_the_answer(
    how: Any, left: list[Event], right: list[Event], parallelism: int, workers: int
) -> None:
    histories = [[change for event in side for change in event] for side in (left, right)]
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    tables = [env.from_collection(history).as_changelog() for history in histories]
    pairs = tables[0].join(tables[1], how).where(0).equal_to(0).apply().collect()
    sums, top = (GROUPS[name][0](tables[0].key_by(0)).collect() for name in ("sum", "top_n"))
    env.execute(workers)
    rows = [rows_of(history) for history in histories]
    assert rows_of(pairs) == joined(how, *rows)
    assert rows_of(sums) == grouped(sum)(rows[0])
    assert rows_of(top) == best(rows[0])


def left_join(left: fn.Stream[Any], right: fn.Stream[Any]) -> fn.Stream[Any]:
    changes = left.as_changelog().join(right.as_changelog(), "left").where(0).equal_to(0)
    return changes.apply(lambda order, person: (order[1], person and person[1])).to_stream()


def test_an_update_of_a_left_join_is_one_step_and_none_if_nothing_differs() -> None:
    with testing.Harness(left_join) as harness:
        harness.send((7, "tea"))
        assert harness.send((7, "Ann", 1), input=1) == [(BEFORE, ("tea", None)), (AFTER, ("tea", "Ann"))]
        assert harness.send(fn.Change(BEFORE, (7, "Ann", 1)), input=1) == []
        assert harness.send(fn.Change(AFTER, (7, "Ann", 2)), input=1) == []
        assert harness.send(fn.Change(BEFORE, (7, "Ann", 2)), input=1) == []
        expected = [(BEFORE, ("tea", "Ann")), (AFTER, ("tea", "Eve"))]
        assert harness.send(fn.Change(AFTER, (7, "Eve", 3)), input=1) == expected
        assert harness.end() == []


class WithTimestamp(fn.ProcessFunction[Any, "int | None"]):
    def process(self, value: Any, ctx: fn.RecordContext) -> list[int | None]:
        return [ctx.timestamp]


@pytest.mark.parametrize("timestamp", [None, 5])
def test_an_old_row_whose_new_row_does_not_come_goes_with_its_own_time(timestamp: int | None) -> None:
    with testing.Harness(left_join) as harness:
        harness.send((7, "tea"), 1)
        harness.send((7, "Ann"), 2, input=1)
        assert harness.send(fn.Change(BEFORE, (7, "Ann")), timestamp, input=1) == []
        gone = harness.watermark(5) if timestamp else harness.advance("200ms")
        assert gone == [(BEFORE, ("tea", "Ann")), (AFTER, ("tea", None))]
        assert harness.timers == []


def test_an_old_row_that_waits_is_emitted_with_its_own_timestamp_if_no_watermark_comes() -> None:
    def with_timestamps(left: fn.Stream[Any], right: fn.Stream[Any]) -> fn.Stream[Any]:
        return left_join(left, right).process(WithTimestamp())

    with testing.Harness(with_timestamps) as harness:
        harness.send((7, "tea"), 1)
        harness.send((7, "Ann"), 2, input=1)
        harness.send(fn.Change(BEFORE, (7, "Ann")), 5, input=1)
        assert harness.advance("200ms") == [5, 5]


def test_an_old_row_that_waits_is_in_a_snapshot() -> None:
    with testing.Harness(left_join) as harness:
        harness.send((7, "tea"))
        harness.send((7, "Ann"), input=1)
        assert harness.send(fn.Change(BEFORE, (7, "Ann")), input=1) == []
        state = harness.snapshot()
    with testing.Harness(left_join, restored=state) as harness:
        expected = [(BEFORE, ("tea", "Ann")), (AFTER, ("tea", "Eve"))]
        assert harness.send(fn.Change(AFTER, (7, "Eve")), input=1) == expected
