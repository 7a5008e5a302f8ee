"""PyFlink: Python functions in Apache Flink."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence

import environments
import processes
import text
from flink_jvm import REQUIREMENTS
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Workload


def _python() -> str:
    return environments.python_of("flink", REQUIREMENTS)


def _prepare() -> str:
    version = environments.java_version()
    return f"{environments.version_in(_python(), 'apache-flink', 'apache-beam', 'pemja')}, {version}"


def _run(job: str, what: str, records: int, settings: Sequence[str]) -> Sample:
    # The worker processes that the JVM starts look for `python` on PATH.
    path = os.pathsep.join([os.path.dirname(_python()), os.environ.get("PATH", "")])
    env = {"PATH": path, "JAVA_HOME": os.path.dirname(os.path.dirname(os.path.realpath(environments.java("java"))))}
    outcome = processes.run([_python(), str(PROGRAMS / "pyflink_peer.py"), job, what, *settings], env=env)
    report, usage = outcome.report, outcome.usage
    cpu_ns = usage.cpu_between(report["start"], report["end"]) * 1e9
    return Sample(records / report["seconds"], cpu_ns / records, usage.peak_rss_mb)


def _objects(settings: Sequence[str], records: int, scale: Scale) -> Sequence[Sample]:
    records = scale.pick(records, 2_000)
    return [_run("objects", str(records), records, settings)]


def _words(settings: Sequence[str], words: int, scale: Scale) -> Sequence[Sample]:
    wanted = scale.pick(words, 1_000)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        count = 0
        for line in text.lines():
            count += len(line.split())
            file.write(line)
            if count >= wanted:
                break
        file.flush()
        return [_run("words", file.name, count, settings)]


_PROCESS, _THREAD = ("2", "process"), ("1", "thread")
_BUNDLES = (*_PROCESS, "python.fn-execution.bundle.size=20000")
_CLOCK = (
    "clock: first open() of a Python function -> last close(), starting not in it; CPU of all processes over that span"
)
_IN_PROCESSES = (
    f"1 JVM, 1 TaskManager, parallelism 2: the exchange stays inside the JVM; Python functions in processes of their "
    f"own behind gRPC (Beam); {_CLOCK}"
)
_IN_THREADS = (
    f"1 JVM, 1 TaskManager, parallelism 1: no exchange between processes; Python functions inside the JVM (pemja); "
    f"{_CLOCK}"
)

PEER = Peer(
    "pyflink",
    _prepare,
    (
        Case(
            Workload.OBJECTS,
            (Row("PyFlink", "process mode, p=2", f"{_IN_PROCESSES}; 100 k ints"),),
            functools.partial(_objects, _PROCESS, 100_000),
        ),
        Case(
            Workload.OBJECTS,
            (
                Row(
                    "PyFlink",
                    "process mode, p=2, bundles of 20,000",
                    f"{_IN_PROCESSES}; default bundle 1000; 100 k ints",
                ),
            ),
            functools.partial(_objects, _BUNDLES, 100_000),
        ),
        Case(
            Workload.OBJECTS,
            (Row("PyFlink", "thread mode, p=1", f"{_IN_THREADS}; 200 k ints"),),
            functools.partial(_objects, _THREAD, 200_000),
        ),
        Case(
            Workload.WORDS,
            (
                Row(
                    "PyFlink",
                    "process mode, p=2",
                    f"{_IN_PROCESSES}; flat_map(split) -> key_by -> reduce, a result per word; only the first 20 k "
                    "words: a rate, not a run over the same text",
                ),
            ),
            functools.partial(_words, _PROCESS, 20_000),
        ),
        Case(
            Workload.WORDS,
            (
                Row(
                    "PyFlink",
                    "thread mode, p=1",
                    f"{_IN_THREADS}; flat_map(split) -> key_by -> reduce, a result per word; only the first 50 k "
                    "words: a rate, not a run over the same text",
                ),
            ),
            functools.partial(_words, _THREAD, 50_000),
        ),
    ),
)
