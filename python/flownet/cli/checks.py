"""Checks whether this machine can run jobs. `flownet.cli.doctor` runs all checks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..api.environment import Environment
from ..errors import FlownetError
from ..internal.extras import DISTRIBUTION
from ..internal.machine import cpu_model, system, versions
from ..internal.units import format_value, listed


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one thing."""

    name: str
    """What it is."""
    verdict: Literal["ok", "note", "fails"]
    """``ok``; ``note``: jobs run, and some of what there is does not, or not well; ``fails``: it was tried in vain."""
    found: str
    """What there is."""
    advice: str = ""
    """What to do about it; nothing where it is well."""


def all_checks() -> Iterator[Check]:
    """Look at everything, the cheap things first; the last is a job."""
    yield Check("python", "ok", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")
    yield Check("flownet", "ok", versions()["flownet"])
    yield system_check()
    yield cores()
    yield memory(available_memory())
    yield open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield temporary_files()
    yield loopback()
    yield java(java_version())
    yield from extras()
    yield job()


def system_check() -> Check:
    """Tell the system that flownet is tested on from others."""
    is_tested = sys.platform == "linux"
    return Check("system", "ok" if is_tested else "note", system(), "" if is_tested else "tested on Linux alone")


def cores() -> Check:
    """Count the cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota()
    most = usable if quota is None else min(float(usable), quota)
    return Check("cores", "ok", f"{most:g} of {cpu_model()}")


def memory(available: int | None) -> Check:
    """Weigh the memory that is free."""
    if available is None:
        return Check("memory", "ok", "the system does not tell")
    found = f"{format_value(available, 'B')} free"
    if available >= _WORKER_BYTES * 2:
        return Check("memory", "ok", found)
    need = f"a worker takes some {format_value(_WORKER_BYTES, 'B')}: free memory, or set network_memory lower"
    return Check("memory", "note", found, need)


def open_files(soft: int, hard: int) -> Check:
    """Weigh the limit of open files.

    One connection serves all channels of two workers, so they need none of their own.
    """
    if soft == resource.RLIM_INFINITY:
        return Check("open files", "ok", "no limit")
    workers = min(max(0, soft - _FILES) // _FILES_A_WORKER, _MOST_WORKERS)
    is_bounded = hard != resource.RLIM_INFINITY
    found = (
        f"{soft} (hard limit {hard if is_bounded else 'none'}): enough for {workers} workers, whatever their channels"
    )
    if soft >= _FILES_WANTED:
        return Check("open files", "ok", found)
    if is_bounded and hard < _FILES_WANTED:
        return Check("open files", "note", found, f"raise the hard limit to {_FILES_WANTED} or more, as root")
    return Check("open files", "note", found, f"ulimit -n {_FILES_WANTED}")


def temporary_files() -> Check:
    """See whether the folder for temporary files, where state on disk goes, can be written and has room."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"flownet")
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        advice = "set TMPDIR to a folder that can be written, for state on disk and Spark"
        return Check("temporary files", "note", error.strerror or str(error), advice)
    found = f"{folder}, {format_value(free, 'B')} free"
    if free < _ROOM_WANTED:
        return Check("temporary files", "note", found, "make room, or set TMPDIR or state_dir, for state on disk")
    return Check("temporary files", "ok", found)


def loopback() -> Check:
    """Send a byte over a socket of this machine to itself, as workers do."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(_PATIENCE_SECONDS)
            with socket.create_connection(server.getsockname(), _PATIENCE_SECONDS) as sender:
                receiver, _ = server.accept()
                with receiver:
                    sender.sendall(b"x")
                    receiver.settimeout(_PATIENCE_SECONDS)
                    receiver.recv(1)
    except OSError as error:
        advice = "allow TCP on 127.0.0.1: workers talk over it, and workers=0 does without"
        return Check("loopback", "fails", error.strerror or str(error), advice)
    return Check("loopback", "ok", "127.0.0.1 carries TCP")


def java(version: int | None) -> Check:
    """Weigh the Java that Spark would run on."""
    if version is not None and version >= _JAVA_WANTED:
        return Check("java", "ok", f"{version}, for Spark")
    found = "none" if version is None else str(version)
    advice = f"Spark needs {_JAVA_WANTED} or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
    return Check("java", "note", found, advice)


def extras() -> Iterator[Check]:
    """Say of each extra whether its packages are there."""
    for extra, packages in _packages_of_extras().items():
        there = versions(*packages)
        missing = [package for package in packages if package not in there]
        if missing:
            yield Check(
                f"[{extra}]", "note", f"no {listed(missing)}", f"pip install '{DISTRIBUTION}[{extra}]' if you need it"
            )
        else:
            yield Check(f"[{extra}]", "ok", ", ".join(f"{package} {there[package]}" for package in packages))


def job() -> Check:
    """Run a job with a worker process, and look at what came of it."""
    began = time.monotonic()
    try:
        env = Environment(name="doctor", parallelism=2)
        squares = env.from_collection(range(100)).rebalance().map(lambda n: n * n).collect()
        env.execute(workers=1)
    except FlownetError as error:
        return Check("a job", "fails", f"{type(error).__name__}: {error}", "see the error")
    if sorted(squares) != [n * n for n in range(100)]:
        return Check("a job", "fails", "its results are wrong", "install flownet anew")
    return Check("a job", "ok", f"ran in a worker process, {time.monotonic() - began:.1f} s")


def available_memory() -> int | None:
    """Bytes that processes can still take: of the machine, and of the container if there is one; None if unknown."""
    free = []
    with suppress(OSError, ValueError):
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if match:
            free.append(int(match[1]) << 10)
    for most, used in _CGROUP_MEMORY:
        # No such file: another version of control groups, or none. "max": no limit.
        with suppress(OSError, ValueError):
            free.append(max(0, int(Path(most).read_text()) - int(Path(used).read_text())))
    return min(free, default=None)


def java_version() -> int | None:
    """Major version of the Java that Spark would take; None without one."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if command is None:
        return None
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    # Up to 8 it called itself 1.8.
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def _cpu_quota() -> float | None:
    """Cores that the container may use; None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _packages_of_extras() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires(DISTRIBUTION) or ():
        match = re.match(r"([\w.-]+).*;\s*extra == ['\"]([\w-]+)['\"]", requirement)
        if match:
            found.setdefault(match[2], []).append(match[1])
    return dict(sorted(found.items()))


_CGROUP_MEMORY = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
_WORKER_BYTES = 128 << 20
"""An interpreter with what it imports, and the default of network_memory."""
_FILES = 64
"""Of the submitting process and of each worker, however few there are, with some for sources and sinks."""
_FILES_A_WORKER = 5
"""Of the submitting process, which has most, for each worker: its connections, pipes and process."""
_FILES_WANTED = 1024
_MOST_WORKERS = 1024
_JAVA_WANTED = 17
_PATIENCE_SECONDS = 5
_ROOM_WANTED = 1 << 30
