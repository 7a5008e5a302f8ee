"""Packages that only some of the harness needs."""

from __future__ import annotations

import importlib
import shutil
from types import ModuleType

from ..errors import FlownetError


def need(module: str, purpose: str) -> ModuleType:
    """Import a package of the extra ``flownet[experiments]``.

    Raises
    ------
    FlownetError
        It is not installed; the text says what for and how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        raise FlownetError(f"{purpose} needs {name}: pip install 'flownet[experiments]'") from error


def need_java(purpose: str) -> None:
    """Raise `FlownetError` if Spark would find no Java."""
    import os

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise FlownetError(
            f"{purpose} needs Java 17 or newer for Spark: install it (Debian: apt-get install openjdk-17-jre-headless) "
            "or set JAVA_HOME"
        )
