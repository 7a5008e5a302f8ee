"""Finds the dataflow that ``module:env`` names."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

from .. import serialise
from ..environment import Environment
from ..errors import ConfigError


def load_environment(target: str) -> Environment:
    """Import a module and return the environment it describes.

    A script often ends with ``env.execute()``. Reading stops there if it is the wanted environment that would run, so
    the same file serves ``python script.py`` and ``flownet run script:env``.

    Parameters
    ----------
    target
        ``module:name``. The module is looked for in the working directory first. The name is an `Environment`, or a
        function without parameters that returns one; default ``env``.

    Raises
    ------
    ConfigError
        There is no such module or name, or it is no environment.
    """
    module_name, _, attribute = target.partition(":")
    module_name = module_name.removesuffix(".py").replace(os.sep, ".")
    attribute = attribute or "env"
    module = _execute_module(module_name, attribute, target)
    serialise.ship_by_value(module)
    found = getattr(module, attribute, None)
    if callable(found) and not isinstance(found, type):
        found = found()
    if not isinstance(found, Environment):
        raise ConfigError(_not_found(module, attribute, found), setting="target", value=target)
    found._name_after(module_name.rpartition(".")[2])
    return found


class _ReadEnough(BaseException):
    """Ends the reading of a script at its ``execute()``; not an Exception, so that scripts do not catch it."""


def _execute_module(name: str, attribute: str, target: str) -> ModuleType:
    cwd = os.getcwd()
    if cwd not in sys.path:
        sys.path.insert(0, cwd)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"{target!r}: no module named {name!r} in {cwd} or on Python's path; write MODULE:ENV, for example "
            "wordcount:env for the variable env of wordcount.py",
            setting="target",
            value=target,
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module

    def stop_at(env: Environment) -> None:
        if getattr(module, attribute, None) is env:
            raise _ReadEnough

    Environment._on_execute = stop_at
    try:
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
