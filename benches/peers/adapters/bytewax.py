"""Bytewax: Python functions on timely dataflow."""

from __future__ import annotations

from collections.abc import Sequence

import environments
import processes
import text
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Unavailable, Workload


def _python() -> str:
    return environments.python_of("bytewax", ["bytewax==0.21.1"])


def _prepare() -> str:
    return environments.version_in(_python(), "bytewax")


def _run(job: str, what: str, records: int) -> Sequence[Sample]:
    outcome = processes.run([_python(), str(PROGRAMS / "bytewax_peer.py"), job, what])
    report = outcome.report
    if report["records"] != records:
        raise Unavailable(f"{report['records']} records arrived, not {records}")
    cpu_ns = report["cpu_seconds"] * 1e9 / records
    return [Sample(records / report["seconds"], cpu_ns, outcome.usage.peak_rss_mb)]


def _objects(scale: Scale) -> Sequence[Sample]:
    records = scale.pick(2_000_000, 20_000)
    return _run("objects", str(records), records)


def _words(scale: Scale) -> Sequence[Sample]:
    with text.listed(scale) as (name, words):
        return _run("words", name, words)


_LAYOUT = "2 processes, 1 worker each, TCP between them; values pickled on the way"
_CLOCK = "clock: first batch of a source -> last close of a sink, starting not in it; CPU of both over that span"

PEER = Peer(
    "bytewax",
    _prepare,
    (
        Case(
            Workload.OBJECTS,
            (
                Row(
                    "Bytewax",
                    "2 processes",
                    f"{_LAYOUT}; a source in each worker, batches of 1000; map -> key_on -> stateful_map; str keys (it "
                    f"takes no others); {_CLOCK}; 2 M ints",
                ),
            ),
            _objects,
        ),
        Case(
            Workload.WORDS,
            (
                Row(
                    "Bytewax",
                    "2 processes",
                    f"{_LAYOUT}; each worker reads half of the files; flat_map(split) -> count_final, one result per "
                    f"word at the end; {_CLOCK}",
                ),
            ),
            _words,
        ),
    ),
)
