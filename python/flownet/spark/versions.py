"""What must be the same in all processes of a job."""

from __future__ import annotations

import platform
from typing import TypeAlias

from .. import _flownet

Versions: TypeAlias = dict[str, str]
"""What it is the version of, and the version."""


def own_versions() -> Versions:
    """Versions in this process. Functions are shipped as bytecode, hence the minor version of Python."""
    return {
        "flownet": _flownet.__version__,
        "wire protocol": str(_flownet.__wire_version__),
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def describe(versions: Versions) -> str:
    """Write versions down: ``flownet 0.1.0, wire protocol 1, Python 3.11``."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())
