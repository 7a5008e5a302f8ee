"""Settings: how they are written, checked and resolved.

A setting can be given in four places. The one nearest to the start of the job wins:

1. ``flownet run --set NAME=VALUE`` (and ``--parallelism``, ``--workers``),
2. the environment variable ``FLOWNET_NAME``,
3. the argument of `Environment` or ``execute()``,
4. the default.

What settings there are, their defaults, bounds and meaning are defined in Rust and read from there.

Durations are written ``"10ms"`` or as ``timedelta``, sizes ``"64MiB"`` or as a number of bytes.
"""

from __future__ import annotations

import enum
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Final, Literal, cast

from .. import _flownet
from ..errors import ConfigError
from ..planning.graph import FlowControl
from ..planning.spec import RateUnit


class Unset(enum.Enum):
    """Marks an argument that was not given, where None has a meaning of its own."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "<default>"


UNSET: Final = Unset.UNSET


def duration_us(setting: str, value: object) -> int:
    """Read a duration as whole microseconds.

    Parameters
    ----------
    setting
        Name for the error text.
    value
        ``"250us"``, ``"10ms"``, ``"5s"``, ``"2min"``, ``"1h"``, ``"1d"``, a ``timedelta``, or the number 0. Any other
        bare number is refused, because its unit would be a guess.

    Raises
    ------
    ConfigError
        Not a duration, negative, or shorter than a microsecond but not 0.
    """
    if isinstance(value, timedelta):
        microseconds = value / timedelta(microseconds=1)
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        microseconds = float(match[1]) * _DURATION_UNITS[match[2]]
    elif _is_number(value) and value == 0:
        return 0
    elif _is_number(value):
        raise _refuse(setting, value, f"needs a unit: write '{value}ms' or '{value}s', or pass a timedelta")
    else:
        raise _refuse(setting, value, "is not a duration such as '10ms', '5s', '2min' or a timedelta")
    if microseconds < 0:
        raise _refuse(setting, value, "must not be negative")
    if 0 < microseconds < 1:
        raise _refuse(setting, value, "is shorter than a microsecond")
    return round(microseconds)


def time_zone(setting: str, value: str | tzinfo) -> str:
    """Read a time zone, by its name in the tz database or as a ``ZoneInfo``, and return its name.

    Raises
    ------
    ConfigError
        There is no such time zone.
    """
    name = value if isinstance(value, str) else getattr(value, "key", None)
    if not isinstance(name, str) or not _flownet.is_time_zone(name):
        raise _refuse(setting, value, "must be a time zone by its name, such as 'Europe/Berlin', or a ZoneInfo")
    return name


def size_bytes(setting: str, value: object) -> int:
    """Read a size as a number of bytes.

    Parameters
    ----------
    setting
        Name for the error text.
    value
        ``"32KiB"``, ``"64MiB"``, ``"1GiB"`` (powers of 1024), ``"64MB"`` (powers of 1000), or a number of bytes.

    Raises
    ------
    ConfigError
        Not a size, not a whole number of bytes, or less than one byte.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size: float = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        size = float(match[1]) * _SIZE_UNITS[match[2]]
    else:
        raise _refuse(setting, value, "is not a size such as '32KiB', '64MiB' or a number of bytes")
    if size < 1 or size != int(size):
        raise _refuse(setting, value, "must be a whole number of bytes, at least 1")
    return int(size)


def whole_number(setting: str, value: object, low: int, high: int) -> int:
    """Check that ``value`` is an integer from ``low`` to ``high``; raise `ConfigError` otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _refuse(setting, value, f"must be a whole number from {low} to {high}")
    if not low <= value <= high:
        raise _refuse(setting, value, f"must lie between {low} and {high}")
    return value


def parallelism(value: object) -> int:
    """Check a number of subtasks, 1 to 32768; raise `ConfigError` otherwise."""
    return cast(int, SETTINGS["parallelism"].check(value))


def workers(setting: str, value: object, low: int = 1) -> int:
    """Check a number of workers, or of one of them, up to what a job can have; raise `ConfigError` otherwise."""
    return whole_number(setting, value, low, SETTINGS["workers"].max)


def text(setting: str, value: object) -> str:
    """Check a text that must not be empty; raise `ConfigError` otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise _refuse(setting, value, "must be a text that is not empty")
    return value


