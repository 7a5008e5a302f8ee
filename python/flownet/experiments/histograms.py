"""Latencies of several runs as one histogram, by the library HdrHistogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from .extras import need

SCHEMA: Final = (
    "samples bigint, p50_us double, p90_us double, p99_us double, p999_us double, max_us double, "
    "curve array<struct<quantile: double, us: double>>"
)
"""Spark's type of what `merged` returns."""


def merged(encoded: Sequence[str]) -> dict[str, Any] | None:
    """Add up histograms and read the percentiles of the sum.

    Parameters
    ----------
    encoded
        HdrHistograms of nanoseconds: V2, deflated, base64.

    Returns
    -------
    dict
        By the names of `SCHEMA`; None of no samples. The curve goes from the median up in equal steps of ever rarer
        records, down to one in all.
    """
    library = need("hdrh.histogram", "merging latency histograms").HdrHistogram
    histograms = [library.decode(text) for text in encoded]
    if not histograms:
        return None
    total, *others = histograms
    for other in others:
        total.add(other)
    samples: int = total.get_total_count()
    if not samples:
        return None

    def us(quantile: float) -> float:
        return float(total.get_value_at_percentile(quantile * 100)) / 1000

    rarest = math.log10(max(samples, 2))
    first = math.log10(2)
    steps = [first + (rarest - first) * step / _STEPS for step in range(_STEPS + 1)]
    return {
        "samples": samples,
        "p50_us": us(0.5),
        "p90_us": us(0.9),
        "p99_us": us(0.99),
        "p999_us": us(0.999),
        "max_us": float(total.get_max_value()) / 1000,
        "curve": [{"quantile": 1 - 10**-nines, "us": us(1 - 10**-nines)} for nines in steps],
    }


_STEPS: Final = 60
