"""Windows of so many records, against the list of each key's records cut in pieces."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn

PAIRS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=60)


def by_key(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    found = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def counted(pairs: list[tuple[str, int]], size: int, slide: int | None) -> dict[str, list[list[int]]]:
    """Give the last ``size`` records of a key with each ``slide`` records, and with what is left at the end."""
    found = {}
    for key, values in by_key(pairs).items():
        step = size if slide is None else slide
        ends = [*range(step, len(values), step), len(values)]
        starts = [end - size for end in ends] if slide is not None else range(0, len(values), size)
        found[key] = [values[max(0, start) : end] for start, end in zip(starts, ends, strict=True)]
    return found


def check(pairs: list[tuple[str, int]], size: int, slide: int | None, parallelism: int, workers: int) -> None:
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    keyed = env.from_collection(pairs).key_by(lambda pair: pair[0])
    records = keyed.count_window(size, slide).process(lambda key, window, pairs: [(key, [value for _, value in pairs])])
    collected, counts = records.collect(), keyed.count_window(size, slide).count().collect()
    env.execute(workers)
    expected = counted(pairs, size, slide)
    assert by_key(list(collected)) == expected
    assert by_key(list(counts)) == {key: [len(values) for values in pieces] for key, pieces in expected.items()}


@settings(max_examples=60)
@given(PAIRS, st.integers(1, 8), st.none() | st.integers(1, 8), st.sampled_from([1, 2, 3]))
def test_any_records_are_cut_as_lists_are(
    pairs: list[tuple[str, int]], size: int, slide: int | None, parallelism: int
) -> None:
    check(pairs, size, slide, parallelism, workers=0)


@pytest.mark.parametrize("slide", [None, 3])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_many_records_are_cut_as_lists_are(parallelism: int, slide: int | None, workers: int) -> None:
    check([(f"key {number % 71}", number) for number in range(10_000)], 7, slide, parallelism, workers)