def format_duration(microseconds: int) -> str:
    """Write a duration with the largest unit that keeps it whole: ``5 s``, ``250 ms``."""
    for unit in ("h", "min", "s", "ms"):
        if microseconds and microseconds % _DURATION_UNITS[unit] == 0:
            return f"{microseconds // _DURATION_UNITS[unit]} {unit}"
    return f"{microseconds} us"


def format_size(size: float) -> str:
    """Write a number of bytes with three digits: ``64 MiB``, ``1.50 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    digits = 0 if unit == "B" or size == int(size) else max(0, 2 - int(math.log10(max(size, 1))))
    return f"{size:.{digits}f} {unit}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a job, as Rust defines it."""

    name: str
    """Argument of `Environment`; also the name after ``--set`` and, in capitals, after ``FLOWNET_``."""
    kind: Literal["text", "number", "size", "duration", "choice", "flag", "tls"]
    """What its values are."""
    is_optional: bool
    """None is a value, written ``none`` in text."""
    default: object
    """As Rust takes it: sizes in bytes, durations in microseconds."""
    doc: str
    """What it does, in one line."""
    min: int = 0
    """Smallest number, size in bytes, or duration in microseconds."""
    max: int = 0
    """Largest number, size in bytes, or duration in microseconds."""
    choices: tuple[str, ...] = ()
    """The words to choose from."""

    def check(self, value: object) -> object:
        """Turn a value given in Python into what Rust takes, or raise `ConfigError`."""
        if value is None and self.is_optional:
            return None
        match self.kind:
            case "number":
                return whole_number(self.name, value, self.min, self.max)
            case "size":
                return self._bounded(value, size_bytes(self.name, value), format_size)
            case "duration":
                return self._bounded(value, duration_us(self.name, value), format_duration)
            case "choice":
                return _one_of(*self.choices)(self.name, value)
            case "flag":
                return _flag(self.name, value)
            case "tls":
                return tls(self.name, value)
            case "text":
                return text(self.name, value)

    def check_text(self, written: str) -> object:
        """Turn a value given as text into what Rust takes, or raise `ConfigError`."""
        written = written.strip()
        if written.lower() == "none" and self.is_optional:
            return None
        if self.kind == "flag":
            return self.check({"true": True, "false": False}.get(written.lower(), written))
        is_number = self.kind != "text" and re.fullmatch(r"-?\d+", written)
        return self.check(int(written) if is_number else written)

    def _bounded(self, given: object, amount: int, show: Callable[[int], str]) -> int:
        if amount < self.min:
            raise _refuse(self.name, given, f"must be at least {show(self.min)}")
        if amount > self.max:
            raise _refuse(self.name, given, f"must be at most {show(self.max)}")
        return amount


def resolve(given: Mapping[str, object], overrides: Mapping[str, str]) -> dict[str, object]:
    """Merge defaults, ``given`` arguments, environment variables and command-line ``overrides``.

    Returns
    -------
    dict[str, object]
        Values as Rust takes them, by name.

    Raises
    ------
    ConfigError
        A name is unknown, a value does not fit, or two do not go together.
    """
    for name in (*given, *overrides):
        lookup(name)
    settings: dict[str, object] = {}
    for name, setting in SETTINGS.items():
        variable = f"FLOWNET_{name.upper()}"
        if name in overrides:
            settings[name] = setting.check_text(overrides[name])
        elif variable in os.environ:
            settings[name] = setting.check_text(os.environ[variable])
        elif name in given:
            settings[name] = setting.check(given[name])
        else:
            settings[name] = setting.default
    _flownet.check_settings(settings)
    return settings


