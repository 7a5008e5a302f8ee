"""Result: what one run of a scenario came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .trace import Trace

Figures = dict[str, Any]
"""What a run comes down to: numbers by name, with the unit; None where there is none."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a scenario under one control."""

    control: str
    trace: Trace
    figures: Figures
    verdict: str
    """What happened, in a clause."""

    def as_json(self) -> dict[str, Any]:
        """As one line of JSON."""
        return {
            "scenario": self.trace.scenario,
            "control": self.control,
            **self.figures,
            "verdict": self.verdict,
        }


def pick(results: Sequence[Result], control: str) -> Result | None:
    """Find the result of a control, if it was run."""
    return next((result for result in results if result.control == control), None)
