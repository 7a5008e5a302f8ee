from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st

from flownet.lab.pace import Pace, Pacer

STALLING = Pace([(0, 100), (2, 0), (6, 50)], until=10)

paces = st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 1e7)), min_size=1, max_size=6).map(
    lambda steps: Pace([(sum(length for length, _ in steps[:at]), speed) for at, (_, speed) in enumerate(steps)], 30)
)


def test_amounts_add_up_over_the_steps() -> None:
    assert [STALLING.amount(second) for second in (0, 1, 2, 4, 6, 8)] == [0, 100, 200, 200, 200, 300]
    assert [STALLING.speed(second) for second in (0, 1.9, 2, 5.9, 6, 9)] == [100, 100, 0, 0, 50, 50]


def test_what_does_not_fit_before_a_stall_is_done_after_it() -> None:
    assert STALLING.time_of(150) == 1.5
    assert STALLING.time_of(225) == 6.5


def test_nothing_holds_back_after_the_end() -> None:
    assert STALLING.amount(1000) == STALLING.amount(10) == 400
    assert STALLING.time_of(1e9) == 10
    assert Pace([(0, 0)], until=3).time_of(1) == 3


@given(paces, st.floats(0, 1e8))
def test_the_time_of_an_amount_is_when_it_has_been_done_and_not_before(pace: Pace, amount: float) -> None:
    second = pace.time_of(amount)
    assert 0 <= second <= pace.until
    assert pace.amount(second) == pytest.approx(min(amount, pace.amount(pace.until)), rel=1e-6, abs=1e-3)


def test_a_pacer_takes_as_long_as_the_pace_says(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + 1.2 * seconds))
    pacer = Pacer(Pace([(0, 1000)], until=100), lambda: now[0])
    for _ in range(1000):
        pacer.work(10)
    # Sleeps that are too long are made up for.
    assert now[0] == pytest.approx(10, abs=0.02)


def test_a_pacer_does_not_make_up_for_a_pause_in_which_nobody_took_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    pacer = Pacer(Pace([(0, 1000)], until=100), lambda: now[0])
    for _ in range(100):
        pacer.work(10)
    assert now[0] == pytest.approx(6, abs=0.03)


def test_a_pace_travels_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(STALLING)).amount(7) == STALLING.amount(7)
