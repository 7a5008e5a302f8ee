"""Results of windows and of the oracle, so that they can be compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from .oracle import Firing

Reference: TypeAlias = Callable[[list[int]], Any]
"""What a function of windows gives for the values of one."""


def plain(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make (key, (start, end), value) of a result that has its window, or ((start, end), value) of one without key."""
    *key, window, value = result
    return (*key, (window.start_ms, window.end_ms), value)


def by_key(results: Iterable[tuple[Any, Any, Any]]) -> dict[Any, list[tuple[tuple[int, int], Any]]]:
    """Sort results (key, (start, end), value) by key, and leave those of a key in their order."""
    found = defaultdict(list)
    for key, window, value in results:
        found[key].append((window, value))
    return dict(found)


def expected_by_key(firings: Iterable[Firing], reference: Reference) -> dict[Any, list[tuple[Any, Any]]]:
    found = defaultdict(list)
    for key, window, values in firings:
        found[key].append((tuple(window), reference(list(values))))
    return dict(found)


def unordered(results: dict[Any, list[tuple[Any, Any]]]) -> dict[Any, Counter[Any]]:
    return {key: Counter(of_key) for key, of_key in results.items()}
