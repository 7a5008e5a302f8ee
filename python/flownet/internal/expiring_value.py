"""Values with a time to live, as they lie in the mapping of a key and in checkpoints."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class ExpiringValue(NamedTuple):
    """A value that expires by the wall clock."""

    value: Any
    expires_ms: int


class EventTimed(NamedTuple):
    """A value that expires by event time."""

    value: Any
    expires_ms: int


EXPIRING: Final = (ExpiringValue, EventTimed)


def without_expiry(held: Any) -> Any:
    """Take off what is kept under a name, or off its parts, the times at which these expire."""
    if isinstance(held, EXPIRING):
        return held.value
    if isinstance(held, list) and any(isinstance(item, EXPIRING) for item in held):
        return [without_expiry(item) for item in held]
    if isinstance(held, dict) and any(isinstance(item, EXPIRING) for item in held.values()):
        return {key: without_expiry(item) for key, item in held.items()}
    return held
