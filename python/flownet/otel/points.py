"""Flownet's metrics as OpenTelemetry has them: names, units, and points of time series.

Names are those of ``/metrics`` by a rule, so a collector that hands them to Prometheus gives the same names again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

Point = tuple[Mapping[str, str], Any]
"""Labels, and a number; of a histogram ``(count, sum, max, bounds, buckets)``."""

Family = tuple[str, str, str, Iterable[Point]]
"""Name, what it means, kind, points: as ``_flownet.JobMetrics`` gives them."""


def named(name: str) -> tuple[str, str]:
    """Give the name and the unit of a metric.

    Parameters
    ----------
    name
        As Rust has it: ``subtask_watermark_lag_seconds``.
    """
    unit = next((unit for word, unit in _IN_FRONT.items() if word in name.split("_")), "")
    for ending, of_ending in _ENDINGS.items():
        if name.endswith(ending):
            name, unit = name.removesuffix(ending), of_ending
    return "flownet." + name.replace("_", ".", 1), unit


def metric(family: Family, since: Callable[[Mapping[str, str]], int], now_ns: int) -> Metric:
    """Make a metric of a family.

    Parameters
    ----------
    family
        The family.
    since
        When the counter with these labels began to count, in nanoseconds since the epoch.
    now_ns
        When it was measured.
    """
    told, help_text, kind, points = family
    name, unit = named(told)
    data: Sum | Gauge | Histogram
    if kind == "histogram":
        spreads = [_spread(labels, value, since(labels), now_ns) for labels, value in points]
        data = Histogram(spreads, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [NumberDataPoint(labels, since(labels), now_ns, value) for labels, value in points]
        data = Gauge(numbers) if kind == "gauge" else Sum(numbers, AggregationTemporality.CUMULATIVE, True)
    return Metric(name, help_text, unit, data)


def _spread(labels: Mapping[str, str], value: Any, began_ns: int, now_ns: int) -> HistogramDataPoint:
    count, total, greatest, bounds, buckets = value
    # Nobody notes the least; the protocol has it as one that may be missing, which the class does not say.
    least: Any = None
    return HistogramDataPoint(labels, began_ns, now_ns, count, total, buckets, bounds, least, greatest)


_ENDINGS: Final = {"_seconds": "s", "_ratio": "1"}
"""Units that names do not have there."""

_IN_FRONT: Final = {
    "bytes": "By",
    **{
        f"{noun}s": f"{{{noun}}}"
        for noun in (
            "buffer",
            "checkpoint",
            "collection",
            "file",
            "record",
            "restart",
            "row",
            "segment",
            "thread",
            "worker",
        )
    },
}
"""Words of names that are what is counted."""
