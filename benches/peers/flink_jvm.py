"""Flink's jars, from PyFlink's package, and the Java programs that run on them."""

from __future__ import annotations

import functools
from pathlib import Path

import environments
from interface import PROGRAMS

REQUIREMENTS = ["apache-flink==2.3.0"]


@functools.cache
def class_path() -> str:
    """Say where the jars are, installing them if need be."""
    python = environments.python_of("flink", REQUIREMENTS)
    package = environments.first_line([python, "-c", "import os, pyflink; print(os.path.dirname(pyflink.__file__))"])
    return f"{Path(package) / 'lib'}/*"


def compiled(program: str) -> None:
    """Compile a program of ``programs/``."""
    compiler, jars = environments.java("javac"), class_path()
    source, classes = PROGRAMS / f"{program}.java", environments.build_folder("flink")
    command = [compiler, "-nowarn", "-cp", jars, "-d", str(classes), str(source)]
    environments.compile_to(command, source, classes / f"{program}.class")


def versions() -> str:
    """Return those of Flink and Java."""
    flink = environments.version_in(environments.python_of("flink", REQUIREMENTS), "apache-flink")
    return f"{flink}, {environments.java_version()}"


def command(program: str, *options: str) -> list[str]:
    """Return what runs a compiled program, with more options of Java; its arguments come behind it."""
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    logging = f"-Dlog4j.configurationFile={PROGRAMS / 'log4j2.properties'}"
    path = f"{class_path()}:{environments.build_folder('flink')}"
    return [environments.java("java"), *opened, *_MEMORY, *options, logging, "-cp", path, program]


_OPENED: tuple[str, ...] = ("lang", "util", "net", "io", "nio", "time", "math", "text", "lang.reflect", "lang.invoke")
_OPENED += ("util.concurrent", "util.concurrent.atomic", "util.concurrent.locks")
_MEMORY = ("-Xmx4g", "-XX:MaxDirectMemorySize=2g")
