"""Classes of all kinds, in a module that can be imported."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import pydantic

T = TypeVar("T")


@dataclasses.dataclass
class Reading:
    sensor: str
    value: float
    tags: list[str] = dataclasses.field(default_factory=list)
    count: ClassVar[int] = 0

    @functools.cached_property
    def doubled(self) -> float:
        return 2 * self.value


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    row: int
    column: int
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Named(Generic[T]):
    name: str
    what: T


@dataclasses.dataclass(frozen=True)
class Further(Named[int]):
    more: int = 0


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Pair(collections.namedtuple("Pair", "left right")):  # no __slots__: instances have a dict
    @property
    def sum(self) -> Any:
        return self.left + self.right


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"
    CRIMSON = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 7


class Word(str, enum.Enum):  # noqa: UP042 - the old way is what is tested
    YES = "yes"

    def __str__(self) -> str:
        return "a word"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Mode(enum.IntFlag):
    A = 1
    B = 2


@attrs.define
class Open:
    name: str
    size: int = 0


@attrs.frozen
class Closed:
    name: str
    size: int = attrs.field(default=0, eq=False)


@attrs.frozen(slots=False)
class Loose:
    name: str


class Model(pydantic.BaseModel):
    name: str
    size: int = 0
    _secret: int = pydantic.PrivateAttr(default=5)


class Frozen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="allow")
    name: str
    size: int = 0


class Holds(pydantic.BaseModel, Generic[T]):
    model_config = pydantic.ConfigDict(frozen=True)
    what: T


class Slow:
    """No dataclass or the like."""


@dataclasses.dataclass
class Guarded:
    value: int

    def __getstate__(self) -> dict[str, int]:
        return {"value": self.value}


@dataclasses.dataclass
class Checked:
    value: int

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def other(self) -> int:
        return self.value


class Fail(Exception):
    """Made by a __new__ of its own."""


@dataclasses.dataclass(frozen=True)
class Folded:
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folded) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())


@dataclasses.dataclass(eq=False)
class Itself:
    text: str
