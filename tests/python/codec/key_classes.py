"""Classes whose instances are keys in two processes."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from flownet.codec import encode_key


class Colour(enum.Enum):
    """No int."""

    RED = 1


class Point(NamedTuple):
    """A tuple."""

    x: int


@dataclasses.dataclass(frozen=True)
class Key:
    """All of it."""

    colour: Colour
    point: Point
    words: frozenset[str]


def keys() -> list[bytes]:
    """Encode some."""
    key = Key(Colour.RED, Point(1), frozenset(["a", "b", "c"]))
    return [encode_key(each) for each in (key, key.colour, key.point)]
