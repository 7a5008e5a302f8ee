"""Numbers with units, for people."""

from __future__ import annotations

import pytest

from flownet.experiments.units import format_number, format_seconds, format_value


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
