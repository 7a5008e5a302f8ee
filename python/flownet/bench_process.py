"""Runs a bench in two processes; ``python -m flownet.bench_process`` is one of them, started by `run_bench` alone.

The bench says over standard input which role to play; the process answers over standard output. All of it is in Rust,
off the interpreter lock. The process ends when its bench does.
"""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

from . import _flownet
from .errors import LaunchError


def run_bench(kind: str, settings: str) -> dict[str, Any]:
    """Run a bench once and return its figures.

    Parameters
    ----------
    kind
        ``exchange`` or ``latency``.
    settings
        What ``_flownet.bench_settings`` has made complete, as JSON.
    """
    if not sys.executable:
        raise LaunchError("cannot start the processes of a bench: sys.executable is not set")
    command = [sys.executable, "-P", "-m", "flownet.bench_process"]
    run: dict[str, Any] = json.loads(_flownet.bench_run(kind, settings, command))
    run["versions"]["python"] = platform.python_version()
    return run


def main() -> None:
    """Play the role that the bench at the other end of standard input gives, then end the process."""
    _flownet.bench_party()


if __name__ == "__main__":
    main()
