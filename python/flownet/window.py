"""Windows: how a keyed stream is cut into finite parts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

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


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """One window for all records of a key, which fires once: when the input has ended.

    For jobs that end, where the running results of `KeyedStream.count` and the like are of no interest. Over an endless
    input it gives nothing and keeps every key.

    Examples
    --------
    >>> import flownet as fn
    >>> env = fn.Environment()
    >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).window(fn.EndOfInput()).count().collect()
    >>> result = env.execute()
    >>> sorted(counts)
    [('be', 1), ('to', 2)]
    """

    @property
    def size_ms(self) -> int:
        """Length in milliseconds: from 1970-01-01 UTC to the end of time, 2**63 - 1."""
        return _END_OF_TIME_MS

    def __str__(self) -> str:
        return "end of input"


_END_OF_TIME_MS: Final = 2**63 - 1
