"""Latencies of several runs as one histogram, by the library HdrHistogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..internal.extras import need


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Latencies of some records, in microseconds.

    Parameters
    ----------
    samples
        How many records.
    p50_us, p90_us, p99_us, p999_us
        Half of the records took no longer, nine of ten, 99 of 100, 999 of 1000.
    max_us
        The slowest one.
    curve
        ``(quantile, us)`` from the median to the slowest record, in equal steps of ever rarer ones.
    """

    samples: int
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    curve: Sequence[tuple[float, float]]


def merged(encoded: Sequence[str]) -> Percentiles | None:
    """Add up histograms and read the percentiles of the sum.

    Parameters
    ----------
    encoded
        HdrHistograms of nanoseconds: V2, deflated, base64.

    Returns
    -------
    Percentiles
        Of all their records; None if there are none.
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
    return Percentiles(
        samples=samples,
        p50_us=us(0.5),
        p90_us=us(0.9),
        p99_us=us(0.99),
        p999_us=us(0.999),
        max_us=float(total.get_max_value()) / 1000,
        curve=[(1 - 10**-nines, us(1 - 10**-nines)) for nines in steps],
    )


_STEPS: Final = 60
