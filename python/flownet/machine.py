"""The machine and the packages that something was measured with."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable
from pathlib import Path


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


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = dict[str, str]()
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
