"""Describes classes for the object codec, which moves their instances.

Rust asks once a class, and never for a record. Instances of the classes known here travel as their class, by number,
and what they hold: they are put together again without calling ``__init__``, as pickle does it too. A class that has a
say in how it is pickled (``__reduce__``, ``__getstate__`` and so on) is left to pickle.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import io
import pickle
from collections.abc import Callable
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any, Literal

from . import pickling
from .class_names import class_name, key_name
from .classes import PICKLE_HOOKS, slots
from .loaded_modules import loaded

Kind = Literal["tuple", "enum", "flag", "attributes", "model", "opaque"]
"""NamedTuple; Enum; Flag; dataclass or attrs class; pydantic model; anything else, for pickle alone."""


@dataclasses.dataclass(slots=True, frozen=True)
class Description:
    """A class as the codec sees it."""

    kind: Kind
    refusal: str = ""
    """Why instances of an opaque class do not travel by the typed codec, if there is more to say than that."""
    in_dict: tuple[str, ...] = ()
    """Attributes in the dict of an instance, fields of a NamedTuple, names of an Enum."""
    in_slots: tuple[str, ...] = ()
    """Attributes in slots."""
    has_dict: bool = False
    """Whether instances have a dict."""
    members: tuple[Any, ...] = ()
    """Of an Enum, as named by ``in_dict``."""
    identity: str = ""
    """Module and qualified name of the class: the same in every process and run."""
    name: str = ""
    """What stands for the class in keys: that of the class which its instances are compared by."""
    key: tuple[Any, ...] | str | None = None
    """What makes instances equal: names of attributes; for an Enum, the plain value that each member equals, or itself;
    None, its value; a text: why instances cannot be keys."""


def describe(cls: Any) -> Description:
    """Say how instances of ``cls`` travel, and what they are as keys."""
    if issubclass(cls, enum.Enum):
        description = _enum(cls)
    elif issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        description = _named_tuple(cls)
    elif (model := _pydantic_model()) is not None and issubclass(cls, model):
        description = _with_attributes("model", cls, tuple(cls.__pydantic_fields__), _model_key(cls, model))
    elif dataclasses.is_dataclass(cls):
        description = _with_attributes("attributes", cls, _names(dataclasses.fields(cls)), _attributes_key(cls))
    elif (attributes := getattr(cls, "__attrs_attrs__", None)) is not None:
        description = _with_attributes("attributes", cls, _names(attributes), _attributes_key(cls))
    else:
        description = Description("opaque")
    identity = class_name(cls)
    return dataclasses.replace(description, identity=identity, name=description.name or key_name(cls))


def dumps(value: object, classes: Any) -> tuple[bytes, list[type]]:
    """Pickle ``value`` with its classes by number, and list those."""
    buffer = io.BytesIO()
    pickler = _pickler(buffer)
    pickler.classes = classes
    pickler.dump(value)
    return buffer.getvalue(), pickler.met


def loads(data: bytes, classes: Any) -> Any:
    """Undo `dumps`."""
    unpickler = _Unpickler(io.BytesIO(data))
    unpickler.classes = classes
    return unpickler.load()


def numpy_time_key(value: Any) -> datetime | timedelta | tuple[str, int]:
    """Turn a ``datetime64`` or ``timedelta64`` into what it equals, or a name and a number that equals share."""
    import numpy as np

    is_instant = value.dtype.kind == "M"
    if np.isnat(value):
        return ("numpy:NaT", int(is_instant))
    unit, count = np.datetime_data(value.dtype)
    if unit in ("Y", "M") and not is_instant:
        return ("numpy:months", int(value.astype("i8")) * count * (12 if unit == "Y" else 1))
    if unit in ("Y", "M"):
        value, unit, count = value.astype("M8[D]"), "D", 1
    # A number without a unit is none of time: it is told apart from all others.
    ticks = int(value.astype("i8")) * count * _ATTOSECONDS.get(unit, 1)
    micros, rest = divmod(ticks, _ATTOSECONDS["us"])
    if rest == 0 and unit in _ATTOSECONDS:
        with contextlib.suppress(OverflowError):
            delta = timedelta(microseconds=micros)
            return datetime(1970, 1, 1) + delta if is_instant else delta
    return (f"numpy:{'instant' if is_instant else 'duration' if unit in _ATTOSECONDS else 'generic'}", ticks)


_ATTOSECONDS = {
    "W": 604_800 * 10**18,
    "D": 86_400 * 10**18,
    "h": 3_600 * 10**18,
    "m": 60 * 10**18,
    **{unit: 1000**power for power, unit in enumerate(("as", "fs", "ps", "ns", "us", "ms", "s"))},
}


def dump_class(cls: type) -> bytes:
    """Pickle a class: those of importable modules by name, those of the main script by value."""
    return pickling.dumps(cls)


def _enum(cls: Any) -> Description:
    plain = next((plain for base, plain in _PLAIN.items() if cls.__eq__ is base.__eq__), None)
    key: tuple[Any, ...] | str | None
    if plain is None and cls.__eq__ is not object.__eq__:
        key = _OWN_EQUALITY
    elif issubclass(cls, enum.Flag):
        key = None if plain is None else ()
    else:
        key = tuple(member if plain is None else plain(member) for member in cls)
    if issubclass(cls, enum.Flag):
        return Description("flag", key=key)
    return Description("enum", in_dict=tuple(member.name for member in cls), members=tuple(cls), key=key)


_PLAIN: dict[type, Callable[[Any], object]] = {
    int: int.__int__,
    str: str.__str__,
    float: float.__float__,
    bytes: bytes.__bytes__,
}
"""What the members of an Enum may equal, and how to get at it past what the Enum itself says."""
_OWN_EQUALITY = "its class says itself what is equal; give the fields that make it so as a tuple"


def _named_tuple(cls: Any) -> Description:
    hook = _own_hook(cls)
    if hook is not None:
        return _opaque(hook)
    is_plain = cls.__eq__ is tuple.__eq__ and cls.__hash__ is tuple.__hash__
    return Description("tuple", in_dict=cls._fields, has_dict=_has_dict(cls), key=() if is_plain else _OWN_EQUALITY)


def _with_attributes(kind: Kind, cls: Any, fields: tuple[str, ...], key: tuple[str, ...] | str) -> Description:
    hook = _own_hook(cls)
    if hook is not None:
        return _opaque(hook)
    if cls.__new__ is not object.__new__:
        return Description("opaque", "it is made by a __new__ of its own")
    in_slots = tuple(dict.fromkeys(slots(cls)))
    in_dict = tuple(name for name in fields if name not in in_slots)
    has_dict, origin = _has_dict(cls), _origin_name(cls)
    for name in in_dict:
        if hasattr(type(_looked_up(cls, name)), "__set__"):
            return Description("opaque", f"its {name} is no plain attribute")
    if kind == "model":
        # Together, and the set of names first: see the codec.
        in_slots = ("__pydantic_fields_set__", *(name for name in in_slots if name != "__pydantic_fields_set__"))
    if isinstance(key, tuple):
        # In an order that stays when fields change places.
        key = tuple(sorted(key))
    return Description(kind, in_dict=in_dict, in_slots=in_slots, has_dict=has_dict, key=key, name=origin)


def _looked_up(cls: Any, name: str) -> object:
    """Look up what a class and its bases have under a name, without binding it."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _attributes_key(cls: Any) -> tuple[str, ...] | str:
    if cls.__hash__ is None:
        return "its class is not hashable: make it frozen, such as by @dataclass(frozen=True)"
    owner = next(base for base in cls.__mro__ if "__eq__" in vars(base))
    if owner is object:
        return "no two of its class are equal; let the class compare fields, such as by @dataclass(frozen=True)"
    fields = vars(owner).get("__dataclass_fields__")
    if fields is not None:
        compared = [field for field in dataclasses.fields(owner) if field.compare]
        return _names(compared) if _same_code(owner.__eq__, _equality_of(_names(compared))) else _OWN_EQUALITY
    attributes = vars(owner).get("__attrs_attrs__")
    if attributes is not None and _code_file(owner.__eq__).startswith("<attrs generated"):
        equal = [attribute for attribute in attributes if attribute.eq]
        return _OWN_EQUALITY if any(attribute.eq_key for attribute in equal) else _names(equal)
    return _OWN_EQUALITY


