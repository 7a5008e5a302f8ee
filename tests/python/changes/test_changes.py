"""Groups, the best and joins over changes: the sum of what they emit is the answer over the rows that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet.errors import ConfigError, PlanError, RetractionError
from flownet.streams import changelog

from .histories import Row, histories, rows_of

History: TypeAlias = list[fn.Change[Row]]
Table: TypeAlias = "Counter[Any]"


def by_key(rows: Counter[Row]) -> dict[str, list[int]]:
    values: dict[str, list[int]] = {}
    for key, value in rows.elements():
        values.setdefault(key, []).append(value)
    return values


def grouped(result: Callable[[list[int]], Any]) -> Callable[[Counter[Row]], Table]:
    return lambda rows: Counter((key, result(values)) for key, values in by_key(rows).items())


def best(rows: Counter[Row]) -> Table:
    return Counter((key, value) for key, values in by_key(rows).items() for value in sorted(values)[-2:])


def joined(how: str, left: Counter[Row], right: Counter[Row]) -> Table:
    pairs = [(one, other) for one, other in product(left.elements(), right.elements()) if one[0] == other[0]]
    alone: list[tuple[Any, Any]] = []
    if how in ("left", "full"):
        alone += [(one, None) for one in left.elements() if not any(one[0] == other[0] for other in right)]
    if how in ("right", "full"):
        alone += [(None, other) for other in right.elements() if not any(one[0] == other[0] for one in left)]
    return Counter(pairs + alone)


def as_one(values: tuple[int, ...], row: Row) -> tuple[int, ...]:
    return tuple(sorted((*values, row[1])))


def without_one(values: tuple[int, ...], row: Row) -> tuple[int, ...]:
    place = values.index(row[1])
    return values[:place] + values[place + 1 :]


Keyed: TypeAlias = "fn.streams.KeyedChangelogStream[str, Row]"
GROUPS: dict[str, tuple[Callable[[Keyed], fn.streams.ChangelogStream[Any]], Callable[[Counter[Row]], Table]]] = {
    "count": (lambda keyed: keyed.count(), grouped(len)),
    "sum": (lambda keyed: keyed.sum(1), grouped(sum)),
    "mean": (lambda keyed: keyed.mean(1), grouped(lambda values: sum(values) / len(values))),
    "min": (lambda keyed: keyed.min(1), grouped(min)),
    "max": (lambda keyed: keyed.max(1), grouped(max)),
    "aggregate": (
        lambda keyed: keyed.aggregate((), as_one, without_one),
        grouped(lambda values: tuple(sorted(values))),
    ),
    "top_n": (lambda keyed: keyed.top_n(2, by=1), best),
    "counts of counts": (
        lambda keyed: keyed.count().key_by(1).count(),
        lambda rows: Counter(Counter(map(len, by_key(rows).values())).items()),
    ),
    "the best of the sums": (
        lambda keyed: keyed.sum(1).map(lambda row: (row[0] > "a", row[1], row[0])).key_by(0).top_n(1, by=(1, 2)),
        lambda rows: Counter(
            max(best)
            for best in (
                [(is_late, sum(values), key) for key, values in by_key(rows).items() if (key > "a") == is_late]
                for is_late in (False, True)
            )
            if best
        ),
    ),
}


@dataclass(frozen=True)
class Shape:
    """How a job runs, which its results must not depend on."""

    parallelism: int
    chained: bool


SHAPES = st.builds(Shape, st.sampled_from([1, 2, 3]), st.booleans())


def changes_of(env: fn.Environment, history: History, shape: Shape) -> fn.streams.ChangelogStream[Row]:
    changes = env.from_collection(history).as_changelog()
    return changes if shape.chained else changes.disable_chaining().filter(lambda row: True).disable_chaining()


def found(env: fn.Environment, changes: fn.streams.ChangelogStream[Any], workers: int) -> Table:
    collected = changes.collect()
    env.execute(workers)
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    table.extend(collected)
    assert Counter(table.rows()) == rows_of(collected)
    return Counter(table.rows())


def check_group(name: str, history: History, shape: Shape, workers: int) -> None:
    build, batch = GROUPS[name]
    env = fn.Environment(parallelism=shape.parallelism, buffer_timeout="5ms")
    result = build(changes_of(env, history, shape).key_by(0))
    assert found(env, result, workers) == batch(rows_of(history))


@settings(max_examples=60)
@given(st.sampled_from(sorted(GROUPS)), histories(), SHAPES)
def test_the_sum_of_the_changes_of_a_group_is_the_answer_over_its_rows(
    name: str, history: History, shape: Shape
) -> None:
    check_group(name, history, shape, workers=0)


@settings(max_examples=6)
@given(st.sampled_from(sorted(GROUPS)), histories(), SHAPES)
def test_the_sum_of_the_changes_of_a_group_is_the_answer_over_its_rows_in_two_workers(
    name: str, history: History, shape: Shape
) -> None:
    check_group(name, history, shape, workers=2)


KINDS: list[Any] = ["inner", "left", "right", "full"]


def check_join(how: Any, left: History, right: History, shape: Shape, workers: int) -> None:
    env = fn.Environment(parallelism=shape.parallelism, buffer_timeout="5ms")
    join = changes_of(env, left, shape).join(changes_of(env, right, shape), how).where(0).equal_to(0)
    sides = join.apply(lambda one, other: (one or other)[0]).key_by(str).count().collect()
    assert found(env, join.apply(), workers) == (expected := joined(how, rows_of(left), rows_of(right)))
    by_sides = Counter((one or other)[0] for one, other in expected.elements())
    assert rows_of(sides) == Counter(by_sides.items())


@settings(max_examples=60)
@given(st.sampled_from(KINDS), histories(), histories(), SHAPES)
def test_the_sum_of_the_changes_of_a_join_is_the_join_of_the_rows(
    how: Any, left: History, right: History, shape: Shape
) -> None:
    check_join(how, left, right, shape, workers=0)


@settings(max_examples=6)
@given(st.sampled_from(KINDS), histories(), histories(), SHAPES)
def test_the_sum_of_the_changes_of_a_join_is_the_join_of_the_rows_in_two_workers(
    how: Any, left: History, right: History, shape: Shape
) -> None:
    check_join(how, left, right, shape, workers=2)


class OfAKey:
    """What a function sees of a key, in place of the runtime, which gives no moment between two changes."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.state: dict[str, Any] = {}
        self.now = 0
        self.timestamp: int | None = None
        self.late = 0
        self.expires: list[int] = []
        self.timers: set[tuple[str, int]] = set()

    def now_ms(self) -> int:
        return self.now

    def _drop_late(self) -> None:
        self.late += 1

    def current_watermark(self) -> int:
        return -(2**63)

    def _event_time_ms(self) -> int | None:
        return self.timestamp

    def _as_of(self, timestamp_ms: int) -> None:
        self.timestamp = timestamp_ms

    def register_processing_time_timer(self, timestamp_ms: int) -> None:
        self.timers.add(("processing", timestamp_ms))

    def register_event_time_timer(self, timestamp_ms: int) -> None:
        self.timers.add(("event", timestamp_ms))

    def delete_processing_time_timer(self, timestamp_ms: int) -> None:
        self.timers.remove(("processing", timestamp_ms))

    def delete_event_time_timer(self, timestamp_ms: int) -> None:
        self.timers.remove(("event", timestamp_ms))

    def _expires_at(self, timestamp_ms: int, in_event_time: bool) -> None:
        assert not in_event_time
        self.expires.append(timestamp_ms)

    def get_map_state(self, descriptor: fn.MapStateDescriptor) -> fn.state.MapState[Any, Any]:
        return fn.state.MapState(self, descriptor)


