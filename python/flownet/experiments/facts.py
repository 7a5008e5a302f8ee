"""What has to be known of a run besides its parameters, so that somebody else can repeat it and judge it."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from pathlib import Path

from ..internal.machine import cpu_model, system
from . import cores


@functools.cache
def host() -> dict[str, str]:
    """Where this process runs."""
    return {
        "name": socket.gethostname(),
        "cores": str(cores.count()),
        "cpu": cpu_model(),
        "memory_mb": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000),
        "system": system(),
    }


@functools.cache
def git_commit() -> str | None:
    """Commit of the source tree that this flownet runs from, ``+changes`` behind it if it was changed since.

    None: it does not run from one.
    """
    folder = Path(__file__).parent
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return f"{commit}+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        finished = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return finished.stdout.strip()
