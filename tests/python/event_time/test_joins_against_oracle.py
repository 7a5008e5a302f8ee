"""Joins of windows and of intervals against the product of all records, in whatever order these come."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import given, settings, strategies as st

import flownet as fn

from . import oracle, scripted, streams
from .oracle import Assigner, Record, Session
from .scripted import Item

WINDOWS = streams.assigners().filter(
    lambda assigner: not isinstance(assigner, Session) or isinstance(assigner.gap, int)
)


def timed(env: fn.Environment, records: list[Record], punctual: bool) -> fn.Stream[Item]:
    bound = scripted.disorder_of(records)
    strategy = (
        fn.WatermarkStrategy.for_generator(scripted.Punctual(bound))
        if punctual
        else fn.WatermarkStrategy.for_bounded_out_of_orderness(scripted.ms(bound))
    )
    return scripted.spread(env, records, strategy)


def pair(one: Item, other: Item) -> tuple[str, int, int, int, int]:
    return one[1], one[2], one[3], other[2], other[3]


def pair_of(one: Record, other: Record) -> tuple[Any, ...]:
    return one.key, one.value, one.timestamp, other.value, other.timestamp


def check_windows(
    left: list[Record], right: list[Record], assigner: Assigner, place: streams.Place, punctual: bool, workers: int
) -> None:
    env = fn.Environment(**place, buffer_timeout="5ms")
    joined = timed(env, left, punctual).join(timed(env, right, punctual))
    by_key = joined.where(lambda item: item[1]).equal_to(lambda item: item[1])
    found = by_key.window(scripted.window_of(assigner)).apply(pair).collect()
    env.execute(workers)

    both = [record._replace(value=(side, record)) for side, records in enumerate((left, right)) for record in records]
    expected = Counter(
        pair_of(one, other)
        for _, _, values in oracle.at_once(both, assigner)
        for side, one in values
        for other_side, other in values
        if (side, other_side) == (0, 1)
    )
    assert Counter(found) == expected


@settings(max_examples=40)
@given(streams.unordered(20), streams.unordered(20), WINDOWS, streams.places(), st.booleans())
def test_a_join_of_windows_is_their_product(
    left: list[Record], right: list[Record], assigner: Assigner, place: streams.Place, punctual: bool
) -> None:
    check_windows(left, right, assigner, place, punctual, workers=0)


@settings(max_examples=4)
@given(streams.unordered(20), streams.unordered(20), WINDOWS, streams.places(), st.booleans())
def test_a_join_of_windows_is_their_product_in_two_workers(
    left: list[Record], right: list[Record], assigner: Assigner, place: streams.Place, punctual: bool
) -> None:
    check_windows(left, right, assigner, place, punctual, workers=2)


@dataclass(frozen=True)
class Between:
    """How far apart records are that meet."""

    lower: int
    upper: int
    excludes_lower: bool
    excludes_upper: bool

    def holds(self, apart: int) -> bool:
        is_above = self.lower < apart if self.excludes_lower else self.lower <= apart
        return is_above and (apart < self.upper if self.excludes_upper else apart <= self.upper)

    def of(self, join: fn.streams.IntervalJoin[Item, Item]) -> fn.streams.BoundedJoin[Item, Item]:
        bounded = join.between(scripted.ms(self.lower), scripted.ms(self.upper))
        if self.excludes_lower:
            bounded = bounded.lower_bound_exclusive()
        return bounded.upper_bound_exclusive() if self.excludes_upper else bounded


def intervals() -> st.SearchStrategy[Between]:
    ends = st.tuples(st.integers(-40, 40), st.integers(-40, 40)).map(sorted)
    drawn = st.builds(lambda ends, *excludes: Between(ends[0], ends[1], *excludes), ends, st.booleans(), st.booleans())
    return drawn.filter(lambda between: any(between.holds(apart) for apart in range(-40, 41)))


@dataclass(frozen=True)
class Shape:
    """How a job runs, which its results must not depend on."""

    place: streams.Place
    chained: bool
    punctual: bool


SHAPES = st.builds(Shape, streams.places(), st.booleans(), st.booleans())


def keyed(env: fn.Environment, records: list[Record], shape: Shape) -> fn.KeyedStream[str, Item]:
    stream = timed(env, records, shape.punctual)
    return (stream if shape.chained else stream.disable_chaining()).key_by(lambda item: item[1])


def check_interval(left: list[Record], right: list[Record], between: Between, shape: Shape, workers: int) -> None:
    env = fn.Environment(**shape.place, buffer_timeout="5ms")
    join = keyed(env, left, shape).interval_join(keyed(env, right, shape))
    found, tuples = between.of(join).process(pair).collect(), between.of(join).process().collect()
    env.execute(workers)
    expected = Counter(
        pair_of(one, other)
        for one in left
        for other in right
        if one.key == other.key and between.holds(other.timestamp - one.timestamp)
    )
    assert Counter(found) == expected
    assert Counter(pair(*both) for both in tuples) == expected


@settings(max_examples=40)
@given(streams.unordered(), streams.unordered(), intervals(), SHAPES)
def test_a_join_of_intervals_pairs_all_that_are_near_enough(
    left: list[Record], right: list[Record], between: Between, shape: Shape
) -> None:
    check_interval(left, right, between, shape, workers=0)


@settings(max_examples=4)
@given(streams.unordered(), streams.unordered(), intervals(), SHAPES)
def test_a_join_of_intervals_pairs_all_that_are_near_enough_in_two_workers(
    left: list[Record], right: list[Record], between: Between, shape: Shape
) -> None:
    check_interval(left, right, between, shape, workers=2)


def one_version_at_a_time(records: list[Record]) -> list[Record]:
    """Which of several versions at one time is the last that came, the order of many senders decides."""
    return list({(record.key, record.timestamp): record for record in records}.values())


def check_as_of(
    left: list[Record], right: list[Record], how: Literal["inner", "left"], shape: Shape, workers: int
) -> None:
    right = one_version_at_a_time(right)
    env = fn.Environment(**shape.place, buffer_timeout="5ms")
    joined = keyed(env, left, shape).as_of_join(keyed(env, right, shape), how)
    found = joined.process().collect()
    env.execute(workers)

    def version_of(one: Record) -> Record | None:
        versions = (other for other in right if other.key == one.key and other.timestamp <= one.timestamp)
        return max(versions, key=lambda other: other.timestamp, default=None)

    expected = Counter((one[:3], None if (version := version_of(one)) is None else version[:3]) for one in left)
    if how == "inner":
        expected = Counter({both: count for both, count in expected.items() if both[1] is not None})
    assert Counter((one[1:], None if other is None else other[1:]) for one, other in found) == expected
    # Of one key they come in the order of their times.
    for key in {one[1] for one, _ in found}:
        times = [one[3] for one, _ in found if one[1] == key]
        assert times == sorted(times)


@settings(max_examples=40)
@given(streams.unordered(), streams.unordered(), st.sampled_from(["inner", "left"]), SHAPES)
def test_a_join_as_of_finds_the_newest_version(
    left: list[Record], right: list[Record], how: Literal["inner", "left"], shape: Shape
) -> None:
    check_as_of(left, right, how, shape, workers=0)


@settings(max_examples=4)
@given(streams.unordered(), streams.unordered(), st.sampled_from(["inner", "left"]), SHAPES)
def test_a_join_as_of_finds_the_newest_version_in_two_workers(
    left: list[Record], right: list[Record], how: Literal["inner", "left"], shape: Shape
) -> None:
    check_as_of(left, right, how, shape, workers=2)
