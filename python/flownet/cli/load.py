"""Finds the dataflow that ``module:env`` names."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from ..api.environment import Environment
from ..errors import ConfigError
from ..internal import serialise


def load_environment(target: str, arguments: Sequence[str] = ()) -> Environment:
    """Import a module or script and return the environment it describes.

    A script often ends with ``env.execute()``. Reading stops there if it is the wanted environment that would run, so
    the same file serves ``python script.py`` and ``flownet run script:env``.

    Parameters
    ----------
    target
        ``module:name`` or ``path/script.py:name``. Modules are looked for in the working directory first. The name is
        an `Environment`, or a function without parameters that returns one; default ``env``.
    arguments
        What the script finds in ``sys.argv[1:]``.

    Raises
    ------
    ConfigError
        There is no such module or name, or it is no environment.
    """
    place, _, attribute = target.partition(":")
    attribute = attribute or "env"
    spec = _find(place, target)
    module = _execute(spec, attribute, arguments)
    found = getattr(module, attribute, None)
    if callable(found) and not isinstance(found, type):
        found = found()
    if not isinstance(found, Environment):
        raise ConfigError(_not_found(module, attribute, found), setting="target", value=target)
    found._name_after(spec.name.rpartition(".")[2])
    return found


class _ReadEnough(BaseException):
    """Ends the reading of a script at its ``execute()``; not an Exception, so that scripts do not catch it."""


def _find(place: str, target: str) -> ModuleSpec:
    """Find a module by name, or a script by path as ``python path/script.py`` would."""
    spec = None
    if place.endswith(".py") and os.path.isfile(place):
        folder, file = os.path.split(os.path.abspath(place))
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(file.removesuffix(".py"), place)
    elif place and not place.startswith("."):
        sys.path.insert(0, os.getcwd())
        # A package on the way to the module may be missing.
        with contextlib.suppress(ModuleNotFoundError):
            spec = importlib.util.find_spec(place)
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"{target!r}: no module {place!r} in {os.getcwd()} or on Python's path; write MODULE:ENV, for example "
            "wordcount:env for the variable env of wordcount.py",
            setting="target",
            value=target,
        )
    return spec


def _execute(spec: ModuleSpec, attribute: str, arguments: Sequence[str]) -> ModuleType:
    """Run the module's top level, up to where it would execute the wanted environment."""
    module = importlib.util.module_from_spec(spec)

    def stop_at(env: Environment) -> None:
        if getattr(module, attribute, None) is env:
            raise _ReadEnough

    sys.modules[spec.name] = module
    serialise.ship_by_value(module)
    sys.argv = [spec.origin or spec.name, *arguments]
    Environment._on_execute = stop_at
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except _ReadEnough:
        pass
    finally:
        Environment._on_execute = None
    return module


def _not_found(module: ModuleType, attribute: str, found: object) -> str:
    there = sorted(name for name, value in vars(module).items() if isinstance(value, Environment))
    hint = f"; it has: {', '.join(there)}" if there else "; it has no flownet.Environment at its top level"
    if hasattr(module, attribute):
        return f"{attribute!r} of module {module.__name__!r} is {type(found).__name__}, not a flownet.Environment{hint}"
    return f"module {module.__name__!r} has no {attribute!r}{hint}"
