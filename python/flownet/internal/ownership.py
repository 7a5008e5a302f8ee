"""Finds mutable parts of objects of a type, which the runtime has to copy."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import struct
import types
import uuid
import weakref
from typing import Final, Literal

from .classes import PICKLE_HOOKS, slots
from .loaded_modules import loaded

Kind = Literal["atom", "tuple", "dict", "iterable", "frozen", "fields", "instance", "array", "opaque"]


def kind_of(cls: type) -> tuple[Kind, list[str]]:
    """Say how objects of a type that is not built in are looked into.

    Returns
    -------
    tuple[Kind, list[str]]
        ``"atom"``: they cannot be changed, nor can any part of them. ``"tuple"``: a tuple of a kind of its own, such as
        a named one. ``"dict"``, ``"iterable"``: a container with ways of its own. ``"frozen"``: a frozen dataclass,
        whose fields follow. ``"fields"``: all that can be changed is in the attributes that follow. ``"instance"``: it
        is in their ``__dict__``. ``"array"``: an array of numpy. ``"opaque"``: nobody can tell.
    """
    numpy = loaded("numpy")
    if issubclass(cls, _ATOMS):
        return "atom", []
    if numpy is not None and issubclass(cls, numpy.generic | numpy.dtype):
        return ("opaque" if issubclass(cls, numpy.void) else "atom"), []
    if numpy is not None and cls is numpy.ndarray:
        return "array", []
    if issubclass(cls, dict):
        return "dict", []
    if issubclass(cls, list | set | frozenset | collections.deque):
        return "iterable", []
    if issubclass(cls, tuple):
        return ("iterable" if cls.__dictoffset__ or _says_how_to_copy(cls) else "tuple"), []
    if not _holds_attributes_alone(cls):
        return "opaque", []
    if dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen and not _says_how_to_copy(cls):  # type: ignore[attr-defined]
        return "frozen", [field.name for field in dataclasses.fields(cls)]
    if cls in copyreg.dispatch_table or any(
        getattr(cls, name, None) is not getattr(object, name, None) for name in _COPYING
    ):
        return "opaque", []
    if cls.__dictoffset__:
        return "instance", []
    return "fields", list(slots(cls))


def _holds_attributes_alone(cls: type) -> bool:
    """Whether attributes, all in a dict or all in slots, are all that objects of a type hold."""
    in_slots = len(list(slots(cls)))
    # An extension type has room for more. Of a dict and of weak references there may be a pointer each.
    attributes = object.__basicsize__ + _POINTER * (in_slots + 2)
    is_python = bool(cls.__flags__ & _HEAP_TYPE) and cls.__basicsize__ <= attributes
    return is_python and not (cls.__dictoffset__ and in_slots)


def _says_how_to_copy(cls: type) -> bool:
    return hasattr(cls, "__copy__") or hasattr(cls, "__deepcopy__")


_ATOMS: Final = (
    str,
    int,
    float,
    complex,
    bytes,
    enum.Enum,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    fractions.Fraction,
    pathlib.PurePath,
    uuid.UUID,
    range,
    re.Pattern,
    re.Match,
    type,
    types.BuiltinFunctionType,
    types.FunctionType,
    types.ModuleType,
    types.EllipsisType,
    types.NoneType,
    types.NotImplementedType,
    weakref.ref,
)

_HEAP_TYPE: Final = 1 << 9
"""``Py_TPFLAGS_HEAPTYPE``, which classes written in Python have."""

_POINTER: Final = struct.calcsize("P")

_COPYING: Final = ("__copy__", "__deepcopy__", *PICKLE_HOOKS)
