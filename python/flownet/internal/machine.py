"""Describes the machine and the packages of a measurement."""

from __future__ import annotations

import importlib.metadata
import platform
from contextlib import suppress
from pathlib import Path

from .. import __version__


def cpu_model() -> str:
    """Name the processor, as exactly as the system does."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def system() -> str:
    """Name the operating system and its release."""
    return f"{platform.system()} {platform.release()}"


def versions(*packages: str) -> dict[str, str]:
    """Versions of flownet, of Python, and of those packages that are installed."""
    found = {"flownet": __version__, "python": platform.python_version()}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