def _equality_of(names: tuple[str, ...]) -> object:
    """Make the ``__eq__`` of a dataclass that compares these fields."""
    return dataclasses.make_dataclass("_", names).__eq__


def _same_code(function: object, other: object) -> bool:
    if not isinstance(function, FunctionType) or not isinstance(other, FunctionType):
        return False
    one, two = function.__code__, other.__code__
    return (one.co_code, one.co_names, one.co_consts) == (two.co_code, two.co_names, two.co_consts)


def _model_key(cls: Any, model: Any) -> tuple[str, ...] | str:
    if cls.__hash__ is None:
        return "its class is not hashable: make it frozen, by model_config = ConfigDict(frozen=True)"
    if cls.__eq__ is not model.__eq__:
        return _OWN_EQUALITY
    return (*cls.__pydantic_fields__, "__pydantic_private__", "__pydantic_extra__")


def _pydantic_model() -> Any:
    """Find pydantic's base class, if somebody has imported it."""
    model = getattr(loaded("pydantic"), "BaseModel", None)
    return model if hasattr(model, "model_validate") else None  # from 2.0 on


def _origin_name(cls: Any) -> str:
    """Name the class that equality goes by: a pydantic model with its types filled in equals the one without."""
    metadata = getattr(cls, "__pydantic_generic_metadata__", None) or {}
    return key_name(metadata.get("origin") or cls)


