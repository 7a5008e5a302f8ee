"""Converts numpy scalars to equal Python values, for JSON and databases."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def plain(value: Any) -> Any:
    """Convert a number, bool, string or bytes of numpy to Python's.

    Other values are returned as they are. So are numpy's times, which may count nanoseconds, and ``longdouble``, which
    may have more digits.
    """
    if type(value) in _PLAIN:
        return value
    # Who has a scalar of numpy has imported it.
    numpy = sys.modules.get("numpy")
    generic = getattr(numpy, "generic", None)
    if generic is None or not isinstance(value, generic):
        return value
    if isinstance(value, numpy.timedelta64 | numpy.longdouble):  # type: ignore[union-attr]
        return value
    kinds = (numpy.bool_, numpy.integer, numpy.floating, numpy.str_, numpy.bytes_)  # type: ignore[union-attr]
    return value.item() if isinstance(value, kinds) else value


def json_default(default: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Make the ``default`` of a JSON encoder that knows numpy's scalars, and asks ``default`` about all else."""

    def of(value: Any) -> Any:
        made = plain(value)
        if made is not value:
            return made
        if default is None:
            raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
        return default(value)

    return of
