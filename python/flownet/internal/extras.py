"""The distribution of flownet, and packages of its extras, which only some of it needs."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType

from ..errors import FlownetError

DISTRIBUTION = "flownet-streams"
"""What pip calls flownet. On PyPI, ``flownet`` is another project."""


def need(module: str, purpose: str, extra: str = "experiments") -> ModuleType:
    """Import a package of an extra.

    Parameters
    ----------
    module
        Of that package.
    purpose
        What needs it, for the error text.
    extra
        What it comes with: ``pip install 'flownet-streams[EXTRA]'``.

    Raises
    ------
    FlownetError
        It is not installed; the text says what for and how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        raise FlownetError(f"{purpose} needs {name}: pip install '{DISTRIBUTION}[{extra}]'") from error


def need_java(purpose: str) -> None:
    """Raise `FlownetError` if Spark would find no Java."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise FlownetError(
            f"{purpose} needs Java 17 or newer for Spark: install it (Debian: apt-get install openjdk-17-jre-headless) "
            "or set JAVA_HOME"
        )
