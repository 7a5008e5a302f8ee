"""Computes the expected results of the operators of ``overlapping_jobs.py``, by loops over all rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator

from .overlapping_jobs import Record

Result = tuple[int, ...]
Answer = Callable[[list[Record], list[Record]], Iterator[Result]]


def by_key(rows: list[Record]) -> dict[int, list[Record]]:
    found = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[1]):
        found[row[0]].append(row)
    return found


def in_windows(rows: list[Record], size: int, slide: int) -> dict[tuple[int, int], list[int]]:
    """List the numbers of each key and window, by its start."""
    found = defaultdict(list)
    for key, time_ms, n in rows:
        last = time_ms // slide * slide
        for start in range(last, time_ms - size, -slide):
            found[key, start].append(n)
    return found


def in_sessions(rows: list[Record], gap: int) -> Iterator[list[Record]]:
    """List the rows of each session."""
    for of_key in by_key(rows).values():
        session: list[Record] = []
        for row in of_key:
            if session and row[1] >= session[-1][1] + gap:
                yield session
                session = []
            session.append(row)
        yield session


def near(left: list[Record], right: list[Record]) -> Iterator[tuple[Record, Record]]:
    """List the pairs of which the second row is from 20 ms earlier to 30 ms later."""
    others = by_key(right)
    for row in left:
        of_key = others[row[0]]
        first = bisect_left(of_key, row[1] - 20, key=lambda other: other[1])
        last = bisect_right(of_key, row[1] + 30, key=lambda other: other[1])
        for other in of_key[first:last]:
            yield row, other


def tumbling(left: list[Record], _: list[Record]) -> Iterator[Result]:
    for (key, start), numbers in in_windows(left, 50, 50).items():
        yield key, len(numbers), sum(numbers), min(numbers), max(numbers), start


def sliding(left: list[Record], _: list[Record]) -> Iterator[Result]:
    for (key, start), numbers in in_windows(left, 60, 20).items():
        yield key, len(numbers), sum(numbers), start


def timers(left: list[Record], _: list[Record]) -> Iterator[Result]:
    for (key, start), numbers in in_windows(left, 50, 50).items():
        yield key, len(numbers), sum(numbers), start


def sessions(left: list[Record], _: list[Record]) -> Iterator[Result]:
    for rows in in_sessions(left, 7):
        numbers = [n for _, _, n in rows]
        yield rows[0][0], len(rows), sum(numbers), rows[0][1], rows[-1][1] + 7


def best(left: list[Record], _: list[Record]) -> Iterator[Result]:
    times = {n: time_ms for _, time_ms, n in left}
    for (key, _start), in_window in in_windows(left, 200, 200).items():
        for n in sorted(in_window)[-3:]:
            yield key, times[n], n


def windows_of_windows(left: list[Record], _: list[Record]) -> Iterator[Result]:
    for (key, start), numbers in in_windows(left, 200, 200).items():
        yield key, len(numbers), sum(numbers), start


def interval_join(left: list[Record], right: list[Record]) -> Iterator[Result]:
    for row, other in near(left, right):
        yield row[0], row[2], other[2]


def window_join(left: list[Record], right: list[Record]) -> Iterator[Result]:
    others = in_windows(right, 20, 20)
    for (key, start), numbers in in_windows(left, 20, 20).items():
        for n in numbers:
            for m in others.get((key, start), []):
                yield key, n, m


def session_join(left: list[Record], right: list[Record]) -> Iterator[Result]:
    # Numbers of the right are negative here, to tell the sides apart.
    both = left + [(key, time_ms, -1 - m) for key, time_ms, m in right]
    for rows in in_sessions(both, 4):
        for key, _, n in rows:
            for _, _, m in rows:
                if n >= 0 > m:
                    yield key, n, -1 - m


def as_of_join(left: list[Record], right: list[Record]) -> Iterator[Result]:
    versions = by_key(right)
    for key, time_ms, n in left:
        place = bisect_right(versions[key], time_ms, key=lambda version: version[1])
        yield key, n, versions[key][place - 1][2] if place else -1


def joined_windows(left: list[Record], right: list[Record]) -> Iterator[Result]:
    pairs = [(row[0], max(row[1], other[1]), other[2]) for row, other in near(left, right)]
    for (key, start), numbers in in_windows(pairs, 50, 50).items():
        yield key, len(numbers), sum(numbers), start


ANSWERS: dict[str, Answer] = {
    "tumbling": tumbling,
    "sliding": sliding,
    "sessions": sessions,
    "best": best,
    "windows_of_windows": windows_of_windows,
    "interval_join": interval_join,
    "window_join": window_join,
    "session_join": session_join,
    "as_of_join": as_of_join,
    "joined_windows": joined_windows,
    "timers": timers,
}


def answer(operator: str, left: list[Record], right: list[Record]) -> list[str]:
    """Compute the results of an operator, as lines."""
    return [" ".join(map(str, result)) for result in ANSWERS[operator](left, right)]