def lookup(name: str) -> Setting:
    """Find a setting by name, or raise `ConfigError` that lists the names there are."""
    try:
        return SETTINGS[name]
    except KeyError:
        known = ", ".join(sorted(SETTINGS))
        raise ConfigError(f"unknown setting {name!r}; there are: {known}", setting=name) from None


def parse_assignment(text: str) -> tuple[str, str]:
    """Split ``name=value`` of a command line and check both; raise `ConfigError` otherwise."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r}: write NAME=VALUE, for example buffer_timeout=10ms", value=text)
    name = name.strip().replace("-", "_")
    lookup(name).check_text(value)
    return name, value


def _refuse(setting: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"{setting}={value!r} {why}", setting=setting, value=value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flag(setting: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(setting, value, "must be True or False")
    return value


def _one_of(*allowed: str) -> Callable[[str, object], str]:
    def read(setting: str, value: object) -> str:
        if value not in allowed:
            *others, last = (repr(name) for name in allowed)
            raise _refuse(setting, value, f"must be {', '.join(others)} or {last}")
        return str(value)

    return read


def tls(setting: str, value: object) -> str:
    """Check which connections are encrypted: ``auto``, ``off``, ``on`` or a folder; raise `ConfigError` otherwise."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value.strip():
        raise _refuse(setting, value, "must be 'auto', 'off', 'on' or the folder with tls.crt, tls.key and ca.crt")
    if value in ("auto", "off", "on"):
        return value
    if not os.path.isdir(value):
        raise _refuse(setting, value, "must be 'auto', 'off', 'on' or a folder; there is no such folder")
    return os.path.abspath(value)


def certificates(tls: str, address: str) -> str | None:
    """Make or read the certificates, in PEM, of a process that listens on ``address``; None where ``tls`` has it plain.

    Raises
    ------
    ConfigError
        The address is not numeric, or the certificates in the folder cannot be used.
    """
    return _flownet.certificates(tls, address)


def flow_control(value: object) -> FlowControl:
    """Check a way to control the flow of one exchange; raise `ConfigError` otherwise."""
    if value in ("storm", "pid"):
        raise _refuse("flow_control", value, "acts on the sources of the whole job: set it for the Environment")
    return cast(FlowControl, _one_of("credit", "tcp", "drop", "unbounded")("flow_control", value))


def rate(setting: str, value: object) -> tuple[float, RateUnit]:
    """Read a rate as a number a second and its unit.

    Parameters
    ----------
    setting
        Name for the error text.
    value
        A number of records a second, such as ``1000`` or ``0.5``; ``"1000/s"`` for the same; or ``"2MB/s"`` for bytes a
        second, with the units of sizes.

    Returns
    -------
    tuple[float, str]
        How many a second, and ``"records"`` or ``"bytes"``.

    Raises
    ------
    ConfigError
        Not a rate, or not above 0.
    """
    unit: RateUnit = "records"
    if _is_number(value):
        per_second = float(value)  # type: ignore[arg-type]
    elif isinstance(value, str) and (match := _RATE.fullmatch(value.strip())):
        unit = "bytes" if match[2] else "records"
        per_second = float(match[1]) * _SIZE_UNITS.get(match[2], 1)
    else:
        raise _refuse(setting, value, "is not a rate such as 1000 or '1000/s' (records) or '2MB/s' (bytes)")
    if not 0 < per_second < math.inf:
        raise _refuse(setting, value, "must be above 0 and finite")
    return per_second, unit


_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s|min|m|h|d)")
_DURATION_UNITS: Final = {
    "us": 1,
    "µs": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|kB|KB|MB|GB)")
_SIZE_UNITS: Final = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
}

_RATE: Final = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_SIZE_UNITS)})?\s*/\s*s")

SETTINGS: Final = {
    row["name"]: Setting(**{**row, "choices": tuple(row.get("choices", ()))}) for row in _flownet.settings()
}
"""By name, in the order in which they are shown."""
