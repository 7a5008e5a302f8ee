"""Parameters of a workload: what kind of value each takes, how it is written and how it is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .. import config
from ..errors import ConfigError

Kind = Literal["count", "number", "duration", "size", "choice", "flag", "text"]
"""``count``: a whole number; ``number``: any; ``duration``: ``"10ms"``; ``size``: ``"32KiB"``; ``choice``: one of a few
words; ``flag``: true or false; ``text``: anything else."""

Value = int | float | bool | str | None
"""A checked value: durations in microseconds, sizes in bytes. None is written ``none``."""


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
    """

    kind: Kind
    doc: str
    default: int | float | bool | str | None = None
    choices: Sequence[str] = ()
    may_be_none: bool = False

    def read(self, name: str, given: object) -> Value:
        """Check a value and bring it into base units.

        Raises
        ------
        ConfigError
            The value is of another kind. The text names ``name`` and what is allowed.
        """
        if self.may_be_none and isinstance(given, str) and given.strip().lower() == "none":
            return None
        match self.kind:
            case "duration":
                return config.duration_us(name, 0 if given == "0" else given)
            case "size":
                return config.size_bytes(name, given)
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

    def write(self, value: Value) -> str:
        """Write a checked value the one way in which rows and tables show it; `read` takes most of these."""
        if value is None:
            return "none"
        if isinstance(value, bool):
            return str(value).lower()
        if self.kind == "duration":
            return config.format_duration(int(value)) if value else "0"
        if self.kind == "size":
            return config.format_size(int(value))
        return f"{value:.15g}" if isinstance(value, float) else str(value)

    def column(self, name: str) -> str:
        """Name a column for its number, with the unit: ``buffer_timeout_us``."""
        return name + _UNITS.get(self.kind, "")

    @property
    def is_numeric(self) -> bool:
        """Whether a value of it has a place on an axis."""
        return self.kind in ("count", "number", "duration", "size")

    @property
    def allowed(self) -> str:
        """What it takes, for error texts and lists."""
        words = {
            "count": "a whole number",
            "number": "a number",
            "duration": "a duration such as '10ms'",
            "size": "a size such as '32KiB'",
            "flag": "true or false",
            "text": "a text",
            "choice": "one of " + ", ".join(map(repr, self.choices)),
        }[self.kind]
        return f"{words} or 'none'" if self.may_be_none else words


_UNITS: Final = {"duration": "_us", "size": "_bytes"}
