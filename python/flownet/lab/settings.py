"""Settings of scenarios: each a field of a dataclass, described by a `Parameter`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from ..errors import ConfigError
from ..internal.parameter import Parameter, Value, assigned


class Settable(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


S = TypeVar("S", bound=Settable)


def rate(default: str, doc: str) -> Any:
    """Declare a speed, written ``2MB/s``; the field is bytes a second."""
    # Parts of the laboratory are Python.
    return _declare(Parameter("rate", doc, default, high=MAX_BYTES_PER_SECOND))


def size(default: str, doc: str) -> Any:
    """Declare a size, written ``5MB``; the field is bytes."""
    return _declare(Parameter("size", doc, default))


def seconds(default: str, doc: str) -> Any:
    """Declare a time, written ``5s``; the field is seconds."""
    return _declare(Parameter("duration", doc, default), unit=1e6)


def count(default: int, doc: str, low: int, high: int) -> Any:
    """Declare a whole number from ``low`` to ``high``."""
    return _declare(Parameter("count", doc, default, low=low, high=high))


def number(default: float, doc: str, low: float, high: float) -> Any:
    """Declare a number from ``low`` to ``high``."""
    return _declare(Parameter("number", doc, default, low=low, high=high))


def parameters(scenario: Settable | type[Settable]) -> dict[str, Parameter]:
    """Describe each setting of a scenario, by name."""
    return {field.name: field.metadata["parameter"] for field in dataclasses.fields(scenario)}


def written(scenario: Settable) -> list[tuple[str, str]]:
    """Write each setting of a scenario as it is, ``speed=2 MB/s``, with what it means."""
    lines = []
    for field in dataclasses.fields(scenario):
        parameter, unit = field.metadata["parameter"], field.metadata["unit"]
        value = getattr(scenario, field.name)
        value = round(value * unit) if unit else value
        lines.append((f"{field.name}={parameter.write(value)}", parameter.doc))
    return lines


def with_values(scenario: S, values: Mapping[str, Value]) -> S:
    """Change settings to values that were checked, in the base units of their parameters."""
    fields = {field.name: field for field in dataclasses.fields(scenario)}
    changes = {name: _of_field(value, fields[name].metadata["unit"]) for name, value in values.items()}
    return dataclasses.replace(scenario, **changes)


def with_settings(scenario: S, assignments: Sequence[str]) -> S:
    """Change settings by what was written on the command line.

    Raises
    ------
    ConfigError
        The text is no assignment, the scenario has no such setting, or the value does not fit.
    """
    known = parameters(scenario)
    values: dict[str, Value] = {}
    for assignment in assignments:
        name, value = assigned(assignment, "seconds=5s")
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}; there are: {', '.join(known)}", setting=name)
        values[name] = known[name].read(name, value)
    return with_values(scenario, values)


def require(is_possible: bool, setting: str, value: object, why: str) -> None:
    """Refuse a value that makes no sense beside the others; raise `ConfigError` unless ``is_possible``."""
    if not is_possible:
        raise ConfigError(f"{setting}={value} {why}", setting=setting, value=value)


def _declare(parameter: Parameter, unit: float | None = None) -> Any:
    default = _of_field(parameter.read("default", parameter.default), unit)
    return dataclasses.field(default=default, metadata={"parameter": parameter, "unit": unit})


def _of_field(value: Any, unit: float | None) -> Any:
    """Bring a value from the base unit of its parameter to that of its field."""
    return value / unit if unit else value


MAX_BYTES_PER_SECOND = 20e6
