"""What event-time windows must give, by brute force: plain Python that knows nothing of flownet.

`replay` goes through records and watermarks in the order in which they reach one subtask, and says which windows fire
when, and which records are late. `at_once` looks at the records alone, sorted, as a batch would: where no record is
late, both must agree, in whatever order the records came.

The rules, for a window whose last millisecond is ``end - 1``:

O1. It fires when the watermark reaches ``end - 1``; windows that one watermark completes fire in the order of their
    ends.
O2. It is kept until the watermark reaches ``end - 1 + lateness``. A record that comes between the two fires it again,
    at once, with all its records.
O3. A record is left out of windows that are over (O2), and is late if no window took it.
O4. Windows of a session are merged when they overlap, before anything else is decided: lateness is that of the merged
    window. A merged window that was complete fires at once.
O5. A watermark that steps back changes nothing. At the end of the input all windows are complete.
O6. A `Rule` takes the place of O1: a window fires with each so many records instead of at its end, it forgets the
    records it has fired with, or it forgets all but the last ones before it fires. It has nothing to fire with if it
    has forgotten all; its counter is that of all windows it was merged from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

END_OF_TIME = 2**63 - 1


class Window(NamedTuple):
    """From its first millisecond to the one after its last."""

    start: int
    end: int

    def overlaps(self, other: Window) -> bool:
        return self.start < other.end and other.start < self.end


class Record(NamedTuple):
    key: Hashable
    value: Any
    timestamp: int


class Watermark(NamedTuple):
    timestamp: int


class Firing(NamedTuple):
    """What one window gives once; ``values`` in the order in which they came."""

    key: Hashable
    window: Window
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Tumbling:
    size: int
    offset: int = 0

    def windows(self, record: Record) -> list[Window]:
        start = record.timestamp - (record.timestamp - self.offset) % self.size
        return [Window(start, start + self.size)]


@dataclass(frozen=True)
class Sliding:
    size: int
    slide: int
    offset: int = 0

    def windows(self, record: Record) -> list[Window]:
        last = record.timestamp - (record.timestamp - self.offset) % self.slide
        starts = range(last, record.timestamp - self.size, -self.slide)
        return [Window(start, start + self.size) for start in reversed(starts)]


@dataclass(frozen=True)
class Session:
    """``gap`` in milliseconds, or a function of the record's value."""

    gap: int | Callable[[Any], int]

    def windows(self, record: Record) -> list[Window]:
        gap = self.gap(record.value) if callable(self.gap) else self.gap
        return [Window(record.timestamp, record.timestamp + gap)]


Assigner: TypeAlias = Tumbling | Sliding | Session


@dataclass(frozen=True)
class Rule:
    """When a window fires, and what it keeps; by default at its end, and everything."""

    every: int | None = None
    """Fire with every so many records of the window, and not at its end."""
    purging: bool = False
    """Forget the records that it has fired with."""
    keeping: int | None = None
    """Forget all but the last so many before it fires."""


@dataclass
class Outcome:
    """What came of a stream."""

    fired: list[list[Firing]] = field(default_factory=list)
    """Firings in their order; those within an inner list have one moment and end, and no order among each other."""
    late: list[Record] = field(default_factory=list)
    """Records that no window took, as they came."""

    @property
    def firings(self) -> list[Firing]:
        return [firing for together in self.fired for firing in together]


@dataclass
class _Open:
    """A window that is kept, with its records in the order in which they came."""

    key: Hashable
    window: Window
    arrivals: list[tuple[int, Any]]
    count: int
    """Records since it last fired."""

    def fire(self, rule: Rule) -> Firing:
        self.arrivals.sort(key=lambda arrival: arrival[0])
        if rule.keeping is not None:
            del self.arrivals[: -rule.keeping]
        values = tuple(value for _, value in self.arrivals)
        if rule.purging:
            self.arrivals.clear()
        self.count = 0
        return Firing(self.key, self.window, values)


def replay(
    arrivals: Iterable[Record | Watermark], assigner: Assigner, lateness: int = 0, rule: Rule = Rule()
) -> Outcome:
    """Go through records and watermarks as one subtask sees them; the end of the input follows by itself."""
    outcome = Outcome()
    kept: list[_Open] = []
    now = -END_OF_TIME - 1

    def is_over(window: Window) -> bool:
        return window.end - 1 + lateness <= now

    for number, arrival in enumerate([*arrivals, Watermark(END_OF_TIME)]):
        if isinstance(arrival, Watermark):
            before, now = now, max(now, arrival.timestamp)
            complete = [one for one in kept if before < one.window.end - 1 <= now and one.arrivals]
            complete.sort(key=lambda one: one.window.end)
            for _, together in groupby(complete if rule.every is None else [], key=lambda one: one.window.end):
                outcome.fired.append([one.fire(rule) for one in together])
            kept = [one for one in kept if not is_over(one.window)]
            continue
        taken = False
        for window in assigner.windows(arrival):
            mine = _open_for(arrival.key, window, kept, isinstance(assigner, Session))
            if is_over(mine.window):
                continue
            taken = True
            mine.arrivals.append((number, arrival.value))
            mine.count += 1
            # Those it was merged from are those it covers.
            kept = [one for one in kept if one.key != mine.key or not _covers(mine.window, one.window)] + [mine]
            if mine.count >= rule.every if rule.every is not None else mine.window.end - 1 <= now:
                outcome.fired.append([mine.fire(rule)])
        if not taken:
            outcome.late.append(arrival)
    return outcome


def _open_for(key: Hashable, window: Window, kept: list[_Open], merging: bool) -> _Open:
    """Make what a window becomes with those that are kept already."""
    meets = window.overlaps if merging else window.__eq__
    same = [one for one in kept if one.key == key and meets(one.window)]
    # Two kept ones never overlap, so what overlaps the new window overlaps the merged one, and nothing else does.
    windows = [window, *map(attrgetter("window"), same)]
    merged = Window(min(each.start for each in windows), max(each.end for each in windows))
    together = [arrival for one in same for arrival in one.arrivals]
    return _Open(key, merged, together, sum(one.count for one in same))


def _covers(window: Window, other: Window) -> bool:
    return window.start <= other.start and other.end <= window.end


def at_once(records: Iterable[Record], assigner: Assigner) -> list[Firing]:
    """Compute the windows of a stream in which nothing is late: each fires once, its values sorted by timestamp."""
    found: dict[tuple[Hashable, Window], list[Any]] = {}
    for record in sorted(records, key=attrgetter("timestamp")):
        for window in assigner.windows(record):
            found.setdefault((record.key, window), []).append(record.value)
    if isinstance(assigner, Session):
        found = dict(_merged(found))
    return [Firing(key, window, tuple(values)) for (key, window), values in found.items()]


def _merged(found: dict[tuple[Hashable, Window], list[Any]]) -> Iterator[tuple[tuple[Hashable, Window], list[Any]]]:
    """Merge the windows of each key that overlap: sorted by their starts, each overlaps the ones before or none."""
    for key in {key for key, _ in found}:
        windows = sorted(window for each, window in found if each == key)
        merged, values = windows[0], list(found[key, windows[0]])
        for window in windows[1:]:
            if not window.overlaps(merged):
                yield (key, merged), values
                merged, values = window, []
            merged = Window(merged.start, max(merged.end, window.end))
            values.extend(found[key, window])
        yield (key, merged), values
