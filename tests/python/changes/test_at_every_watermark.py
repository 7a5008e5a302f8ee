"""The sum of the changes is the answer over the rows that have come, at every watermark and not only at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet import testing

from .histories import Row, histories, rows_of
from .test_changes import GROUPS, KINDS, joined

History: TypeAlias = list[fn.Change[Row]]
Seen: TypeAlias = tuple[int, fn.Change[Any]]
"""A change of a result, and how far event time had come in the subtask that emitted it."""

EVERY = 4
"""So many changes come between two watermarks."""
SHAPES = st.tuples(st.sampled_from([1, 2, 3]), st.booleans())
"""Parallelism, and whether operators share tasks."""


class WithWatermark(fn.ProcessFunction[Any, Seen]):
    """Says of each change how far event time had come."""

    def process(self, value: Any, ctx: fn.RecordContext) -> list[Seen]:
        return [(ctx.current_watermark(), value)]


def script(history: History) -> list[testing.Step]:
    """A watermark behind every so many changes: behind the n-th it is n, whose timestamp each change has."""
    steps: list[testing.Step] = []
    for number, change in enumerate(history, 1):
        steps.append(testing.Record(change, number))
        if number % EVERY == 0:
            steps.append(testing.Watermark(number))
    return steps


def played(env: fn.Environment, history: History, chained: bool) -> fn.streams.ChangelogStream[Row]:
    """In one subtask: behind several, rows of a key may have come for which event time has not."""
    changes = env.from_script(script(history)).as_changelog().set_parallelism(1)
    if chained:
        return changes
    return changes.disable_chaining().filter(lambda row: True).set_parallelism(1).disable_chaining()


def with_watermarks(changes: fn.streams.ChangelogStream[Any]) -> fn.Stream[Seen]:
    """In the task that emits them: elsewhere event time is that of whoever is furthest behind."""
    return changes.to_stream().process(WithWatermark())


def until(seen: list[Seen], watermark: int) -> Counter[Any]:
    """Add up what was emitted before this watermark."""
    return rows_of(change for at, change in seen if at < watermark)


def check_group(name: str, history: History, shape: tuple[int, bool], workers: int) -> None:
    (build, batch), (parallelism, chained) = GROUPS[name], shape
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    results = with_watermarks(build(played(env, history, chained).key_by(0))).collect()
    env.execute(workers)
    seen = list(results)
    for watermark in range(EVERY, len(history) + 1, EVERY):
        assert until(seen, watermark) == batch(rows_of(history[:watermark]))
    assert rows_of(change for _, change in seen) == batch(rows_of(history))


# Behind a second exchange the watermarks of several subtasks come together: there only a subtask of its own is exact.
ONE_EXCHANGE = sorted(name for name in GROUPS if name not in ("counts of counts", "the best of the sums"))


@settings(max_examples=50)
@given(st.sampled_from(ONE_EXCHANGE), histories(40), SHAPES)
def test_groups_are_right_at_every_watermark(name: str, history: History, shape: tuple[int, bool]) -> None:
    check_group(name, history, shape, workers=0)


@settings(max_examples=6)
@given(st.sampled_from(ONE_EXCHANGE), histories(40), SHAPES)
def test_groups_are_right_at_every_watermark_in_two_workers(
    name: str, history: History, shape: tuple[int, bool]
) -> None:
    check_group(name, history, shape, workers=2)


@settings(max_examples=10)
@given(st.sampled_from(sorted(set(GROUPS) - set(ONE_EXCHANGE))), histories(40), st.booleans())
def test_groups_of_groups_are_right_at_every_watermark(name: str, history: History, chained: bool) -> None:
    check_group(name, history, (1, chained), workers=0)


def of_key(history: History, key: str) -> History:
    return [change for change in history if change.value[0] == key]


def prefixes(history: History, key: str, watermark: int) -> list[Counter[Row]]:
    """What there may be of a key when event time has come so far: all that came before, and any of what came later."""
    least = len(of_key(history[:watermark], key))
    changes = of_key(history, key)
    return [rows_of(changes[:count]) for count in range(least, len(changes) + 1)]


def check_join(how: Any, left: History, right: History, shape: tuple[int, bool], workers: int) -> None:
    parallelism, chained = shape
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    sides = [played(env, history, chained) for history in (left, right)]
    results = with_watermarks(sides[0].join(sides[1], how).where(0).equal_to(0).apply()).collect()
    env.execute(workers)
    seen = list(results)
    # Event time of the join is that of the side that is behind; of the other side more may have come.
    for watermark in range(EVERY, min(len(left), len(right)) + 1, EVERY):
        found = until(seen, watermark)
        for key in "abc":
            of_this = Counter({pair: count for pair, count in found.items() if (pair[0] or pair[1])[0] == key})
            possible = product(prefixes(left, key, watermark), prefixes(right, key, watermark))
            assert any(of_this == joined(how, *rows) for rows in possible)
    assert rows_of(change for _, change in seen) == joined(how, rows_of(left), rows_of(right))


@settings(max_examples=50)
@given(st.sampled_from(KINDS), histories(30), histories(30), SHAPES)
def test_joins_are_right_at_every_watermark(how: Any, left: History, right: History, shape: tuple[int, bool]) -> None:
    check_join(how, left, right, shape, workers=0)


@settings(max_examples=6)
@given(st.sampled_from(KINDS), histories(30), histories(30), SHAPES)
def test_joins_are_right_at_every_watermark_in_two_workers(
    how: Any, left: History, right: History, shape: tuple[int, bool]
) -> None:
    check_join(how, left, right, shape, workers=2)


@settings(max_examples=60)
@given(st.sampled_from(KINDS), histories(30), histories(30), st.randoms())
def test_joins_are_exact_at_every_watermark_step_by_step(how: Any, left: History, right: History, chance: Any) -> None:
    """With nothing under way there is one answer: over all that has come."""
    build: Callable[..., Any] = lambda one, other: (  # noqa: E731
        one.as_changelog().join(other.as_changelog(), how).where(0).equal_to(0).apply()
    )
    with testing.Harness(build) as harness:
        sides, given, emitted = [list(left), list(right)], list[History]([[], []]), list[fn.Change[Any]]()
        now = 0
        while any(sides):
            side = chance.choice([side for side in (0, 1) if sides[side]])
            now += 1
            given[side].append(sides[side].pop(0))
            emitted += harness.send(given[side][-1], now, input=side)
            if chance.random() < 0.3:
                emitted += harness.watermark(now)
                assert rows_of(emitted) == joined(how, *map(rows_of, given))
        emitted += harness.end()
        assert rows_of(emitted) == joined(how, rows_of(left), rows_of(right))