def of_a_key(history: History) -> History:
    return [change for change in history if change.value[0] == "a"]


def without_wait(function: Any, context: Any) -> Iterable[fn.Change[Any]]:
    """An old row whose new row does not come is worked in when its timer is due."""
    return function.on_timer(min(at for _, at in context.timers), context) if context.timers else ()


@settings(max_examples=100)
@given(st.sampled_from(KINDS), histories(40), histories(40), st.randoms())
def test_a_join_is_right_after_each_change(how: Any, left: History, right: History, chance: Any) -> None:
    context: Any = OfAKey("a")
    join = changelog.ChangelogJoin(how, ttl=None)
    join.open(context)
    sides = [list(of_a_key(left)), list(of_a_key(right))]
    given: list[History] = [[], []]
    emitted: list[fn.Change[Any]] = []
    while any(sides):
        side = chance.choice([side for side in (0, 1) if sides[side]])
        change = sides[side].pop(0)
        given[side].append(change)
        emitted += (join.process1, join.process2)[side](change, context)
        emitted += without_wait(join, context)
        assert rows_of(emitted) == joined(how, *map(rows_of, given))
    assert bool(context.state) == any(rows_of(of_key) for of_key in given), "a key without rows costs nothing"


@settings(max_examples=100)
@given(histories(40), st.integers(1, 4))
def test_the_best_and_groups_are_right_after_each_change(history: History, count: int) -> None:
    functions: list[tuple[Any, Callable[[list[int]], Iterable[Any]]]] = [
        (
            changelog.TopRows(count, lambda row: row[1]),
            lambda values: [("a", value) for value in sorted(values)[-count:]],
        ),
        (
            changelog.GroupAggregate(changelog.RetractableExtreme(lambda row: row[1], 0)),
            lambda values: [("a", min(values))],
        ),
        (changelog.GroupAggregate(changelog.RetractableMean(lambda row: row[1])), lambda v: [("a", sum(v) / len(v))]),
    ]
    for function, answer in functions:
        context, given, emitted = OfAKey("a"), [], list[fn.Change[Any]]()
        for change in of_a_key(history):
            given.append(change)
            emitted += function.process(change, context)
            emitted += without_wait(function, context)
            values = by_key(rows_of(given)).get("a")
            assert rows_of(emitted) == Counter(answer(values) if values else ())
            assert values or not context.state, "a key without rows costs nothing"


