"""Where peers live: one virtual environment each, in ``.venv-peers`` of the project, made on first use."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from interface import HERE, Unavailable

ROOT = HERE.parents[1]
HOME = ROOT / ".venv-peers"


def python_of(name: str, requirements: Sequence[str]) -> str:
    """Return the interpreter of the environment ``name``, installing ``requirements`` from PyPI if need be.

    Raises
    ------
    Unavailable
        No interpreter, or the installation failed; the text holds pip's own last words.
    """
    folder = _folder(name)
    python = folder / "bin" / "python"
    marker = folder / ".installed"
    wanted = "\n".join(requirements)
    if marker.is_file() and marker.read_text() == wanted:
        return str(python)
    print(f"installing {' '.join(requirements)} into {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
    # Wheels of the peers exist for fewer versions of Python than flownet runs on.
    _call([_interpreter(), "-m", "venv", "--clear", str(folder)], "cannot make a virtual environment")
    _call([str(python), "-m", "pip", "install", "--quiet", *requirements], f"pip install {' '.join(requirements)}")
    marker.write_text(wanted)
    return str(python)


def build_folder(name: str) -> Path:
    """Return the folder for what is compiled for the peer ``name``."""
    folder = _folder(name) / "build"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def java(tool: str) -> str:
    """Return the path of ``java`` or ``javac``, version 17 or newer.

    Raises
    ------
    Unavailable
        There is none, or it is older.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(tool, path=os.path.join(home, "bin") if home else None)
    hint = "install a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless) or set JAVA_HOME"
    if found is None:
        raise Unavailable(f"no {tool} {'in JAVA_HOME' if home else 'on PATH'}: {hint}")
    version = re.search(r"(\d+)[\d._]*", _call([found, "-version"], f"{tool} -version"))
    if version is None or int(version[1]) < _OLDEST_JAVA:
        raise Unavailable(f"{found} is older than Java {_OLDEST_JAVA}: {hint}")
    return found


def java_version() -> str:
    """Return the version of the Java runtime, for the table."""
    version = re.search(r"\d[\w.+]*", _call([java("java"), "-version"], "java -version"))
    return f"Java {version[0]}" if version else "Java"


def maven_class_path(pom: Path) -> str:
    """Return the class path of what a project of Maven's depends on, installing it into Maven's folder if need be.

    Raises
    ------
    Unavailable
        There is no Maven, or it failed; the text holds its own last words.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("no mvn on PATH: install Maven (Debian: apt-get install maven)")
    known = build_folder("flink") / f"{pom.stem}.{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    if not known.exists():
        print(f"installing what {pom.name} names", file=sys.stderr, flush=True)
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={known}"]
        _call(
            [maven, "--quiet", "--batch-mode", "--file", str(pom), *goal], f"Maven cannot install what {pom.name} names"
        )
    return known.read_text().strip()


def compile_to(command: Sequence[str], source: Path, target: Path) -> None:
    """Compile ``source`` with ``command`` unless ``target`` is newer."""
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        _call(command, f"cannot compile {source.name}")


def version_in(python: str, *distributions: str) -> str:
    """Return names and versions of distributions as ``python`` sees them."""
    code = "import importlib.metadata as m, sys; print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))"
    return _call([python, "-c", code, *distributions], "cannot read versions").strip()


def first_line(command: Sequence[str]) -> str:
    """Return the first line that a tool writes."""
    return _call(command, f"{command[0]} failed").strip().partition("\n")[0]


def _folder(name: str) -> Path:
    HOME.mkdir(exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    return HOME / name


@functools.cache
def _interpreter() -> str:
    for candidate in ("python3.11", "python3.12"):
        path = shutil.which(candidate)
        # A version manager's shim may be on PATH without the version behind it.
        if (
            path
            and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0
        ):
            return path
    return sys.executable


def _call(command: Sequence[str], failure: str) -> str:
    """Run a tool and return all it says; raise `Unavailable` with its last words if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        raise Unavailable(f"{failure}: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return done.stdout


_OLDEST_JAVA = 17
