"""Sessions that take records behind their end, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st

from . import streams
from .oracle import Assigner, Record, Rule, Session, Watermark
from .test_triggers_against_oracle import check
from .test_windows_against_oracle import check_script

SESSIONS = streams.assigners().filter(lambda assigner: isinstance(assigner, Session))


@pytest.mark.parametrize("place", streams.BOTH)
@pytest.mark.parametrize("lateness", [1, 20])
def test_a_session_that_grows_behind_its_end_fires_once_more(lateness: int, place: streams.Place) -> None:
    """Not a second time with the next watermark."""
    arrivals: list[Record | Watermark] = [Watermark(45), Record("a", 0, 26), Record("a", 0, 6), Watermark(46)]
    check_script(arrivals, Session(20), lateness, place, True, workers=0)


@settings(max_examples=80)
@given(streams.arrivals(), SESSIONS, st.integers(1, 60), streams.places(), st.booleans())
@example([Watermark(145), Record("a", 0, 145), Record("a", 0, 144)], Session(1), 1, {}, False)
def test_sessions_take_late_records_as_by_brute_force(
    arrivals: list[Record | Watermark], assigner: Assigner, lateness: int, place: streams.Place, chained: bool
) -> None:
    check_script(arrivals, assigner, lateness, place, chained, workers=0)


@settings(max_examples=80)
@given(streams.arrivals(), SESSIONS, st.integers(1, 60), streams.places(), st.booleans(), st.none() | st.integers(1, 5))
def test_sessions_with_triggers_take_late_records_as_by_brute_force(
    arrivals: list[Record | Watermark],
    assigner: Assigner,
    lateness: int,
    place: streams.Place,
    purging: bool,
    every: int | None,
) -> None:
    check(arrivals, assigner, lateness, Rule(every=every, purging=purging), place, True)
