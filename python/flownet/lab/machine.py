"""Where and with what a run was made, in words."""

from __future__ import annotations

import os
import platform

from .. import __version__
from ..machine import cpu_model, installed, system


def machine() -> str:
    """Name processor and system."""
    return f"{os.cpu_count()} cores of {cpu_model()}, {system()}"


def versions() -> str:
    """Name flownet and what it runs on."""
    found = {"flownet": __version__, "Python": platform.python_version(), **installed(("numpy", "matplotlib"))}
    return ", ".join(f"{name} {version}" for name, version in found.items())
