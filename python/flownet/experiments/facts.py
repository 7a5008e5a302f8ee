"""What has to be known of a run besides its parameters, so that somebody else can repeat it and judge it."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import socket
import subprocess
from pathlib import Path

from .. import __version__
from . import cores


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what runs here."""
    found = {"flownet": __version__, "python": platform.python_version()}
    for package in ("pyspark", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def host() -> dict[str, str]:
    """Where this process runs."""
    return {
        "name": socket.gethostname(),
        "cores": str(cores.count()),
        "cpu": _cpu_model(),
        "memory_mb": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000),
        "system": f"{platform.system()} {platform.release()}",
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


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
