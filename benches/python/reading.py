"""A class in a module of its own, which workers import."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Reading:
    """What a sensor says."""

    sensor: str
    time: int
    value: float
