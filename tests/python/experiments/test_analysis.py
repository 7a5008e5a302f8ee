"""What is made of rows, against values worked out by hand."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from flownet.experiments import analysis
from flownet.experiments.analysis import Summary


def cell(index: int, repetition: int, parameters: dict[str, str], **figures: float) -> dict[str, Any]:
    """A row, as far as the analysis reads it."""
    return {
        "cell_index": index,
        "cell": ", ".join(f"{name}={value}" for name, value in parameters.items()),
        "repetition": repetition,
        "status": "ok",
        "parameters": parameters,
        "figures": figures,
        "histogram": None,
    }


def test_medians_and_their_intervals() -> None:
    found = [[5.0, 1.0, 3.0], [2.0, 4.0], [7.0], [3.0] * 5, [float(n) for n in range(1, 10)]]
    runs = [
        cell(index, repetition, {}, rate=value)
        for index, values in enumerate(found)
        for repetition, value in enumerate(values)
    ]
    failed = cell(0, 3, {}, rate=1e9) | {"status": "failed"}
    rates = analysis.cells([*runs, failed])["rate"]
    assert [rates[index].median for index in rates] == [statistics.median(values) for values in found]
    # Of 3 runs a draw's median is the least one with probability 7/27, of 2 with 1/4: inside the middle 95 %.
    assert (rates[0].low, rates[0].high) == (1, 5)
    assert (rates[1].low, rates[1].high) == (2, 4)
    assert (rates[2].low, rates[2].high, rates[2].runs) == (7, 7, 1)
    assert (rates[3].low, rates[3].high) == (3, 3)
    # Of 9 runs 1 to 9 a draw's median is at most k with P(Binomial(9, k/9) >= 5): 0.001 for 1, 0.030 for 2.
    # So the 2.5 % point is 2, and by symmetry the 97.5 % point is 8.
    assert (rates[4].low, rates[4].high) == (2, 8)
    assert (rates[4].least, rates[4].greatest) == (1, 9)


def test_an_interval_is_as_wide_as_the_laws_of_chance_say() -> None:
    # Of 100 runs 1 to 100: Binomial(100, k/100) >= 50.5 has 2.5 % at 40.3 and 97.5 % at 60.7.
    summary = Summary.of([float(n) for n in range(1, 101)])
    assert summary.median == 50.5
    assert 39 <= summary.low <= 42
    assert 59 <= summary.high <= 62


def test_the_same_rows_have_the_same_interval_in_any_order() -> None:
    values = [3.5, 1.0, 2.25, 9.0, 4.0, 4.5, 7.0]
    assert Summary.of(values) == Summary.of(values[::-1])


def test_ratios_are_taken_repetition_by_repetition() -> None:
    runs = []
    for repetition, weather in enumerate([1.0, 10.0, 100.0]):
        for place, much in enumerate(["1", "2"]):
            runs.append(cell(2 * place, repetition, {"load": much, "way": "up", "fixed": "x"}, rate=weather))
            runs.append(
                cell(2 * place + 1, repetition, {"load": much, "way": "down", "fixed": "x"}, rate=weather * (place + 2))
            )
    runs[0] = runs[0] | {"status": "failed"}
    found = analysis.ratios(runs, "way", "up", ["load", "way"])
    assert [(ratio.context, ratio.value, ratio.figure) for ratio in found] == [
        ("load=1", "down", "rate"),
        ("load=2", "down", "rate"),
    ]
    assert [(of.runs, of.median, of.low, of.high) for of in (ratio.summary for ratio in found)] == [
        (2, 2, 2, 2),
        (3, 3, 3, 3),
    ]


def test_a_ratio_needs_both_sides_and_something_below_the_line() -> None:
    runs = [
        cell(0, 0, {"way": "up"}, rate=0.0, cost=2.0),
        cell(1, 0, {"way": "down"}, rate=1.0, cost=3.0),
        cell(2, 0, {}, rate=1.0, cost=1.0),
    ]
    (ratio,) = analysis.ratios(runs, "way", "up", ["way"])
    assert (ratio.cell_index, ratio.figure, ratio.context, ratio.summary.median) == (1, "cost", "", 1.5)


def test_the_knee_is_the_point_of_most_throughput_by_latency() -> None:
    curve = {"1": (1.0, 10.0), "2": (2.0, 11.0), "4": (4.0, 12.0), "8": (5.0, 60.0)}
    runs = [
        cell(place, repetition, {"load": much, "way": way}, rate=rate * factor, cost=cost)
        for way, factor in (("up", 1.0), ("down", 2.0))
        for place, (much, (rate, cost)) in enumerate(curve.items())
        for repetition in range(3)
    ]
    found = analysis.knees(runs, "load", ["rate", "cost"], ["load", "way"])
    assert [(point.series, point.cell) for point in found if point.is_knee] == [
        ("way=down", "load=4, way=down"),
        ("way=up", "load=4, way=up"),
    ]
    assert [point.throughput for point in found if point.series == "way=up"] == [1, 2, 4, 5]


def histogram(values_us: Sequence[float]) -> str:
    from hdrh.histogram import HdrHistogram

    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_us:
        made.record_value(int(value * 1000))
    encoded: bytes = made.encode()
    base64.b64decode(encoded, validate=True)
    return encoded.decode()


def test_percentiles_are_those_of_all_records_and_not_the_middle_of_percentiles() -> None:
    # 990 records of 10 us and 10 of 5 ms: p99 of all is 10 us; the mean of the two runs' p99 would be about 2.5 ms.
    runs = [
        cell(0, 0, {"load": "1"}) | {"histogram": histogram([10] * 900)},
        cell(0, 1, {"load": "1"}) | {"histogram": histogram([10] * 90 + [5000] * 10)},
        cell(1, 0, {"load": "2"}),
    ]
    (latency,) = analysis.latencies(runs)
    found = latency.percentiles
    assert (latency.cell, latency.runs, found.samples) == ("load=1", 2, 1000)
    assert [found.p50_us, found.p90_us, found.p99_us] == pytest.approx([10, 10, 10], rel=0.002)
    assert [found.p999_us, found.max_us] == pytest.approx([5000, 5000], rel=0.002)
    assert found.curve[0][0] == pytest.approx(0.5)
    assert [us for _, us in found.curve] == sorted(us for _, us in found.curve)
