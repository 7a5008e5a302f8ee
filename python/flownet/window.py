"""Windows: how a keyed stream is cut into finite parts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .config import duration_us, format_duration
from .errors import ConfigError


@dataclass(frozen=True, slots=True, init=False)
class Tumbling:
    """Windows of one fixed size, side by side, on processing time.

    A record belongs to the window in which it arrives. Windows are aligned to 1970-01-01 UTC, so ``Tumbling("1h")``
    begins on the hour; each fires when its end has passed, and the one that is open when the input ends fires then.

    Parameters
    ----------
    size
        Length of a window, at least one millisecond: ``"5s"``, ``"250ms"`` or a ``timedelta``.

    Raises
    ------
    ConfigError
        ``size`` is not a duration, or not a whole number of milliseconds.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Tumbling("5s").size_ms
    5000
    """

    size_ms: int
    """Length of a window in milliseconds."""

    def __init__(self, size: str | timedelta) -> None:
        microseconds = duration_us("size", size)
        if microseconds < 1000 or microseconds % 1000:
            raise ConfigError(
                f"Tumbling({size!r}): must be a whole number of milliseconds, at least 1", setting="size", value=size
            )
        object.__setattr__(self, "size_ms", microseconds // 1000)

    def __str__(self) -> str:
        return format_duration(self.size_ms * 1000)
