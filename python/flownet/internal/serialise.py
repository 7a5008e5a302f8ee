"""Serialises user functions for worker processes, and explains why a function cannot be serialised."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from ..errors import LaunchError, NotShippableError
from ..observation import log_capture
from . import class_changes, pickling
from .class_names import adopt_script, scripts
from .classes import slots


def dumps(value: object, operator: str) -> bytes:
    """Serialise a function or object of an operator with cloudpickle.

    Functions and classes of importable modules travel by name, those of the main script by value.

    Parameters
    ----------
    value
        What the user passed.
    operator
        Name of the operator, for the error text.

    Raises
    ------
    NotShippableError
        Something inside ``value`` exists only in this process: a lock, a generator, an open file, a socket.
    """
    try:
        return pickling.dumps(value)
    except Exception as error:
        culprit = _culprit(value)
        raise NotShippableError(
            f"operator {operator!r}: {_describe(value)} cannot be sent to its subtasks, because {culprit} cannot "
            f"be pickled ({error}). Create it inside the function, or in open() of a KeyedProcessFunction or Sink, "
            f"so that each subtask makes its own; or run with workers=0 and object_reuse=True, which uses it as it is.",
            operator=operator,
            culprit=culprit,
        ) from error


def ship_by_value(module: ModuleType) -> None:
    """Pickle functions of ``module`` by value, so that workers do not import it and run its top level."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    adopt_script(module.__name__)


def pack_init(classes: bytes = b"") -> bytes:
    """Serialise the state that a worker needs before it can load functions.

    That is where modules are found, what is logged, which modules are scripts, and the classes of an earlier run that
    `class_changes.find_classes` found.
    """
    try:
        cwd = os.getcwd()
    except FileNotFoundError as error:
        raise LaunchError(
            "the working directory of this process is gone, and the workers would start in it: change into one that is "
            "there (os.chdir), or run with workers=0"
        ) from error
    path = [entry or cwd for entry in sys.path]
    return pickle.dumps(
        {"path": path, "cwd": cwd, "levels": log_capture.levels(), "scripts": scripts(), "classes": classes}
    )


def apply_init(init: bytes) -> None:
    """Bring a worker process into the state that `pack_init` described."""
    state: dict[str, Any] = pickle.loads(init)  # noqa: S301 - comes from the process that started this one
    sys.path[:] = state["path"]
    os.chdir(state["cwd"])
    log_capture.begin(state["levels"])
    _adopt_classes(state)


def apply_init_as_guest(init: bytes) -> None:
    """Do what `apply_init` does in a process that is not ours: its own modules come first, its folder stays."""
    state: dict[str, Any] = pickle.loads(init)  # noqa: S301 - comes from a peer that has proved to know our secret
    sys.path.extend(entry for entry in state["path"] if entry not in sys.path)
    log_capture.begin(state["levels"])
    _adopt_classes(state)


def _adopt_classes(state: dict[str, Any]) -> None:
    for script in state["scripts"]:
        adopt_script(script)
    if state["classes"]:
        class_changes.adopt(state["classes"])


def _culprit(value: object) -> str:
    """Name the innermost part of ``value`` that cannot be pickled, and the way to it."""
    way: list[str] = []
    current, seen = value, set[int]()
    while id(current) not in seen:
        seen.add(id(current))
        for label, part in _parts(current):
            if not _is_picklable(part):
                way.insert(0, label)
                current = part
                break
    return f"{' of '.join(way)} ({_type_name(current)})" if way else _describe(value)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """List what ``value`` drags along when it is pickled by value, with a label for each."""
    if isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):
                yield f"variable {name!r}", cell.cell_contents
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f"global {name!r}", value.__globals__[name]
        for default in value.__defaults__ or ():
            yield "a default argument", default
    elif (function := getattr(value, "__func__", None)) is not None:
        yield "the object", getattr(value, "__self__", None)
        yield "the function", function
    elif isinstance(value, dict):
        yield from ((f"item {key!r}", item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"item {index}", item) for index, item in enumerate(value))
    elif not isinstance(value, type | ModuleType):
        yield from ((f"attribute {name!r}", item) for name, item in _attributes(value).items())


def _attributes(value: object) -> dict[str, object]:
    """List what an instance holds in slots and in its dict. What a class of C holds is its own affair."""
    names = slots(type(value)) if hasattr(type(value), "__slots__") else ()
    in_slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return in_slots | getattr(value, "__dict__", {})


def _is_picklable(value: object) -> bool:
    try:
        pickling.dumps(value)
    except Exception:
        return False
    return True


def _describe(value: object) -> str:
    if isinstance(value, FunctionType):
        code = value.__code__
        return f"{value.__qualname__} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"a {_type_name(value)}"


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
