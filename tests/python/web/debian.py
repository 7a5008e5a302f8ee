"""Programs of Debian's packages, unpacked beside the build's output: not installed, and nobody has to be root."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

TARGET = Path(__file__).parents[3] / "target" / "debian"


def unpacked(package: str) -> Path:
    """Get a package with what it needs that is not installed; skip the test where that is not to be had.

    Returns
    -------
    Path
        A folder as ``/`` would be.
    """
    folder = TARGET / package
    if shutil.which("apt-get") is None:
        pytest.skip(f"needs {package}, and there is no apt-get to get it with")
    folder.mkdir(parents=True, exist_ok=True)
    with (TARGET / f"{package}.lock").open("w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "usr").exists():
            for archive in _archives(package, folder / "archives"):
                subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
    if not (folder / "usr").exists():
        pytest.skip(f"needs {package}, and apt-get cannot get it")
    return folder


def _archives(package: str, archives: Path) -> list[Path]:
    """Download, by the lists that the machine has, and where these do not do by new ones."""
    lists = archives / "lists"
    for folder in (archives, lists):
        (folder / "partial").mkdir(parents=True, exist_ok=True)
    own = ["-o", f"Dir::State::lists={lists}"]
    for options in ([], own):
        common = ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", *options]
        if options:
            _apt_get(*common, "update")
        _apt_get(*common, "--yes", "--no-install-recommends", "--download-only", "install", package)
        if found := sorted(archives.glob("*.deb")):
            return found
    return []


def _apt_get(*arguments: str) -> None:
    subprocess.run(["apt-get", "--quiet", *arguments], check=False, capture_output=True)
