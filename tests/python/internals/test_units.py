"""Numbers with units, for people."""

from __future__ import annotations

import pytest

from flownet.internal.units import event_time, format_number, format_seconds, format_share, format_value, listed


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (182_300_000, "records/s", "182 M records/s"),
        (950, "records/s", "950 records/s"),
        (999.8, "records/s", "1.00 k records/s"),
        (37.2, "us", "37.2 us"),
        (1200, "us", "1.20 ms"),
        (2.9e9, "B/s", "2.90 GB/s"),
        (8.9, "ns", "8.90 ns"),
        (0.42, "", "0.420"),
        (0, "us", "0 us"),
        (1500, "MB", "1.50 GB"),
        (float("nan"), "us", "- us"),
        (None, "us", "-"),
        (1_940_000, "/s", "1.94 M/s"),
        (7.4, "/s", "7.40 /s"),
        (0, "/s", "0 /s"),
    ],
)
def test_a_value_has_three_digits_and_a_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_numbers_keep_three_digits() -> None:
    assert [format_number(value) for value in (0.01234, 1.0, 99.96, 1234.5, -2.5)] == [
        "0.0123",
        "1.00",
        "100",
        "1,234",
        "-2.50",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (185, "3:05 min"), (3723, "1:02:03 h")])
def test_times_are_written_as_on_a_clock(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_shares_are_percent_and_none_is_a_dash() -> None:
    assert [format_share(share) for share in (0.984, 0.0, 1.0, None)] == ["98%", "0%", "100%", "-"]
    assert format_number(None) == "-"


def test_names_are_joined_as_in_a_sentence() -> None:
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_event_time_may_be_of_any_year_and_of_none() -> None:
    assert event_time(0, 1e9) == "1970-01-01 00:00:00, 11,574 days behind the wall clock"
    assert event_time(-(2**63) + 1, 59.94) == f"{-(2**63) + 1:,} ms, 59.9 s behind the wall clock"
