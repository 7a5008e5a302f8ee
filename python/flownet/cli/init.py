"""``flownet init``: creates a small project with a job and tests."""

from __future__ import annotations

import argparse
import importlib.resources
import keyword
import re
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``init`` to the command line."""
    init = commands.add_parser(
        "init",
        help="write a small project to begin with",
        description="Write a project into a new folder: a job over text files, tests of it, a README with the "
        "commands, a Dockerfile.",
    )
    init.add_argument("name", metavar="NAME", help="name of the project and of its folder, which is not there or empty")
    init.set_defaults(command=_init)


def _init(options: argparse.Namespace) -> int:
    folder = Path(options.name)
    module = _module(folder.name, options.name)
    texts = importlib.resources.files(__package__) / "project"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise _refused(options.name, "is there and not empty: choose another name")
        for template, place in _FILES.items():
            written = Template((texts / template).read_text()).substitute(name=folder.name, module=module)
            path = folder / place.format(module=module)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(written)
    except OSError as error:
        raise _refused(options.name, f"cannot be written: {error.strerror}") from error
    print(f"written: {folder}\n\ncd {folder}\nflownet run {module}:env --workers 2    # what next: README.md")
    return 0


def _module(name: str, given: str) -> str:
    """Choose the name of the module, which must not hide another that the project needs."""
    module = name.lower().replace("-", "_")
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", name):
        raise _refused(given, "is no name of a project: write letters, digits, - and _, a letter first")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _TAKEN:
        raise _refused(given, f"would hide the module {module!r} of Python: choose another name")
    return module


def _refused(given: str, why: str) -> ConfigError:
    return ConfigError(f"{given!r} {why}", setting="name", value=given)


_FILES = {
    "job.py.txt": "{module}.py",
    "test_job.py.txt": "test_{module}.py",
    "sample.log.txt": "logs/sample.log",
    "README.md.txt": "README.md",
    "Dockerfile.txt": "Dockerfile",
    "gitignore.txt": ".gitignore",
    "pyproject.toml.txt": "pyproject.toml",
}
"""Templates in the folder ``project``, and what they become."""

_TAKEN = frozenset({"flownet", "numpy", "cloudpickle", "pytest", "test"})
