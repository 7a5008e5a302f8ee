"""Times of Python as milliseconds since 1970-01-01 UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds_of(when: datetime) -> int:
    """Return a time in milliseconds since 1970-01-01 UTC, rounded down.

    Raises
    ------
    TypeError
        The time has no time zone, so its instant is unknown.
    """
    if when.tzinfo is None or when.utcoffset() is None:
        raise TypeError(
            f"{when!r} has no time zone, so its instant is unknown: give it one, "
            "as in when.replace(tzinfo=datetime.UTC)"
        )
    return (when - _EPOCH) // _MILLISECOND
