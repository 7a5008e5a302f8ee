"""Flink's jars, from PyFlink's package, and the Java programs that run on them."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import environments
from interface import PROGRAMS, Unavailable

REQUIREMENTS = ["apache-flink==2.3.0"]


@functools.cache
def class_path(program: str) -> str:
    """Say where the jars are that a program needs, installing them if need be."""
    if program in _FROM_MAVEN:
        return environments.maven_class_path(PROGRAMS / _FROM_MAVEN[program])
    python = environments.python_of("flink", REQUIREMENTS)
    package = environments.first_line([python, "-c", "import os, pyflink; print(os.path.dirname(pyflink.__file__))"])
    return f"{Path(package) / 'lib'}/*"


def compiled(program: str) -> None:
    """Compile a program of ``programs/``."""
    compiler, jars = environments.java("javac"), class_path(program)
    source, classes = PROGRAMS / f"{program}.java", environments.build_folder("flink")
    command = [compiler, "-nowarn", "-cp", jars, "-d", str(classes), str(source)]
    environments.compile_to(command, source, classes / f"{program}.class")


def versions() -> str:
    """Return those of Flink and Java."""
    flink = environments.version_in(environments.python_of("flink", REQUIREMENTS), "apache-flink")
    return f"{flink}, {environments.java_version()}"


def versions_of_tests() -> str:
    """Return those of Flink's classes of tests and Java."""
    [version] = re.findall("<flink>(.+)</flink>", (PROGRAMS / _FROM_MAVEN["FlinkNetworkPeer"]).read_text())
    return f"flink-runtime {version}, {environments.java_version()}"


def command(program: str, *options: str) -> list[str]:
    """Return what runs a compiled program, with more options of Java; its arguments come behind it."""
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    logging = f"-Dlog4j.configurationFile={PROGRAMS / 'log4j2.properties'}"
    path = f"{class_path(program)}:{environments.build_folder('flink')}"
    return [environments.java("java"), *opened, *_MEMORY, *options, logging, "-cp", path, program]


class Jvm:
    """A JVM whose program answers each line that it reads by a line of JSON.

    It runs what it is asked to again and again, so its code is compiled when that counts, as Flink's is in a cluster.
    """

    def __init__(self, program: str, folder: Path, *arguments: str) -> None:
        """Start it. The folder is for its log and its temporary files, which it does not remove: it is killed."""
        self.log = (folder / "flink.log").open("w+")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command(program, f"-Djava.io.tmpdir={folder}"), *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=self.log,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                pipe.close()

    def ask(self, wish: str) -> dict[str, Any]:
        """Let it do something, and give its answer.

        Raises
        ------
        Unavailable
            It has ended; the text holds its last words.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{wish}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            figures: dict[str, Any] = json.loads(answer)
        except (OSError, ValueError) as error:
            self.process.wait()
            self.log.seek(0)
            raise Unavailable(f"Flink ended: {self.log.read().strip()[-2000:]}") from error
        return figures


_OPENED: tuple[str, ...] = ("lang", "util", "net", "io", "nio", "time", "math", "text", "lang.reflect", "lang.invoke")
_OPENED += ("util.concurrent", "util.concurrent.atomic", "util.concurrent.locks")
_MEMORY = ("-Xmx4g", "-XX:MaxDirectMemorySize=4g")
_FROM_MAVEN = {"FlinkNetworkPeer": "flink-network-pom.xml"}
"""Programs that need what PyFlink's package does not have: the classes of Flink's tests."""
