"""Values with a time to live, as they lie in the mapping of a key and in checkpoints."""

from __future__ import annotations

from typing import Any, NamedTuple


class Timed(NamedTuple):
    """A value that expires."""

    value: Any
    expires_ms: int


def without_expiry(held: Any) -> Any:
    """Take off what is kept under a name, or off its parts, the times at which these expire."""
    if isinstance(held, Timed):
        return held.value
    if isinstance(held, list) and any(isinstance(item, Timed) for item in held):
        return [without_expiry(item) for item in held]
    if isinstance(held, dict) and any(isinstance(item, Timed) for item in held.values()):
        return {key: without_expiry(item) for key, item in held.items()}
    return held
