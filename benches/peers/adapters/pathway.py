"""Pathway: tables in Python on a Rust engine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import environments
import processes
import text
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Workload


def _python() -> str:
    return environments.python_of("pathway", ["pathway==0.33.0"])


def _prepare() -> str:
    return environments.version_in(_python(), "pathway")


def _words(scale: Scale) -> Sequence[Sample]:
    python = _python()
    with text.joined(scale) as (name, words), tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures"
        env = {
            "PEER_TEXT": name,
            "PEER_OUT": str(out),
            "PATHWAY_MONITORING_SERVER": "",
            "PATH": os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", "")]),
        }
        spawn = [os.path.join(os.path.dirname(python), "pathway"), "spawn", "--threads", "1", "--processes", "2"]
        command = [*spawn, python, str(PROGRAMS / "pathway_peer.py")]
        usage = processes.run_silent(command, env=env)
        figures = [json.loads(line) for line in out.read_text().splitlines()]
    seconds = max(row["end"] for row in figures) - min(row["start"] for row in figures)
    cpu_ns = sum(row["cpu_seconds"] for row in figures) * 1e9
    return [Sample(words / seconds, cpu_ns / words, usage.peak_rss_mb)]


PEER = Peer(
    "pathway",
    _prepare,
    (
        Case(
            Workload.WORDS,
            (
                Row(
                    "Pathway",
                    "2 processes",
                    "2 processes, 1 thread each, TCP between them; one file in static mode, which one of them reads; "
                    "split in Python, flatten, groupby, count in Rust, results per micro-batch; clock: the whole "
                    "pw.run(), reading included",
                ),
            ),
            _words,
        ),
    ),
)
