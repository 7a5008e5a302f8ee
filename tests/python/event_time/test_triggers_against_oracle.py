"""Triggers and evictors on event time against brute force, and what a window remembers between its firings."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import given, settings, strategies as st

import flownet as fn

from . import oracle, scripted, streams
from .comparing import Reference, by_key, expected_by_key, plain
from .oracle import Assigner, Record, Rule, Session, Watermark
from .scripted import Item

LATE = fn.OutputTag("late")


def describe(key: str, window: fn.Window, items: list[Item]) -> Iterator[tuple[str, Any, list[int]]]:
    yield key, (window.start_ms, window.end_ms), [item[2] for item in items]


def rules() -> st.SearchStrategy[Rule]:
    return st.builds(Rule, every=st.none() | st.integers(1, 5), purging=st.booleans())


def trigger_of(rule: Rule) -> Any:
    trigger: Any = fn.triggers.EventTimeTrigger() if rule.every is None else fn.triggers.CountTrigger(rule.every)
    return fn.triggers.PurgingTrigger(trigger) if rule.purging else trigger


def check(
    arrivals: list[Record | Watermark],
    assigner: Assigner,
    lateness: int,
    rule: Rule,
    place: streams.Place,
    chained: bool,
) -> None:
    outcome = oracle.replay(arrivals, assigner, lateness, rule)
    env = fn.Environment(**place, buffer_timeout="5ms")
    keyed = scripted.play(env, arrivals, chained).key_by(lambda item: item[1])

    def windowed() -> Any:
        window = keyed.window(scripted.window_of(assigner)).trigger(trigger_of(rule))
        window = window.allowed_lateness(scripted.ms(lateness)).side_output_late_data(LATE).with_window()
        return window if rule.keeping is None else window.evictor(fn.triggers.CountEvictor(rule.keeping))

    processed = windowed().process(describe)
    records, late = processed.collect(), processed.side_output(LATE).collect()
    counts = windowed().count().map(plain).collect()
    sums = windowed().aggregate(0, lambda total, item: total + item[2], merge=operator.add).map(plain).collect()
    env.execute()

    # Sessions that merge, and slices that windows share, bring records in another order than that of their arrival.
    in_order: Reference = list if isinstance(assigner, oracle.Tumbling) else sorted
    found = {
        key: [(window, in_order(values)) for window, values in firings] for key, firings in by_key(records).items()
    }
    assert found == expected_by_key(outcome.firings, in_order)
    assert by_key(counts) == expected_by_key(outcome.firings, len)
    assert by_key(sums) == expected_by_key(outcome.firings, sum)
    assert Counter(late) == Counter(("record", *record) for record in outcome.late)


@settings(max_examples=60)
@given(streams.arrivals(), streams.assigners(), st.integers(0, 60), rules(), streams.places(), st.booleans())
def test_any_trigger_fires_as_by_brute_force(
    arrivals: list[Record | Watermark],
    assigner: Assigner,
    lateness: int,
    rule: Rule,
    place: streams.Place,
    chained: bool,
) -> None:
    check(arrivals, assigner, lateness, rule, place, chained)


@settings(max_examples=30)
@given(
    streams.arrivals(),
    streams.assigners().filter(lambda assigner: not isinstance(assigner, Session)),
    st.integers(0, 60),
    st.builds(Rule, every=st.none() | st.integers(1, 5), purging=st.booleans(), keeping=st.integers(1, 4)),
    streams.places(),
)
def test_an_evictor_leaves_the_last_records_of_a_window(
    arrivals: list[Record | Watermark], assigner: Assigner, lateness: int, rule: Rule, place: streams.Place
) -> None:
    check(arrivals, assigner, lateness, rule, place, chained=True)


class Numbered(fn.ProcessWindowFunction[str, Item, Any]):
    """Emits how often its window has fired, and how often any window of its key."""

    def process(self, key: str, ctx: Any, records: list[Item]) -> Iterable[Any]:
        for state in (ctx.window_state, ctx.global_state):
            state["firings"] = state.get("firings", 0) + 1
        yield (
            key,
            (ctx.window.start_ms, ctx.window.end_ms),
            (ctx.window_state["firings"], ctx.global_state["firings"], len(records)),
        )

    def clear(self, ctx: Any) -> None:
        ctx.window_state.clear()


@settings(max_examples=30)
@given(
    streams.arrivals(),
    streams.assigners().filter(lambda assigner: not isinstance(assigner, Session)),
    st.integers(0, 60),
    streams.places(),
)
def test_a_window_remembers_its_firings_and_a_key_those_of_all_its_windows(
    arrivals: list[Record | Watermark], assigner: Assigner, lateness: int, place: streams.Place
) -> None:
    env = fn.Environment(**place, buffer_timeout="5ms")
    keyed = scripted.play(env, arrivals).key_by(lambda item: item[1])
    windowed = keyed.window(scripted.window_of(assigner)).allowed_lateness(scripted.ms(lateness))
    found = windowed.process(Numbered()).collect()
    env.execute()

    of_window, of_key = Counter[Any](), Counter[Any]()
    expected = []
    for key, window, values in oracle.replay(arrivals, assigner, lateness).firings:
        of_window[key, window] += 1
        of_key[key] += 1
        expected.append((key, tuple(window), (of_window[key, window], of_key[key], len(values))))
    assert Counter((key, window, value) for key, all_of_it in by_key(found).items() for window, value in all_of_it) == (
        Counter(expected)
    )
