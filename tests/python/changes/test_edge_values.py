"""Changes of rows with None keys, NaN and infinities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet.errors import RetractionError
from flownet.streams import changelog

from .histories import CHANCE
from .test_changes import OfAKey

ADD, GO = fn.RowKind.INSERT, fn.RowKind.DELETE
values = st.sampled_from([-2.0, -0.0, 0.0, 0.5, 3, math.inf, -math.inf, math.nan, -math.nan])


@st.composite
def float_histories(draw: st.DrawFn) -> list[fn.Change[tuple[str, float]]]:
    """Rows of one key that come and go, with values that are no numbers among them."""
    rows: list[tuple[str, float]] = []
    history = []
    for _ in range(draw(st.integers(1, 20))):
        if rows and draw(CHANCE):
            # Not the object that came, as behind an exchange.
            key, value = rows.pop(draw(st.integers(0, len(rows) - 1)))
            history.append(fn.Change(GO, (key, float(value) * 1 if value == value else float("nan"))))
        else:
            rows.append(("a", draw(values)))
            history.append(fn.Change(ADD, rows[-1]))
    return history


def there(history: list[fn.Change[tuple[str, float]]]) -> list[float]:
    counts: Counter[Any] = Counter()
    for change in history:
        value = change.value[1]
        counts[None if value != value else value] += 1 if change.adds else -1
    return [math.nan if value is None else value for value in counts.elements()]


def total(numbers: list[float]) -> float:
    return sum(numbers)


def extreme(of: Callable[[list[float]], float]) -> Callable[[list[float]], float]:
    return lambda numbers: of([number for number in numbers if number == number] or numbers)


AGGREGATES: dict[str, tuple[Any, Callable[[list[float]], float]]] = {
    "sum": (changelog.RetractableSum(lambda row: row[1]), total),
    "mean": (changelog.RetractableMean(lambda row: row[1]), lambda numbers: total(numbers) / len(numbers)),
    "min": (changelog.RetractableExtreme(lambda row: row[1], 0), extreme(min)),
    "max": (changelog.RetractableExtreme(lambda row: row[1], -1), extreme(max)),
}


@settings(max_examples=150)
@given(st.sampled_from(sorted(AGGREGATES)), float_histories())
def test_a_group_is_right_after_each_change_whatever_its_values_are(
    name: str, history: list[fn.Change[tuple[str, float]]]
) -> None:
    aggregate, answer = AGGREGATES[name]
    context: Any = OfAKey("a")
    function = changelog.GroupAggregate(aggregate)
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    for place, change in enumerate(history):
        table.extend(function.process(change, context))
        numbers = there(history[: place + 1])
        found = [row[1] for row in table.rows()]
        assert len(found) == bool(numbers)
        for one in found:
            expected = answer(numbers)
            assert one == pytest.approx(expected, nan_ok=True)
        assert numbers or not context.state, "a key without rows costs nothing"


@settings(max_examples=100)
@given(float_histories(), st.integers(1, 3))
def test_the_best_are_right_after_each_change_with_nan_above_all_numbers(
    history: list[fn.Change[tuple[str, float]]], count: int
) -> None:
    context: Any = OfAKey("a")
    function = changelog.TopRows(count, lambda row: row[1])
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    for place, change in enumerate(history):
        table.extend(function.process(change, context))
        numbers = sorted(there(history[: place + 1]), key=lambda number: (number != number, number))
        found = sorted((row[1] for row in table.rows()), key=lambda number: (number != number, number))
        assert found == pytest.approx(numbers[-count:], nan_ok=True)


def test_an_infinity_that_is_taken_back_leaves_the_sum_of_the_others() -> None:
    env = fn.Environment(parallelism=2)
    history = [("a", 1.5), ("a", math.inf), ("a", math.nan), ("a", -math.inf)]
    changes = [fn.Change(ADD, row) for row in history] + [fn.Change(GO, row) for row in history[1:]]
    keyed = env.from_collection(changes).as_changelog().key_by(0)
    tables = [fn.MaterializedTable[Any]() for _ in range(2)]
    keyed.sum(1).collect(into=tables[0])
    keyed.mean(1).collect(into=tables[1])
    env.execute(workers=0)
    assert [table.rows() for table in tables] == [[("a", 1.5)], [("a", 1.5)]]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("workers", [0, 2])
def test_none_meets_nobody_in_a_join_of_changes_as_in_a_join_of_rows(how: Any, workers: int) -> None:
    left = [(None, 1), (7, 2), ((7, None), 3), ((7, 8), 4)]
    right = [(None, "a"), (7, "b"), ((7, None), "c"), ((7, 8), "d")]
    env = fn.Environment(parallelism=2)
    gone = [fn.Change(ADD, (None, 9)), fn.Change(GO, (None, 9))]
    ours = env.from_collection([*left, *gone]).as_changelog()
    joined = ours.join(env.from_collection(right), how).where(0).equal_to(0).apply()
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    joined.collect(into=table)
    env.execute(workers)
    meet = [(left[1], right[1]), (left[3], right[3])]
    expected: list[Any] = [*meet]
    expected += [(left[0], None), (left[2], None)] if how in ("left", "full") else []
    expected += [(None, right[0]), (None, right[2])] if how in ("right", "full") else []
    assert Counter(table.rows()) == Counter(expected)


def test_a_row_of_a_none_key_that_never_came_is_an_error() -> None:
    context: Any = OfAKey("a")
    context.key = None
    join = changelog.ChangelogJoin("left", ttl=None)
    join.open(context)
    with pytest.raises(RetractionError, match="never came|is not there"):
        list(join.process1(fn.Change(GO, (None, 1)), context))


def test_a_row_with_nan_is_found_again_behind_an_exchange() -> None:
    env = fn.Environment(parallelism=2)
    changes = [fn.Change(ADD, ("a", math.nan)), fn.Change(ADD, ("b", 1.0)), fn.Change(GO, ("a", math.nan))]
    rows = env.from_collection(changes).as_changelog()
    joined = rows.join(env.from_collection([("a", 1), ("b", 2)])).where(0).equal_to(0).apply()
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    joined.collect(into=table)
    env.execute(workers=2)
    assert table.rows() == [(("b", 1.0), ("b", 2))]
