"""Canonical keys: what is one key to a dict is one key to flownet, in every process."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
import zoneinfo
from collections import Counter
from collections.abc import Callable, Hashable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from flownet.codec import decode, encode_key, key_group, subtask_of
from flownet.errors import CodecError, ConfigError

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)

EQUAL_KEYS: list[list[Hashable]] = [
    [1, True, 1.0, complex(1), Decimal(1), Decimal("1.0"), np.int8(1), np.float32(1), np.True_],
    [0, -0.0, False, Decimal("-0"), complex(-0.0, 0.0)],
    [1.5, Decimal("1.50"), np.float64(1.5)],
    [int(1e30), 1e30, Decimal(int(1e30))],
    [Decimal("0.1"), Decimal("0.10"), Decimal("1E-1")],
    [math.inf, Decimal("Infinity")],
    ["a", np.str_("a")],
    [b"a", np.bytes_(b"a")],
    [(1, "a"), (True, np.str_("a")), (1.0, "a")],
    [frozenset([1, 2, 3]), frozenset([3.0, 2, True])],
    [NOON, NOON.astimezone(BERLIN)],
    [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, fold=1)],
    [dt.time(1), dt.time(1, fold=1)],
    [dt.time(12, tzinfo=dt.UTC), dt.time(13, tzinfo=dt.timezone(dt.timedelta(hours=1)))],
    [
        np.datetime64("2020-01-01"),
        np.datetime64("2020", "Y"),
        np.datetime64("2020-01-01", "ns"),
        np.datetime64("2020-01-01", "us"),
    ],
    [np.datetime64("2020-01-01", "s"), dt.datetime(2020, 1, 1)],
    [np.timedelta64(1, "s"), np.timedelta64(1000, "ms"), dt.timedelta(seconds=1)],
    [np.datetime64(1, "ns"), np.datetime64(1000, "ps")],
    [np.timedelta64(1, "Y"), np.timedelta64(12, "M")],
]

DIFFERENT_KEYS: list[Hashable] = [
    *(None, 0, 1, -1, 2**64, 0.5, "", "1", b"1", (), (1,), ("1",), frozenset(), frozenset([1]), frozenset(["1"])),
    *(Decimal("0.1"), 0.1, 1j, NOON, NOON.replace(tzinfo=None), NOON.date(), dt.time(12), dt.timedelta(1)),
    *(NOON.timetz(), dt.time(23, 30, tzinfo=dt.UTC), dt.time(0, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    *(np.datetime64(1, "ns"), np.timedelta64(1, "ns"), np.datetime64("20200", "Y"), np.timedelta64(1, "Y")),
]

NUMBERS = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.decimals(allow_nan=False, places=3)


@pytest.mark.parametrize("keys", EQUAL_KEYS, ids=lambda keys: repr(keys[0]))
def test_equal_keys_are_equal_bytes(keys: list[Hashable]) -> None:
    assert len(set(keys)) == 1, "the test's own premise"
    assert len({encode_key(key) for key in keys}) == 1


@pytest.mark.parametrize("keys", EQUAL_KEYS, ids=lambda keys: repr(keys[0]))
def test_canonical_bytes_decode_to_an_equal_key(keys: list[Hashable]) -> None:
    canonical = encode_key(keys[-1])
    # A form that begins with 7d is no value: the key itself goes with it.
    assert canonical[0] == 0x7D or decode(canonical) == keys[-1]


def test_different_keys_are_different_bytes() -> None:
    assert len({encode_key(key) for key in DIFFERENT_KEYS}) == len(DIFFERENT_KEYS)


def test_all_nans_are_one_key() -> None:
    assert len({encode_key(nan) for nan in (math.nan, -math.nan, Decimal("NaN"), np.float32("nan"))}) == 1


@given(NUMBERS, NUMBERS)
def test_numbers_are_one_key_exactly_when_they_are_equal(left: Any, right: Any) -> None:
    assert (encode_key(left) == encode_key(right)) == (left == right)


@given(st.frozensets(st.integers() | st.text()))
def test_the_order_of_a_set_does_not_matter(items: frozenset[Any]) -> None:
    assert encode_key(items) == encode_key(frozenset(reversed(list(items))))


@pytest.mark.parametrize("key", [[1], {}, set(), bytearray(), (1, [2])], ids=repr)
def test_an_unhashable_key_is_refused(key: object) -> None:
    with pytest.raises(CodecError, match="a key must be hashable"):
        encode_key(key)


@pytest.mark.parametrize(
    "key",
    [object(), np.zeros(2), Decimal("1E+9999")],
    ids=lambda key: type(key).__name__,
)
def test_a_key_without_canonical_form_is_refused_by_type(key: object) -> None:
    with pytest.raises(CodecError, match="cannot be a key") as caught:
        encode_key(key)
    assert caught.value.type_name is not None


def test_every_process_sends_a_key_to_the_same_subtask() -> None:
    keys = ["to", 1, 1.5, ("a", 2), None, frozenset(["x", "y", "z"])]
    script = f"from flownet.codec import key_group; print([key_group(key, 128) for key in {keys!r}])"
    here = [key_group(key, 128) for key in keys]
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert other.stdout.strip() == str(here)


def test_the_subtask_of_a_key_follows_from_its_group() -> None:
    for key in range(100):
        assert subtask_of(key, 4, 128) == key_group(key, 128) * 4 // 128


def test_keys_spread_over_all_subtasks() -> None:
    assert {subtask_of(f"key {number}", 8) for number in range(1000)} == set(range(8))


@pytest.mark.parametrize(
    "key",
    [
        lambda number: number,
        lambda number: f"{number}",
        lambda number: f"key-{number}",
        lambda number: chr(ord("a") + number % 26) * (1 + number // 26 % 5) + chr(number // 130),
        lambda number: ("a", number),
        lambda number: (number % 7, number // 7),
        float,
    ],
    ids=["ints", "digits", "texts", "letters", "pairs", "grid", "floats"],
)
@pytest.mark.parametrize("subtasks", [2, 3, 4, 8, 16, 128])
@pytest.mark.parametrize("count", [4, 8, 32, 512])
def test_keys_in_a_row_spread_over_key_groups_as_random_ones_do(
    key: Callable[[int], Hashable], subtasks: int, count: int
) -> None:
    # Chi-square over many ranges: for random spreads its mean is one less than the subtasks, and its deviation known.
    ranges = 200
    statistics = []
    for first in range(0, ranges * count, count):
        found = Counter(subtask_of(key(number), subtasks, 2**15) for number in range(first, first + count))
        expected = count / subtasks
        statistics.append(sum(hits**2 for hits in found.values()) / expected - count)
    mean = subtasks - 1
    deviation = math.sqrt(2 * (subtasks - 1) * (1 - 1 / count) / ranges)
    assert abs(sum(statistics) / ranges - mean) < 4 * deviation


@pytest.mark.parametrize("arguments", [(0, 128), (129, 128), (1, 0), (1, 40000)])
def test_numbers_of_subtasks_out_of_range_are_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="allowed are 1 to"):
        subtask_of("key", *arguments)
