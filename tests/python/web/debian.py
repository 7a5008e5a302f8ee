"""Unpacks programs of Debian's packages beside the build's output, without installing them and without root."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TARGET = Path(__file__).parents[3] / "target" / "debian"


def unpacked(package: str) -> Path:
    """Unpack a package with its dependencies that are not installed; skip the test if apt cannot get it.

    Returns
    -------
    Path
        A folder laid out like ``/``.
    """
    folder = TARGET / package
    root = folder / "root"
    if shutil.which("apt-get") is None:
        pytest.skip(f"needs {package}, and there is no apt-get to get it with")
    folder.mkdir(parents=True, exist_ok=True)
    with (TARGET / f"{package}.lock").open("w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        archives = [] if root.exists() else _archives(package, folder)
        if archives:
            # Moved when complete: an interrupted run leaves no half of a package.
            partial = folder / "partial"
            shutil.rmtree(partial, ignore_errors=True)
            for archive in archives:
                subprocess.run(["dpkg-deb", "-x", archive, partial], check=True)
            partial.rename(root)
    if not root.exists():
        pytest.skip(f"needs {package}, and apt-get cannot get it")
    return root


def _archives(package: str, folder: Path) -> list[Path]:
    """Download, by the machine's package lists, or by new ones if these are too old."""
    archives, lists = folder / "archives", folder / "lists"
    for parent in (archives, lists):
        (parent / "partial").mkdir(parents=True, exist_ok=True)
    own = ["-o", f"Dir::State::lists={lists}"]
    for options in ([], own):
        common = ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", *options]
        if options:
            apt("get", *common, "update")
        apt("get", *common, *DOWNLOAD, *family(package, *common))
        if found := sorted(archives.glob("*.deb")):
            return found
    return []


def family(package: str, *options: str) -> list[str]:
    """Name a package and the packages of the same family that it depends on, such as ``chromium-common``.

    An unpacked program reads their files from beside itself, so they are downloaded even if they are installed.
    """
    listed = apt("cache", *options, "depends", package)
    prefix = package.split("-")[0] + "-"
    return [package, *re.findall(rf"^ *Depends: ({re.escape(prefix)}\S*)$", listed, re.MULTILINE)]


def apt(command: str, *arguments: str) -> str:
    """Run ``apt-get`` or ``apt-cache``; returns what it prints, which is empty if it fails."""
    run = [f"apt-{command}", "--quiet", *arguments]
    return subprocess.run(run, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


DOWNLOAD = ["--yes", "--no-install-recommends", "--download-only", "--reinstall", "install"]
"""Arguments of ``apt-get`` that download packages, installed or not, and what they need that is not installed."""
