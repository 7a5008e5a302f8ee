"""Days, weeks and months, as users write them: ``"1d"``, ``"2w"``, ``"1mo"``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

CalendarUnit = Literal["day", "week", "month"]


@dataclass(frozen=True, slots=True)
class CalendarPiece:
    """So many days, weeks or months."""

    unit: CalendarUnit
    count: int

    @classmethod
    def parse(cls, text: object) -> CalendarPiece | None:
        """Read ``"1d"``, ``"1w"`` or ``"1mo"``; None if it is something else, or too long to count days in 32 bits."""
        match = _PIECE.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or not 0 < int(match[1]) <= _MOST:
            return None
        return cls(_UNITS[match[2]], int(match[1]))

    @property
    def usual_ms(self) -> int:
        """How long it usually is, in milliseconds; a month counts as 30 days."""
        return self.count * _DAYS[self.unit] * 86_400_000

    def __str__(self) -> str:
        return f"{self.count} {self.unit}{'s' if self.count > 1 else ''}"


_PIECE: Final = re.compile(r"(\d{1,9})\s*(d|w|mo)")
_UNITS: Final[dict[str, CalendarUnit]] = {"d": "day", "w": "week", "mo": "month"}
_DAYS: Final[dict[CalendarUnit, int]] = {"day": 1, "week": 7, "month": 30}
_MOST: Final = 100_000
