"""Restores state whose classes have changed since it was written.

Before a job starts, `find_classes` finds a class of the running program for each class that the checkpoint has values
of, and checks that its fields fit. Workers get the classes found with the functions of the job. Rust asks `restored`
when a task reads a checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import RestoreError
from . import pickling
from .class_names import find_class, renamed_fields
from .record_classes import Description, describe


class KeptClass(NamedTuple):
    """A class that an operator of a checkpoint has, as it was when the checkpoint was taken."""

    operator: str
    uid: str
    is_in_state: bool
    """Whether values in the state of the operator are of it; records that it keeps as they came do not count."""
    number: int
    name: str
    kind: str
    in_dict: tuple[str, ...]
    in_slots: tuple[str, ...]
    pickled: bytes


@dataclasses.dataclass(frozen=True)
class RestoredClass:
    """What the program has in the place of a class of an earlier run."""

    cls: type | None
    reason: str = ""
    """Why there is none."""
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """New names of its fields or members by their former ones."""

    def change_from(self, name: str, kind: str, in_dict: Iterable[str], in_slots: Iterable[str]) -> Change:
        """Say how instances are made of what instances held that were written so."""
        assert self.cls is not None
        return Change(self.cls, name, kind, (*in_dict, *in_slots), self.renames)


class Change:
    """Makes instances of a class of what instances held when it had other fields."""

    def __init__(self, cls: type, name: str, kind: str, names: tuple[str, ...], renames: Mapping[str, str]) -> None:
        self._cls: Any = cls
        self._new = describe(cls)
        self._renames = renames
        self._were = frozenset(renames.get(one, one) for one in names)
        self._defaults: dict[str, Callable[[Any], object]] = {}
        self.reason = self._misfit(name, kind)
        """Why that cannot be done; empty if it can."""

    def _misfit(self, name: str, kind: str) -> str:
        if kind == "opaque" or (kind in ("enum", "flag") and kind == self._new.kind):
            return ""
        if {kind, self._new.kind} - {"tuple", "attributes"} and kind != self._new.kind:
            return f"class {name} was {_KINDS[kind]} and is {_KINDS[self._new.kind]} now"
        defaults = _defaults(self._cls, self._new)
        added = [one for one in _fields(self._cls, self._new) if one not in self._were]
        missing = [one for one in added if one not in defaults]
        self._defaults = {one: defaults[one] for one in added if one in defaults}
        if not missing:
            return ""
        fields, had = (", ".join(sorted(names)) or "none" for names in (missing, self._were))
        return (
            f"class {name} has no value for its new fields {fields}: give them a default, or say which fields they "
            f"were before, with flownet.state.renamed_from(fields=...); its fields were {had}"
        )

    def member(self, name: str) -> enum.Enum:
        """Return the member of an Enum that had this name."""
        new_name = self._renames.get(name, name)
        try:
            return self._cls.__members__[new_name]  # type: ignore[no-any-return]
        except KeyError:
            raise ValueError(
                f"it has no member {new_name} any more; keep it, or say which one it is now, with "
                "flownet.state.renamed_from(fields=...)"
            ) from None

    def instance(self, values: Mapping[str, object]) -> object:
        """Make an instance of what was held under the former names."""
        held = {self._renames.get(name, name): value for name, value in values.items()}
        if self._new.kind == "tuple":
            items = [held[name] if name in self._were else self._defaults[name](None) for name in self._new.in_dict]
            made = tuple.__new__(self._cls, items)
        else:
            made = object.__new__(self._cls)
        for name in self._new.in_slots:
            if name in held:
                object.__setattr__(made, name, self._given(held[name]) if name == _FIELDS_SET else held[name])
        if self._new.has_dict:
            # Of attributes that are no fields, those that were none before are the instance's own.
            fields = self._new.in_dict if self._new.kind != "tuple" else ()
            made.__dict__.update({name: held[name] for name in fields if name in held})
            made.__dict__.update({name: value for name, value in held.items() if name not in self._were})
        if self._new.kind != "tuple":
            for name, default in self._defaults.items():
                object.__setattr__(made, name, default(made))
        return made

    def _given(self, names: Any) -> set[str]:
        """Return which fields of a model were given, by their new names."""
        return {self._renames.get(name, name) for name in names} & set(self._new.in_dict)


def find_classes(kept: Iterable[tuple[Any, ...]]) -> bytes:
    """Find a class for each that a checkpoint has values of; return what workers `adopt`.

    Raises
    ------
    RestoreError
        An operator keeps values of a class that the program does not have, or has with fields that do not fit.
    """
    found: dict[int, RestoredClass] = {}
    for one in map(_kept_class, kept):
        restored = found.get(one.number) or _find(one)
        found[one.number] = restored
        if restored.reason and one.is_in_state:
            raise RestoreError(
                f"operator {one.operator!r} cannot go on with the values that it keeps: {restored.reason}",
                operators=(one.operator,),
            )
    _restored.update(found)
    return pickling.dumps(found)


def find_to_read(kept: Iterable[tuple[Any, ...]]) -> None:
    """Find a class for each that a checkpoint has values of, so that somebody may look into it.

    Those of scripts that are not this one are as they were when the checkpoint was taken.
    """
    all_kept = [_kept_class(one) for one in kept]
    by_value = {one.name: one.pickled for one in all_kept if _is_by_value(one.pickled)}
    for one in all_kept:
        restored = _find(one)
        if restored.reason and one.name in by_value:
            restored = _with_class(one, pickle.loads(by_value[one.name]))  # noqa: S301 - as `flownet.state.read` says
        _restored[one.number] = restored


def adopt(found: bytes) -> None:
    """Take what `find_classes` found in the process that submitted the job."""
    _restored.update(pickle.loads(found))  # noqa: S301 - comes from the process that started this one


def restored(number: int) -> RestoredClass | None:
    """Return what the program has in the place of a class of an earlier run; None of a class of this run."""
    return _restored.get(number)


def _kept_class(one: tuple[Any, ...]) -> KeptClass:
    kept = KeptClass(*one)
    return kept._replace(in_dict=tuple(kept.in_dict), in_slots=tuple(kept.in_slots))


def _find(kept: KeptClass) -> RestoredClass:
    cls = find_class(kept.name)
    if cls is None and kept.pickled and not _is_by_value(kept.pickled):
        # Classes that a library finds by other means, such as models of pydantic with their types filled in.
        with contextlib.suppress(Exception):
            cls = pickle.loads(kept.pickled)  # noqa: S301 - as any state of a checkpoint
    if cls is None:
        return RestoredClass(None, _not_found(kept.name))
    return _with_class(kept, cls)


def _with_class(kept: KeptClass, cls: type) -> RestoredClass:
    there = RestoredClass(cls, renames=dict(renamed_fields(cls)))
    reason = there.change_from(kept.name, kept.kind, kept.in_dict, kept.in_slots).reason
    return RestoredClass(None, reason) if reason else there


def _not_found(name: str) -> str:
    if "<locals>" in name:
        return (
            f"class {name} was made inside a function, and no function of the job refers to it now; define it at the "
            "top level of a module or script"
        )
    return (
        f"the program has no class {name}; bring it back, or say which class it is now, with "
        f'@flownet.state.renamed_from("{name}")'
    )


def _is_by_value(pickled: bytes) -> bool:
    return b"_make_skeleton_" in pickled


def _fields(cls: Any, description: Description) -> tuple[str, ...]:
    """Name the fields that an instance has to have."""
    if description.kind == "tuple":
        return description.in_dict
    if description.kind == "model":
        return tuple(cls.__pydantic_fields__)
    declared = getattr(cls, "__dataclass_fields__", None) and [field.name for field in dataclasses.fields(cls)]
    return tuple(declared or [attribute.name for attribute in getattr(cls, "__attrs_attrs__", ())])


def _defaults(cls: Any, description: Description) -> dict[str, Callable[[Any], object]]:
    """Return what makes the default of each field that has one, given the instance."""
    if description.kind == "tuple":
        return {name: _constant(value) for name, value in cls._field_defaults.items()}
    if description.kind == "model":
        fields = cls.__pydantic_fields__.items()
        return {name: _of_model(field) for name, field in fields if not field.is_required()}
    if dataclasses.is_dataclass(cls):
        all_fields = dataclasses.fields(cls)
        made = {field.name: _made(field.default_factory) for field in all_fields if _is_set(field.default_factory)}
        return made | {field.name: _constant(field.default) for field in all_fields if _is_set(field.default)}
    return {
        attribute.name: _of_attrs(attribute.default) for attribute in cls.__attrs_attrs__ if _has_default(attribute)
    }


def _is_set(default: object) -> bool:
    return default is not dataclasses.MISSING


def _constant(value: object) -> Callable[[Any], object]:
    return lambda _: value


def _made(factory: Any) -> Callable[[Any], object]:
    return lambda _: factory()


def _of_model(field: Any) -> Callable[[Any], object]:
    return lambda _: field.get_default(call_default_factory=True)


def _has_default(attribute: Any) -> bool:
    import attrs

    return attribute.default is not attrs.NOTHING


def _of_attrs(default: Any) -> Callable[[Any], object]:
    import attrs

    if not isinstance(default, attrs.Factory):  # type: ignore[arg-type] # a class, whatever its stub says
        return _constant(default)
    return default.factory if default.takes_self else _made(default.factory)


_FIELDS_SET = "__pydantic_fields_set__"
_KINDS = {
    "tuple": "a NamedTuple",
    "enum": "an Enum",
    "flag": "a Flag",
    "attributes": "a class with fields",
    "model": "a pydantic model",
    "opaque": "a class without declared fields",
}
_restored: dict[int, RestoredClass] = {}
"""By the number of the class in values of earlier runs."""