def test_changes_say_what_became_of_a_row_and_nothing_else() -> None:
    env = fn.Environment()
    insert, before, after, delete = fn.RowKind
    history = [fn.Change(insert, ("a", 1)), fn.Change(insert, ("a", 0)), fn.Change(delete, ("a", 1))]
    changes = env.from_collection([*history, fn.Change(delete, ("a", 0))]).as_changelog().key_by(0)
    greatest, smallest = changes.max(1).collect(), changes.min(1).map(lambda row: row[1]).to_stream().map(str).collect()
    env.execute()
    assert list(greatest) == [(insert, ("a", 1)), (before, ("a", 1)), (after, ("a", 0)), (delete, ("a", 0))]
    assert [str(change.kind) for change in greatest] == ["+I", "-U", "+U", "-D"]
    assert len(smallest) == 4


def test_rows_that_cannot_be_hashed_are_found_again(env: fn.Environment) -> None:
    add, go = fn.RowKind.INSERT, fn.RowKind.DELETE
    left = env.from_collection([fn.Change(add, {"id": 1, "of": [2]}), fn.Change(go, {"of": [2], "id": 1})])
    right = env.from_collection([[1, {"a"}], [1, {"b"}]])
    joined = left.as_changelog().join(right, "full").where("id").equal_to(0).apply()
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    joined.collect(into=table)
    env.execute()
    assert sorted(table.rows(), key=repr) == [(None, [1, {"a"}]), (None, [1, {"b"}])]


def test_what_has_expired_is_not_taken_back_and_frees_its_memory() -> None:
    context: Any = OfAKey("a")
    join = changelog.ChangelogJoin("left", ttl="10ms")
    join.open(context)
    add, go = fn.RowKind.INSERT, fn.RowKind.DELETE
    assert list(join.process2(fn.Change(add, "right"), context)) == []
    context.now = 5
    assert list(join.process1(fn.Change(add, "left"), context)) == [(add, ("left", "right"))]
    context.now = 10
    assert list(join.process1(fn.Change(add, "other"), context)) == [(add, ("other", None))]
    assert list(join.process2(fn.Change(go, "right"), context)) == []
    assert context.late == 1
    # That of "left" was never shown alone, and is not taken back as if it had been.
    assert list(join.process2(fn.Change(add, "new"), context)) == [
        (add, ("left", "new")),
        (fn.RowKind.UPDATE_BEFORE, ("other", None)),
        (fn.RowKind.UPDATE_AFTER, ("other", "new")),
    ]
    from flownet.state import expire

    assert expire(context.state, 20, False) is None
    assert context.state == {}


@pytest.mark.parametrize(
    "build",
    [
        lambda changes: changes.key_by(0).count(),
        lambda changes: changes.key_by(0).max(1),
        lambda changes: changes.key_by(0).top_n(2, by=1),
        lambda changes: changes.join(changes).where(0).equal_to(0).apply(),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_row_that_goes_and_never_came_is_an_error_that_names_it(build: Any, workers: int) -> None:
    env = fn.Environment()
    build(env.from_collection([fn.Change(fn.RowKind.DELETE, ("a", 1))]).as_changelog()).collect()
    with pytest.raises(RetractionError, match=r"-D of a row that is not there: \('a', 1\)") as raised:
        env.execute(workers)
    assert raised.value.operator in ("count", "max", "top_n(2)", "join")
    assert "('a', 1)" in str(raised.value.record)


def test_a_table_refuses_what_it_does_not_hold() -> None:
    table: fn.MaterializedTable[Any] = fn.MaterializedTable()
    table.extend([fn.Change(fn.RowKind.INSERT, ("a", 1)), fn.Change(fn.RowKind.INSERT, ("a", 2))])
    with pytest.raises(ValueError, match="two rows have the key 'a'"):
        table.as_dict(lambda row: row[0])
    assert table.as_dict(lambda row: row[1]) == {1: ("a", 1), 2: ("a", 2)}
    with pytest.raises(RetractionError, match="-U of a row that is not there"):
        table.extend([fn.Change(fn.RowKind.UPDATE_BEFORE, ("b", 1))])


def test_what_cannot_take_anything_back_is_refused_when_it_is_described(env: fn.Environment) -> None:
    changes: Any = env.from_collection([("a", 1)]).as_changelog()
    keyed: Any = changes.key_by(0)
    for handle, name in ((changes, "flat_map"), (changes, "window_all"), (keyed, "window"), (keyed, "reduce")):
        with pytest.raises(RetractionError, match="cannot take back what it made of a row that goes: to_stream"):
            getattr(handle, name)
    with pytest.raises(RetractionError, match=r"count\(\) cannot take back .* key_by\(\) comes before it"):
        _ = changes.count
    with pytest.raises(AttributeError, match="has no attribute 'cuont'"):
        _ = keyed.cuont
    with pytest.raises(ConfigError, match='must be "inner", "left"'):
        changes.join(changes, "outer")
    with pytest.raises(PlanError, match="needs where"):
        changes.join(changes).where(0).apply()
    with pytest.raises(PlanError, match="a stream of changes, or a stream"):
        changes.join(7)
    with pytest.raises(PlanError, match="not ChangelogStream"):
        env.from_collection([1]).union(changes)
