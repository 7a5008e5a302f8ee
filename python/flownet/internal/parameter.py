"""Parameters of what is measured: what kind of value each takes, how it is written and how it is counted.

Workloads of experiments have them, and scenarios of the laboratory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ..errors import ConfigError
from . import config

Kind = Literal["count", "number", "duration", "size", "rate", "choice", "flag", "text"]
"""``count``: a whole number; ``number``: any; ``duration``: ``"10ms"``; ``size``: ``"32KiB"``; ``rate``: ``"2MB/s"``;
``choice``: one of a few words; ``flag``: true or false; ``text``: anything else."""

Value = int | float | bool | str | None
"""A checked value: durations in microseconds, sizes in bytes, rates in bytes a second. None is written ``none``."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a `Workload`.

    Parameters
    ----------
    kind
        What it takes.
    doc
        What it does, in a few words.
    default
        Its value where a cell does not set it, as a person would write it. None: the workload finds its own.
    choices
        The words of a ``choice``.
    may_be_none
        ``"none"`` is a value too.
    low, high
        The least and the greatest value, in base units. Default: no bound.
    """

    kind: Kind
    doc: str
    default: int | float | bool | str | None = None
    choices: Sequence[str] = ()
    may_be_none: bool = False
    low: float = -math.inf
    high: float = math.inf

    def read(self, name: str, given: object) -> Value:
        """Check a value and bring it into base units.

        Raises
        ------
        ConfigError
            The value is of another kind, or out of bounds. The text names ``name`` and what is allowed.
        """
        if self.may_be_none and isinstance(given, str) and given.strip().lower() == "none":
            return None
        value = self._read(name, given)
        if isinstance(value, int | float) and not self.low <= value <= self.high:
            raise ConfigError(f"{name}={given!r} must be {self._bounds}", setting=name, value=given)
        return value

    def write(self, value: Value) -> str:
        """Write a checked value the one way in which rows and tables show it; `read` takes most of these."""
        if value is None:
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        if self.kind == "duration":
            return config.format_duration(int(value)) if value else "0"
        if self.kind == "size":
            return _shortest(float(value))
        if self.kind == "rate":
            return f"{_shortest(float(value))}/s"
        return f"{value:.15g}" if isinstance(value, float) else str(value)

    def column(self, name: str) -> str:
        """Name a column for its number, with the unit: ``buffer_timeout_us``."""
        return name + _UNITS.get(self.kind, "")

    @property
    def is_numeric(self) -> bool:
        """Whether a value of it has a place on an axis."""
        return self.kind in ("count", "number", "duration", "size", "rate")

    @property
    def allowed(self) -> str:
        """What it takes, for error texts and lists."""
        words = {
            "count": "a whole number",
            "number": "a number",
            "duration": "a duration such as '10ms'",
            "size": "a size such as '32KiB'",
            "rate": "a speed such as '2MB/s'",
            "flag": "true or false",
            "text": "a text",
            "choice": "one of " + ", ".join(map(repr, self.choices)),
        }[self.kind]
        bounded = ", ".join(filter(None, (words, self._bounds)))
        return f"{bounded} or 'none'" if self.may_be_none else bounded

    @property
    def _bounds(self) -> str:
        least = f"at least {self.write(self.low)}" if self.low > -math.inf else ""
        most = f"at most {self.write(self.high)}" if self.high < math.inf else ""
        return " and ".join(filter(None, (least, most)))

    def _read(self, name: str, given: object) -> Value:
        match self.kind:
            case "duration":
                return config.duration_us(name, 0 if given == "0" else given)
            case "size":
                return config.size_bytes(name, given)
            case "rate" if isinstance(given, str) and (match := _PER_SECOND.fullmatch(given.strip())):
                return config.size_bytes(name, match[1])
            case "choice" if given in self.choices:
                return str(given)
            case "flag" if isinstance(given, bool):
                return given
            case "text" if isinstance(given, str) and given.strip():
                return given
            case "count" if isinstance(given, int) and not isinstance(given, bool):
                return given
            case "number" if isinstance(given, int | float) and not isinstance(given, bool):
                return given
        raise ConfigError(f"{name}={given!r} must be {self.allowed}", setting=name, value=given)


def columns_of(name: str) -> set[str]:
    """Names that the column of a numeric parameter may have."""
    return {name, *(name + unit for unit in _UNITS.values())}


def assigned(written: str, example: str) -> tuple[str, object]:
    """Read ``name=value`` of a command line as TOML would read it; what is no TOML value is a text.

    Raises
    ------
    ConfigError
        It is no assignment; the text shows ``example``.
    """
    import tomllib

    name, equals, value = (part.strip() for part in written.partition("="))
    if not equals:
        raise ConfigError(f"--set {written!r}: write NAME=VALUE, for example {example}", value=written)
    name = name.replace("-", "_")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def _shortest(size: float) -> str:
    """Write a number of bytes exactly, in powers of 1000 or of 1024, whichever is shorter: ``64 KiB``, ``2.5 MB``."""
    written = []
    for units in (("B", "kB", "MB", "GB"), ("B", "KiB", "MiB", "GiB")):
        step = 1000 if "kB" in units else 1024
        power = max(power for power in range(len(units)) if power == 0 or size >= step**power)
        written.append(f"{size / step**power:.15g} {units[power]}")
    return min(written, key=len)


_PER_SECOND: Final = re.compile(r"(.+?)\s*/\s*s")
_UNITS: Final = {"duration": "_us", "size": "_bytes", "rate": "_bytes_per_s"}
