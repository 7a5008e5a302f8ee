"""Names of classes that are the same in every process and every run, and the classes that have them.

A class is called by its module and qualified name: ``shop.orders:Order``. The module of a script is called
``__main__``, whatever its file is and whether ``python orders.py``, ``python -m orders`` or ``flownet run orders:env``
runs it.
"""

from __future__ import annotations

import importlib
import sys
import weakref
from collections.abc import Mapping
from typing import Any, Final

MAIN: Final = "__main__"
FORMER_NAMES: Final = "__flownet_former_names__"
"""Attribute of a class that was renamed: the names that it had, the first one first. Instances in keys go by that one,
so that keys find their state."""
RENAMED_FIELDS: Final = "__flownet_renamed_fields__"
"""Attribute of a class: new names of its fields by their former ones."""


def class_name(cls: type) -> str:
    """Return the name of a class."""
    module = MAIN if cls.__module__ in _scripts else cls.__module__
    return f"{module}:{cls.__qualname__}"


def key_name(cls: type) -> str:
    """Return the name by which keys of a class are known: the one that it had first."""
    return str(vars(cls).get(FORMER_NAMES, (class_name(cls),))[0])


def adopt_script(module: str) -> None:
    """Take note of a module that is run as a script."""
    if module not in _scripts:
        _scripts.append(module)


def scripts() -> list[str]:
    """Name the modules that are run as scripts."""
    return list(_scripts)


def note_by_value(cls: type) -> None:
    """Take note of a class that was pickled by value: `find_class` finds it, also if it was made in a function."""
    _by_value[class_name(cls)] = cls


def find_class(name: str) -> type | None:
    """Find the class of the running program that has a name now, or had it before; None if there is none."""
    renamed = _named(_new_names[name]) if name in _new_names else None
    if renamed is not None and name in vars(renamed).get(FORMER_NAMES, ()):
        return renamed
    return _named(name)


def rename_class(cls: type, old_name: str | None, fields: Mapping[str, str]) -> None:
    """Take note of a former name of a class, and of the new names of its fields by their former ones."""
    if old_name is not None:
        name = class_name(cls)
        old_name = old_name if ":" in old_name else f"{name.partition(':')[0]}:{old_name}"
        _new_names[old_name] = name
        setattr(cls, FORMER_NAMES, (old_name, *vars(cls).get(FORMER_NAMES, ())))
    setattr(cls, RENAMED_FIELDS, {**renamed_fields(cls), **fields})


def renamed_fields(cls: type) -> Mapping[str, str]:
    """Return the new names of the fields of a class by their former ones."""
    fields: Mapping[str, str] = vars(cls).get(RENAMED_FIELDS, {})
    return fields


def _named(name: str) -> type | None:
    module, _, path = name.partition(":")
    modules = [sys.modules.get(script) for script in reversed(_scripts)] if module == MAIN else [_imported(module)]
    for found in modules:
        cls: Any = found
        for part in path.split("."):
            cls = getattr(cls, part, None)
        if isinstance(cls, type):
            return cls
    return _by_value.get(name)


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception:  # whatever a module raises that is no longer what it was
        return None


_scripts: list[str] = [MAIN]
"""The modules that are run as scripts, here or in the process that submitted the job."""
_by_value: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
_new_names: dict[str, str] = {}
"""Names of classes by their former names."""
