"""Base of the generated methods of expressions, which call functions of the registry in Rust."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ..errors import PlanError

E = TypeVar("E")
"""Class of expressions that methods return."""


class Calls(Generic[E]):
    """Object whose methods call functions. The classes in `flownet.rows.functions` derive from it."""

    __slots__ = ()

    def _call(self, function: str, *arguments: Any, **keywords: Any) -> E:
        """Create the call of a function, whose first argument is the column itself."""
        raise NotImplementedError


def shown_arguments(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Format arguments as a user would write them. Those that are left out are not shown."""
    shown = [repr(value) for value in arguments if value is not None]
    shown += [f"{name}={value!r}" for name, value in keywords.items() if value]
    return ", ".join(shown)


def check_bounds(call: str, value: int | None, least: int, most: int | None, rule: str) -> None:
    """Check a constant integer against the bounds of its parameter.

    Raises
    ------
    PlanError
        It is outside.
    """
    if value is not None and (value < least or (most is not None and value > most)):
        raise PlanError(f"{call}: {rule}")
