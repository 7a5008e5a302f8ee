"""Finds an experiment: one that comes with flownet, a TOML file, or a Python file."""

from __future__ import annotations

import dataclasses
import runpy
import tomllib
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from .description import Experiment, unknown_key


def ready_made() -> dict[str, Path]:
    """Files of the experiments that come with flownet, by name."""
    return {path.stem: path for path in sorted(_READY.glob("*.toml"))}


def find_experiment(target: str) -> Experiment:
    """Read an experiment and check it.

    Parameters
    ----------
    target
        The name of one that comes with flownet, or the path of a ``.toml`` or ``.py`` file. A Python file assigns an
        `Experiment` to the variable ``experiment``.

    Raises
    ------
    ConfigError
        There is none, or something in it cannot be.
    """
    if target in ready_made():
        return _from_toml(ready_made()[target], target)
    path = Path(target)
    if path.suffix == ".toml":
        return _from_toml(path, target)
    if path.suffix == ".py":
        return _from_python(path, target)
    known = ", ".join(ready_made())
    raise ConfigError(
        f"there is no experiment {target!r}; there are: {known}; or give a .toml or .py file", setting="experiment"
    )


def _from_toml(path: Path, source: str) -> Experiment:
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{source}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: is not TOML: {error}") from error
    for key in described:
        if key not in _KEYS:
            raise unknown_key(source, key, _KEYS)
    for key in ("name", "workload"):
        if key not in described:
            raise ConfigError(f"{source}: {key}: is missing", setting=key)
    return Experiment(**described, source=source)


def _from_python(path: Path, source: str) -> Experiment:
    if not path.is_file():
        raise ConfigError(f"{source}: cannot be read: there is no such file")
    experiment = runpy.run_path(str(path)).get("experiment")
    if not isinstance(experiment, Experiment):
        raise ConfigError(f"{source}: assign a flownet.experiments.Experiment to the variable 'experiment'")
    return dataclasses.replace(experiment, source=source)


_READY: Final = Path(__file__).parent / "ready"
_KEYS: Final = [field.name for field in dataclasses.fields(Experiment) if field.name != "source"]
