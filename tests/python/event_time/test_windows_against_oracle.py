"""Event-time windows against brute force: any records in any order, any watermarks, any assigner, any lateness."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn

from . import oracle, scripted, streams
from .comparing import Reference, by_key, expected_by_key, plain, unordered
from .oracle import Assigner, Record, Session, Watermark
from .scripted import Item

LATE = fn.OutputTag("late")


def describe(key: str, window: fn.Window, items: list[Item]) -> Iterator[tuple[str, Any, list[int]]]:
    yield key, (window.start_ms, window.end_ms), [item[2] for item in items]


def greater(one: Item, other: Item) -> Item:
    return max(one, other, key=lambda item: item[2])


class Spread(fn.AggregateFunction[Item, tuple[int, int], int]):
    """Difference of the greatest and the least value."""

    def create_accumulator(self) -> tuple[int, int]:
        return 10**9, -(10**9)

    def add(self, value: Item, accumulator: tuple[int, int]) -> tuple[int, int]:
        return min(accumulator[0], value[2]), max(accumulator[1], value[2])

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[1] - accumulator[0]

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return min(one[0], other[0]), max(one[1], other[1])


Apply = Callable[[Any], fn.Stream[Any]]

FUNCTIONS: dict[str, tuple[Apply, Reference]] = {
    "count": (lambda windowed: windowed.count(), len),
    "sum": (lambda windowed: windowed.sum(2), sum),
    "min": (lambda windowed: windowed.min(2), min),
    "max": (lambda windowed: windowed.max(2), max),
    "mean": (lambda windowed: windowed.mean(2), lambda values: sum(values) / len(values)),
    "reduce": (
        lambda windowed: windowed.reduce(greater).map(lambda result: (result[0], result[1], result[2][2])),
        max,
    ),
    "aggregate": (lambda windowed: windowed.aggregate(Spread()), lambda values: max(values) - min(values)),
}
"""Functions of a window, and what they give for a list of values in any order."""


def check_script(
    arrivals: list[Record | Watermark],
    assigner: Assigner,
    lateness: int,
    place: streams.Place,
    chained: bool,
    workers: int,
) -> None:
    """Run all functions over windows of one script, and compare every firing and every late record."""
    outcome = oracle.replay(arrivals, assigner, lateness)
    env = fn.Environment(**place, buffer_timeout="5ms")
    keyed = scripted.play(env, arrivals, chained).key_by(lambda item: item[1])

    def windowed() -> Any:
        window = keyed.window(scripted.window_of(assigner)).allowed_lateness(scripted.ms(lateness))
        return window.side_output_late_data(LATE).with_window()

    collected = {name: apply(windowed()).map(plain).collect() for name, (apply, _) in FUNCTIONS.items()}
    processed = windowed().process(describe)
    all_records, late = processed.collect(), processed.side_output(LATE).collect()
    env.execute(workers)

    for name, (_, reference) in FUNCTIONS.items():
        assert by_key(collected[name]) == expected_by_key(outcome.firings, reference), name
    # Sessions that merge, and slices that windows share, bring records in another order than that of their arrival.
    in_order: Reference = list if isinstance(assigner, oracle.Tumbling) else sorted
    found = {
        key: [(window, in_order(values)) for window, values in firings] for key, firings in by_key(all_records).items()
    }
    assert found == expected_by_key(outcome.firings, in_order)
    assert Counter(late) == Counter(("record", *record) for record in outcome.late)


@settings(max_examples=60)
@given(streams.arrivals(), streams.grids_and_lateness(), streams.places(), st.booleans())
def test_any_stream_fires_as_by_brute_force(
    arrivals: list[Record | Watermark], windows: tuple[Assigner, int], place: streams.Place, chained: bool
) -> None:
    check_script(arrivals, *windows, place, chained, workers=0)


@settings(max_examples=5)
@given(streams.arrivals(), streams.grids_and_lateness(), streams.places(), st.booleans())
def test_any_stream_fires_as_by_brute_force_in_two_workers(
    arrivals: list[Record | Watermark], windows: tuple[Assigner, int], place: streams.Place, chained: bool
) -> None:
    check_script(arrivals, *windows, place, chained, workers=2)


def check_spread(
    records: list[Record],
    assigner: Assigner,
    beyond: int,
    place: streams.Place,
    chained: bool,
    punctual: bool,
    workers: int,
) -> None:
    """Run over subtasks that each have a part of the records, in time all of them, and compare with the batch."""
    bound = scripted.disorder_of(records) + beyond
    strategy = (
        fn.WatermarkStrategy.for_generator(scripted.Punctual(bound))
        if punctual
        else fn.WatermarkStrategy.for_bounded_out_of_orderness(scripted.ms(bound))
    )
    env = fn.Environment(**place, buffer_timeout="5ms")
    keyed = scripted.spread(env, records, strategy, chained).key_by(lambda item: item[1])
    collected = {
        name: apply(keyed.window(scripted.window_of(assigner)).with_window()).map(plain).collect()
        for name, (apply, _) in FUNCTIONS.items()
    }
    env.execute(workers)
    firings = oracle.at_once(records, assigner)
    for name, (_, reference) in FUNCTIONS.items():
        assert unordered(by_key(collected[name])) == unordered(expected_by_key(firings, reference)), name


@settings(max_examples=60)
@given(
    streams.unordered(),
    streams.assigners(),
    st.integers(0, 20),
    streams.places(),
    st.booleans(),
    st.booleans(),
)
def test_records_in_time_give_the_answer_of_a_batch(
    records: list[Record], assigner: Assigner, beyond: int, place: streams.Place, chained: bool, punctual: bool
) -> None:
    check_spread(records, assigner, beyond, place, chained, punctual, workers=0)


@settings(max_examples=5)
@given(streams.unordered(), streams.assigners(), streams.places(), st.booleans(), st.booleans())
def test_records_in_time_give_the_answer_of_a_batch_in_two_workers(
    records: list[Record], assigner: Assigner, place: streams.Place, chained: bool, punctual: bool
) -> None:
    check_spread(records, assigner, 0, place, chained, punctual, workers=2)


@settings(max_examples=30)
@given(streams.arrivals(), streams.grids_and_lateness(), streams.places())
def test_windows_of_the_whole_stream_fire_as_those_of_one_key(
    arrivals: list[Record | Watermark], windows: tuple[Assigner, int], place: streams.Place
) -> None:
    assigner, lateness = windows
    env = fn.Environment(**place, buffer_timeout="5ms")
    stream = scripted.play(env, arrivals)

    def windowed() -> Any:
        return stream.window_all(scripted.window_of(assigner)).allowed_lateness(scripted.ms(lateness)).with_window()

    collected = {
        name: apply(windowed()).map(plain).set_parallelism(1).collect()
        for name, (apply, _) in FUNCTIONS.items()
        if name != "reduce"
    }
    env.execute()
    of_one_key = [arrival._replace(key="") if isinstance(arrival, Record) else arrival for arrival in arrivals]
    firings = oracle.replay(of_one_key, assigner, lateness).firings
    for name, found in collected.items():
        expected = expected_by_key(firings, FUNCTIONS[name][1])
        assert by_key(("", window, value) for window, value in found) == expected, name


@pytest.mark.parametrize("place", [{}, {"state_backend": "disk", "state_memory": "16KiB"}], ids=["memory", "disk"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_many_records_in_disorder_give_the_answer_of_a_batch(
    place: streams.Place, parallelism: int, workers: int
) -> None:
    """Enough for many buffers and many watermarks, over windows of every kind at once."""
    chance = random.Random(12)
    records = [
        Record(f"key {chance.randrange(30)}", chance.randrange(100), number * 10 + chance.randrange(1_000))
        for number in range(10_000)
    ]
    assigners: list[Assigner] = [oracle.Tumbling(1_000, 300), oracle.Sliding(3_000, 700), Session(250)]
    bound = scripted.disorder_of(records)
    env = fn.Environment(parallelism=parallelism, **place)
    strategy = fn.WatermarkStrategy.for_generator(scripted.Punctual(bound))
    keyed = scripted.spread(env, records, strategy).key_by(lambda item: item[1])
    collected: list[Any] = [
        keyed.window(scripted.window_of(each)).with_window().sum(2).map(plain).collect() for each in assigners
    ]
    env.execute(workers)
    for assigner, found in zip(assigners, collected, strict=True):
        assert unordered(by_key(found)) == unordered(expected_by_key(oracle.at_once(records, assigner), sum)), assigner
