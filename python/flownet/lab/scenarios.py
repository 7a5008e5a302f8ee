"""The scenarios there are."""

from __future__ import annotations

from typing import Final

from .buffer_timeout import BufferTimeout
from .head_of_line import HeadOfLine
from .overflow import Overflow
from .propagation import Propagation
from .scenario import Scenario
from .skew import Skew
from .varying import VaryingScenario

SCENARIOS: Final[dict[str, type[Scenario]]] = {
    scenario.name: scenario for scenario in (Overflow, HeadOfLine, Propagation, BufferTimeout, VaryingScenario, Skew)
}
"""In the order in which ``flownet lab all`` runs them."""
