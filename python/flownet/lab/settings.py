"""Settings of scenarios: how they are declared, written on the command line and read.

A scenario is a dataclass whose fields are its settings; these functions declare them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from ..config import duration_us, size_bytes
from ..errors import ConfigError


class Settable(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


S = TypeVar("S", bound=Settable)


def rate(default: str, help: str) -> Any:
    """Declare a speed, written ``2MB/s``; the value is bytes a second."""
    return _declare(default, help, _rate)


def size(default: str, help: str) -> Any:
    """Declare a size, written ``5MB``; the value is bytes."""
    return _declare(default, help, lambda name, text: size_bytes(name, _maybe_number(text)))


def seconds(default: str, help: str) -> Any:
    """Declare a time, written ``5s``; the value is seconds."""
    return _declare(default, help, lambda name, text: duration_us(name, _maybe_number(text)) / 1e6)


def number(default: str, help: str, low: float, high: float) -> Any:
    """Declare a plain number, whole if its default is, from ``low`` to ``high``."""

    def read(name: str, text: str) -> float:
        try:
            value = int(text) if default.isdecimal() else float(text)
        except ValueError:
            raise _refuse(name, text, f"is not a {'whole ' if default.isdecimal() else ''}number") from None
        if not low <= value <= high:
            raise _refuse(name, text, f"must lie between {low:g} and {high:g}")
        return value

    return _declare(default, help, read)


def with_settings(scenario: S, assignments: list[str]) -> S:
    """Change settings by what was written on the command line.

    Raises
    ------
    ConfigError
        The text is no assignment, the scenario has no such setting, or the value does not fit.
    """
    fields = {field.name: field for field in dataclasses.fields(scenario)}
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = (part.strip() for part in assignment.partition("="))
        name = name.replace("-", "_")
        if not equals:
            raise ConfigError(f"--set {assignment!r}: write NAME=VALUE, for example seconds=5s", value=assignment)
        if name not in fields:
            raise ConfigError(f"unknown setting {name!r}; there are: {', '.join(fields)}", setting=name)
        values[name] = fields[name].metadata["read"](name, text)
    return dataclasses.replace(scenario, **values)


def described(scenario: type[Settable]) -> list[tuple[str, str, str]]:
    """Name, default as written, and meaning of each setting of a scenario."""
    fields = dataclasses.fields(scenario)
    return [(field.name, field.metadata["written"], field.metadata["help"]) for field in fields]


def require(is_possible: bool, setting: str, value: object, why: str) -> None:
    """Refuse a value that makes no sense beside the others; raise `ConfigError` unless ``is_possible``."""
    if not is_possible:
        raise _refuse(setting, value, why)


def _declare(default: str, help: str, read: Callable[[str, str], Any]) -> Any:
    metadata = {"read": read, "written": default, "help": help}
    return dataclasses.field(default=read("default", default), metadata=metadata)


def _rate(name: str, text: str) -> float:
    match = re.fullmatch(r"(.+?)\s*/\s*s", text)
    if not match:
        raise _refuse(name, text, "is not a speed such as '2MB/s'")
    speed = float(size_bytes(name, match[1]))
    if not (math.isfinite(speed) and speed <= MAX_BYTES_PER_SECOND):
        raise _refuse(
            name, text, f"must be at most {MAX_BYTES_PER_SECOND / 1e6:g}MB/s: parts of the laboratory are Python"
        )
    return speed


def _maybe_number(text: str) -> int | str:
    """Read digits as the number that a script would have given: what then lacks a unit is refused as such."""
    return int(text) if text.isdecimal() else text


def _refuse(setting: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"{setting}={value} {why}", setting=setting, value=value)


MAX_BYTES_PER_SECOND = 20e6
