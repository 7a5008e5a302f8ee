"""Where and with what a run was made."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from .. import __version__


def machine() -> str:
    """Name processor and system."""
    return f"{os.cpu_count()} cores of {_processor()}, {platform.system()} {platform.release()}"


def versions() -> str:
    """Name flownet and what it runs on."""
    found = [f"flownet {__version__}", f"Python {platform.python_version()}"]
    for package in ("numpy", "matplotlib"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _processor() -> str:
    if sys.platform == "linux":
        with open("/proc/cpuinfo") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()
    return platform.processor() or platform.machine()
