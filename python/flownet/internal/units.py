"""Formats measurements with three digits and a suitable unit. `config` formats settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final


def format_value(value: float | None, unit: str) -> str:
    """Write a value with three digits and a unit that fits: ``182 M records/s``, ``1.20 ms``; of none ``-``."""
    if value is None:
        return "-"
    factor, prefixed = scale(value, unit)
    return f"{format_number(value / factor)} {prefixed}".strip()


def scale(largest: float, unit: str) -> tuple[float, str]:
    """Choose a unit for values up to ``largest``: what to divide them by, and how it is called."""
    steps = _STEPS.get(unit)
    if steps is None:
        steps = [(factor, f"{prefix} {unit}") for factor, prefix in _PREFIXES] if unit.endswith("/s") else [(1.0, unit)]
    for factor, name in reversed(steps):
        if abs(largest) >= factor * 0.9995:
            return factor, name.strip()
    return steps[0][0], steps[0][1].strip()


def pressure(back_pressured: float) -> str:
    """Return the back-pressure level of a task: ``OK``, ``LOW`` or ``HIGH``."""
    return "OK" if back_pressured <= 0.10 else "LOW" if back_pressured <= 0.50 else "HIGH"


def heading(name: str, unit: str) -> str:
    """Name a figure and the unit it is shown in, once: ``p99, ms`` for ``p99_us`` in milliseconds."""
    for suffix in ("_us", "_ns", "_mb", "_bytes"):
        name = name.removesuffix(suffix)
    return f"{name}, {unit}" if unit else name


def format_number(value: float | None) -> str:
    """Write three digits, and all of those in front of the point: ``0.420``, ``18.2``, ``1,820``; ``-`` of none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded if abs(rounded) < 1000 else value:,.{min(digits, 5)}f}"


def format_share(value: float | None) -> str:
    """Format a share as a percentage: ``98%``, or ``-`` for None."""
    return "-" if value is None else f"{value:.0%}"


def format_seconds(seconds: float) -> str:
    """Format a duration as a clock does: ``7 s``, ``3:05 min``, ``1:02:03 h``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"


def event_time(watermark_ms: int, lag_seconds: float) -> str:
    """Format a watermark and its lag to the wall clock."""
    try:
        when = f"{_EPOCH + timedelta(milliseconds=watermark_ms):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        when = f"{watermark_ms:,} ms"
    direction = "behind" if lag_seconds >= 0 else "ahead of"
    return f"{when}, {_long(abs(lag_seconds))} {direction} the wall clock"


def listed(names: Sequence[str]) -> str:
    """Join names: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _long(seconds: float) -> str:
    """Write a time that may be years."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return format_seconds(seconds) if seconds < _DAY else f"{seconds / _DAY:,.0f} days"


_DAY: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1)
_PREFIXES: Final = [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")]
_STEPS: Final = {
    "us": [(1.0, "us"), (1e3, "ms"), (1e6, "s")],
    "ns": [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")],
    "s": [(1e-6, "us"), (1e-3, "ms"), (1.0, "s")],
    "MB": [(1.0, "MB"), (1e3, "GB")],
    "B": [(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")],
    "/s": [(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")],
    "B/s": [(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")],
}
