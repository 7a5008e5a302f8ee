"""Joins of windows and of intervals against the product of all records, in whatever order these come."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

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
    left: list[Record], right: list[Record], assigner: Assigner, parallelism: int, punctual: bool, workers: int
) -> None:
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
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
@given(streams.unordered(20), streams.unordered(20), WINDOWS, st.sampled_from([1, 2, 3]), st.booleans())
def test_a_join_of_windows_is_their_product(
    left: list[Record], right: list[Record], assigner: Assigner, parallelism: int, punctual: bool
) -> None:
    check_windows(left, right, assigner, parallelism, punctual, workers=0)


@settings(max_examples=4)
@given(streams.unordered(20), streams.unordered(20), WINDOWS, st.sampled_from([1, 2, 3]), st.booleans())
def test_a_join_of_windows_is_their_product_in_two_workers(
    left: list[Record], right: list[Record], assigner: Assigner, parallelism: int, punctual: bool
) -> None:
    check_windows(left, right, assigner, parallelism, punctual, workers=2)


def check_interval(
    left: list[Record], right: list[Record], interval: list[int], parallelism: int, punctual: bool, workers: int
) -> None:
    lower, upper = interval
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    one, other = (timed(env, records, punctual).key_by(lambda item: item[1]) for records in (left, right))
    joined = one.interval_join(other).between(scripted.ms(lower), scripted.ms(upper))
    found = joined.process(pair).collect()
    env.execute(workers)
    assert Counter(found) == Counter(
        pair_of(one, other)
        for one in left
        for other in right
        if one.key == other.key and lower <= other.timestamp - one.timestamp <= upper
    )


INTERVALS = st.tuples(st.integers(-40, 40), st.integers(-40, 40)).map(sorted)


@settings(max_examples=40)
@given(streams.unordered(), streams.unordered(), INTERVALS, st.sampled_from([1, 2, 3]), st.booleans())
def test_a_join_of_intervals_pairs_all_that_are_near_enough(
    left: list[Record], right: list[Record], interval: list[int], parallelism: int, punctual: bool
) -> None:
    check_interval(left, right, interval, parallelism, punctual, workers=0)


@settings(max_examples=4)
@given(streams.unordered(), streams.unordered(), INTERVALS, st.sampled_from([1, 2, 3]), st.booleans())
def test_a_join_of_intervals_pairs_all_that_are_near_enough_in_two_workers(
    left: list[Record], right: list[Record], interval: list[int], parallelism: int, punctual: bool
) -> None:
    check_interval(left, right, interval, parallelism, punctual, workers=2)
