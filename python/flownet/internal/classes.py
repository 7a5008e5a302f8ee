"""What classes say of their instances beside their dict: slots, and methods that pickling asks."""

from __future__ import annotations

from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Final

PICKLE_HOOKS: Final = (
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
)
"""Methods by which a class changes what pickling makes of its instances."""


def slots(cls: type) -> Iterator[str]:
    """Name the slots of a class and its bases, theirs first. One that two of them have is there, and named, twice."""
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, MemberDescriptorType) and name == value.__name__:
                yield name