def _opaque(hook: str) -> Description:
    return Description("opaque", f"its class has a {hook} of its own, which only pickle asks")


def _own_hook(cls: Any) -> str | None:
    """Find a method by which the class changes what pickling makes of its instances."""
    for base in cls.__mro__:
        if base in (object, tuple, _pydantic_model()):
            continue
        for name in PICKLE_HOOKS:
            if name in vars(base) and not _is_generated(vars(base)[name]):
                return name
    return None


def _is_generated(hook: object) -> bool:
    """Say whether a library made the method, which then says nothing that the codec does not know."""
    attrs = loaded("attr._make")
    libraries = [module.__file__ for module in (collections, dataclasses, attrs) if module is not None]
    return _code_file(hook) in libraries


def _code_file(function: object) -> str:
    return function.__code__.co_filename if isinstance(function, FunctionType) else ""


def _has_dict(cls: Any) -> bool:
    return bool(cls.__dictoffset__)


def _names(fields: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


class _Unpickler(pickle.Unpickler):
    classes: Any

    def persistent_load(self, number: int) -> type:
        found: type = self.classes.class_of(number)
        return found


_made: list[Callable[[io.BytesIO], Any]] = []


def _pickler(buffer: io.BytesIO) -> Any:
    """Make a pickler that gives classes by number. Its base is imported when the first value asks for it."""
    if not _made:

        class Pickler(pickling.pickler_class()):  # type: ignore[misc] # made as it is asked for
            classes: Any

            def __init__(self, file: io.BytesIO) -> None:
                super().__init__(file)
                self.met: list[type] = []

            def persistent_id(self, value: object) -> int | None:
                if not isinstance(value, type) or value.__module__ == "builtins":
                    return None
                number: int | None = self.classes.number_of(value)
                if number is not None:
                    self.met.append(value)
                return number

        _made.append(Pickler)
    return _made[0](buffer)
