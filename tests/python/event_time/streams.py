"""Streams for the property tests: records and watermarks in the order in which they reach one subtask."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import strategies as st

from .oracle import Assigner, Record, Session, Sliding, Tumbling, Watermark

KEYS = ["a", "b", "c"]

# Small numbers, so that records share windows, and sessions meet; some before 1970.
_TIMES = st.integers(-40, 160)


def records() -> st.SearchStrategy[Record]:
    return st.builds(Record, st.sampled_from(KEYS), st.integers(-50, 50), _TIMES)


def unordered(max_size: int = 40) -> st.SearchStrategy[list[Record]]:
    """Records in any order."""
    return st.lists(records(), max_size=max_size)


def arrivals(max_size: int = 40) -> st.SearchStrategy[list[Record | Watermark]]:
    """Records and watermarks in any order: records that are late, watermarks that step back or stay."""
    return st.lists(records() | st.builds(Watermark, _TIMES), max_size=max_size)


@st.composite
def assigners(draw: st.DrawFn) -> Assigner:
    """Tumbling and sliding windows, with and without an offset, and sessions of one gap or of one by record."""
    match draw(st.sampled_from(["tumbling", "sliding", "session", "session by record"])):
        case "tumbling":
            size = draw(st.integers(1, 50))
            return Tumbling(size, draw(st.integers(0, size - 1)))
        case "sliding":
            slide = draw(st.integers(1, 20))
            return Sliding(draw(st.integers(slide, 60)), slide, draw(st.integers(0, slide - 1)))
        case "session":
            return Session(draw(st.integers(1, 30)))
        case _:
            return Session(gap_of)


@st.composite
def grids_and_lateness(draw: st.DrawFn) -> tuple[Assigner, int]:
    """Tumbling and sliding windows with any lateness, and sessions that allow none."""
    assigner = draw(assigners())
    return assigner, 0 if isinstance(assigner, Session) else draw(st.just(0) | st.integers(0, 60))


def gap_of(value: int) -> int:
    """Give the gap of a record by its value: 1 to 21 ms."""
    return 1 + abs(value) % 21


Place: TypeAlias = dict[str, Any]
"""Settings that results must not depend on: how many subtasks there are, and where their state lies."""


BOTH: list[Place] = [{}, {"state_backend": "disk", "state_memory": "1KiB"}]
"""State in memory, or on disk with room in memory for a key or two."""


def places() -> st.SearchStrategy[Place]:
    """Few subtasks, with state in memory or on disk."""
    return st.builds(
        lambda parallelism, place: {"parallelism": parallelism, **place},
        st.sampled_from([1, 2, 3]),
        st.sampled_from(BOTH),
    )
