"""The brute-force reference of windows, against cases worked by hand and against itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from . import oracle, streams
from .oracle import Firing, Record, Rule, Session, Sliding, Tumbling, Watermark, Window, at_once, replay


def at(*timestamps: int) -> list[Record | Watermark]:
    """Make records of key "k" whose values are their timestamps."""
    return [Record("k", timestamp, timestamp) for timestamp in timestamps]


def fired(*firings: tuple[int, int, tuple[int, ...]]) -> list[Firing]:
    return [Firing("k", Window(start, end), values) for start, end, values in firings]


def unordered(firings: list[Firing]) -> Counter[Any]:
    return Counter((key, window, tuple(sorted(values))) for key, window, values in firings)


@pytest.mark.parametrize(
    ("assigner", "timestamp", "windows"),
    [
        (Tumbling(10), 0, [(0, 10)]),
        (Tumbling(10), 9, [(0, 10)]),
        (Tumbling(10), 10, [(10, 20)]),
        (Tumbling(10), -1, [(-10, 0)]),
        (Tumbling(10, offset=3), 2, [(-7, 3)]),
        (Tumbling(10, offset=3), 3, [(3, 13)]),
        (Sliding(10, 5), 7, [(0, 10), (5, 15)]),
        (Sliding(10, 5), 10, [(5, 15), (10, 20)]),
        (Sliding(10, 4), 9, [(0, 10), (4, 14), (8, 18)]),
        (Sliding(10, 4), 10, [(4, 14), (8, 18)]),
        (Sliding(10, 5, offset=1), 0, [(-9, 1), (-4, 6)]),
        (Sliding(5, 5), 7, [(5, 10)]),
        (Session(10), 7, [(7, 17)]),
        (Session(lambda value: value + 1), 7, [(7, 15)]),
    ],
)
def test_a_record_belongs_to_the_windows_around_its_timestamp(
    assigner: oracle.Assigner, timestamp: int, windows: list[tuple[int, int]]
) -> None:
    assert assigner.windows(Record("k", timestamp, timestamp)) == windows


def test_a_window_fires_when_the_watermark_reaches_its_last_millisecond() -> None:
    early = replay([*at(1, 5), Watermark(8), *at(9), Watermark(9), *at(12)], Tumbling(10))
    assert early.firings == fired((0, 10, (1, 5, 9)), (10, 20, (12,)))
    assert early.late == []


def test_a_record_for_a_window_that_has_fired_is_late() -> None:
    outcome = replay([*at(1), Watermark(9), *at(9, 10)], Tumbling(10))
    assert outcome.firings == fired((0, 10, (1,)), (10, 20, (10,)))
    assert outcome.late == at(9)


def test_a_record_for_a_window_that_never_was_is_late_all_the_same() -> None:
    assert replay([Watermark(9), *at(9)], Tumbling(10)).late == at(9)


def test_within_the_lateness_each_record_fires_its_window_again_with_all_records() -> None:
    outcome = replay([*at(1), Watermark(9), *at(2, 3), Watermark(13), *at(4), Watermark(14), *at(5)], Tumbling(10), 5)
    assert outcome.firings == fired((0, 10, (1,)), (0, 10, (1, 2)), (0, 10, (1, 2, 3)), (0, 10, (1, 2, 3, 4)))
    assert outcome.late == at(5)


def test_a_first_record_within_the_lateness_fires_at_once() -> None:
    assert replay([Watermark(13), *at(1)], Tumbling(10), 5).firings == fired((0, 10, (1,)))


def test_a_record_that_one_of_its_windows_still_takes_is_not_late() -> None:
    outcome = replay([*at(1), Watermark(10), *at(7)], Sliding(10, 5))
    assert outcome.firings == fired((-5, 5, (1,)), (0, 10, (1,)), (5, 15, (7,)))
    assert outcome.late == []


def test_windows_that_one_watermark_completes_fire_in_the_order_of_their_ends() -> None:
    records = [Record("a", 1, 25), Record("b", 2, 3), Record("a", 3, 13), Record("c", 4, 14)]
    assert replay([*records, Watermark(99)], Tumbling(10)).fired == [
        [Firing("b", Window(0, 10), (2,))],
        [Firing("a", Window(10, 20), (3,)), Firing("c", Window(10, 20), (4,))],
        [Firing("a", Window(20, 30), (1,))],
    ]


def test_a_watermark_that_steps_back_changes_nothing() -> None:
    outcome = replay([*at(1), Watermark(9), Watermark(2), *at(3)], Tumbling(10))
    assert (outcome.firings, outcome.late) == (fired((0, 10, (1,))), at(3))


def test_the_end_of_the_input_completes_every_window() -> None:
    assert replay(at(1), Tumbling(10)).firings == fired((0, 10, (1,)))


def test_a_record_joins_the_sessions_on_both_sides_of_it() -> None:
    assert replay(at(0, 10, 6), Session(7)).firings == fired((0, 17, (0, 10, 6)))
    assert replay(at(0, 15, 6), Session(7)).firings == fired((0, 13, (0, 6)), (15, 22, (15,)))


def test_sessions_that_overlap_are_one_and_those_that_only_touch_are_two() -> None:
    assert replay(at(0, 6), Session(7)).firings == fired((0, 13, (0, 6)))
    assert replay(at(0, 7), Session(7)).firings == fired((0, 7, (0,)), (7, 14, (7,)))
    # In time after the first has fired: as one, they would depend on where the watermark was.
    assert replay([*at(0), Watermark(6), *at(7)], Session(7)).firings == fired((0, 7, (0,)), (7, 14, (7,)))


def test_a_record_within_a_session_does_not_make_it_longer() -> None:
    assert replay([Record("k", 20, 0), Record("k", 2, 5)], Session(lambda value: value)).firings == fired(
        (0, 20, (20, 2))
    )


def test_sessions_of_other_keys_are_others() -> None:
    outcome = replay([Record("a", 1, 0), Record("b", 2, 1)], Session(10))
    assert outcome.firings == [Firing("a", Window(0, 10), (1,)), Firing("b", Window(1, 11), (2,))]


def test_a_session_that_would_be_over_is_saved_by_the_one_it_overlaps() -> None:
    # [-5, 5) is over, [-5, 13) is not.
    outcome = replay([*at(3), Watermark(6), *at(-5), Watermark(12)], Session(10))
    assert (outcome.firings, outcome.late) == (fired((-5, 13, (3, -5))), [])
    alone = replay([Watermark(6), *at(-5)], Session(10))
    assert (alone.firings, alone.late) == ([], at(-5))


def test_a_late_record_that_joins_two_sessions_that_have_fired_fires_the_whole_at_once() -> None:
    outcome = replay([*at(0, 8), Watermark(12), *at(4)], Session(5), lateness=10)
    assert outcome.firings == fired((0, 5, (0,)), (8, 13, (8,)), (0, 13, (0, 8, 4)))


def test_a_session_that_has_fired_and_grows_fires_again_at_its_new_end() -> None:
    outcome = replay([*at(0), Watermark(4), *at(4), Watermark(7), Watermark(8)], Session(5), lateness=10)
    assert outcome.fired == [fired((0, 5, (0,))), fired((0, 9, (0, 4)))]


def test_a_session_is_forgotten_after_its_lateness() -> None:
    outcome = replay([*at(0), Watermark(6), *at(3)], Session(5), lateness=2)
    assert outcome.firings == fired((0, 5, (0,)), (3, 8, (3,)))


def test_a_window_that_purges_fires_with_the_records_since_it_last_did() -> None:
    outcome = replay([*at(1, 2), Watermark(9), *at(3), Watermark(14)], Tumbling(10), 5, Rule(purging=True))
    assert outcome.firings == fired((0, 10, (1, 2)), (0, 10, (3,)))


def test_a_session_that_has_purged_still_grows_and_fires_with_what_came_since() -> None:
    outcome = replay([*at(0), Watermark(4), *at(4), Watermark(8)], Session(5), 10, Rule(purging=True))
    assert outcome.firings == fired((0, 5, (0,)), (0, 9, (4,)))


def test_sessions_that_have_purged_and_are_joined_within_their_time_fire_with_the_new_record_alone() -> None:
    outcome = replay([*at(0, 8), Watermark(12), *at(4), Watermark(20)], Session(5), 10, Rule(purging=True))
    assert outcome.firings == fired((0, 5, (0,)), (8, 13, (8,)), (0, 13, (4,)))


def test_a_window_that_counts_fires_with_every_so_many_records_and_never_at_its_end() -> None:
    outcome = replay([*at(1, 2, 11, 3, 4, 5), Watermark(9)], Tumbling(10), rule=Rule(every=2))
    assert outcome.firings == fired((0, 10, (1, 2)), (0, 10, (1, 2, 3, 4)))
    purging = replay([*at(1, 2, 11, 3, 4, 5), Watermark(9)], Tumbling(10), rule=Rule(every=2, purging=True))
    assert purging.firings == fired((0, 10, (1, 2)), (0, 10, (3, 4)))


def test_sessions_that_count_count_together_once_they_are_merged() -> None:
    outcome = replay(at(0, 1, 10, 11, 5, 12), Session(6), rule=Rule(every=5))
    assert outcome.firings == fired((0, 17, (0, 1, 10, 11, 5)))


def test_a_window_that_keeps_the_last_ones_forgets_the_others_when_it_fires() -> None:
    outcome = replay([*at(1, 2, 3), Watermark(9), *at(4)], Tumbling(10), 5, Rule(keeping=2))
    assert outcome.firings == fired((0, 10, (2, 3)), (0, 10, (3, 4)))


@given(streams.unordered(), streams.assigners())
def test_where_nothing_is_late_the_answer_is_that_of_a_batch(records: list[Record], assigner: oracle.Assigner) -> None:
    outcome = replay(records, assigner)
    assert outcome.late == []
    assert unordered(outcome.firings) == unordered(at_once(records, assigner))


@given(streams.unordered(), streams.assigners(), st.randoms(use_true_random=False))
def test_watermarks_that_tell_the_truth_make_nothing_late(
    records: list[Record], assigner: oracle.Assigner, random: Any
) -> None:
    """After each record may come any watermark that is below all that follow."""
    arrivals: list[Record | Watermark] = []
    for number, record in enumerate(records):
        arrivals.append(record)
        following = [later.timestamp for later in records[number + 1 :]]
        if following and random.random() < 0.5:
            arrivals.append(Watermark(min(following) - random.randint(1, 20)))
    outcome = replay(arrivals, assigner)
    assert outcome.late == []
    assert unordered(outcome.firings) == unordered(at_once(records, assigner))


@given(streams.arrivals(), streams.assigners(), st.integers(0, 40))
def test_every_record_fires_or_is_late(
    arrivals: list[Record | Watermark], assigner: oracle.Assigner, lateness: int
) -> None:
    numbered = [
        arrival._replace(value=(number, arrival.value)) if isinstance(arrival, Record) else arrival
        for number, arrival in enumerate(arrivals)
    ]
    if isinstance(assigner, Session) and callable(assigner.gap):
        assigner = Session(lambda value: streams.gap_of(value[1]))
    outcome = replay(numbered, assigner, lateness)
    in_windows = {value for firing in outcome.firings for value in firing.values}
    late = {record.value for record in outcome.late}
    assert in_windows | late == {arrival.value for arrival in numbered if isinstance(arrival, Record)}
    assert not in_windows & late


@given(streams.arrivals(), streams.assigners(), st.integers(0, 40), st.integers(0, 40))
def test_more_lateness_makes_no_record_late_that_was_not(
    arrivals: list[Record | Watermark], assigner: oracle.Assigner, lateness: int, more: int
) -> None:
    patient, impatient = (replay(arrivals, assigner, allowed) for allowed in (lateness + more, lateness))
    assert not Counter(patient.late) - Counter(impatient.late)
