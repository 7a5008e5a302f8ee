"""flownet itself: the reference of all ratios."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import channels
import environments
import processes
import text
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Unavailable, Workload


def _prepare() -> str:
    return environments.version_in(sys.executable, "flownet-streams")


def _bench(*arguments: str) -> dict[str, Any]:
    return processes.run([sys.executable, "-m", "flownet", "bench", *arguments, "--json"]).report


def _exchange(record_bytes: int, full: int, smoke: int, scale: Scale) -> Sequence[Sample]:
    report = _bench(
        "exchange",
        *("--writers", "1", "--channels", "1", "--buffer-timeout", "100ms", "--repeat", "1"),
        *("--record-bytes", str(record_bytes), "--records", str(scale.pick(full, smoke))),
    )
    # Bulk counts payload, as the peers do; bytes_per_s of flownet bench has the lengths in it.
    factor = 1 if record_bytes == _SMALL else record_bytes
    return [
        Sample(report["records_per_s"] * factor, report["cpu_ns_per_record"], report["peak_rss_mb"]),
        Sample(report["raw_tcp_records_per_s"] * factor, report["details"]["raw_tcp_cpu_ns_per_record"]),
    ]


def _channels(of: channels.Channels, scale: Scale) -> Sequence[Sample]:
    report = _bench(
        "exchange",
        *("--writers", str(of.writers), "--channels", str(of.channels), "--buffer-timeout", f"{of.timeout_ms}ms"),
        *("--partitioner", of.partitioner, "--records", str(scale.pick(of.records, of.smoke_records))),
    )
    return [Sample(report["records_per_s"], report["cpu_ns_per_record"], report["peak_rss_mb"])]


def _latency(scale: Scale) -> Sequence[Sample]:
    report = _bench("latency", "--rate", "1000", "--buffer-timeout", "0", "--seconds", str(scale.pick(6, 1)))
    own, twin = _percentiles(report), _percentiles(report["details"]["raw_tcp"])
    return [
        Sample(own[0], report["cpu_ns_per_record"], report["peak_rss_mb"], own),
        Sample(twin[0], percentiles_us=twin),
    ]


def _percentiles(figures: dict[str, float]) -> tuple[float, float, float]:
    return figures["p50_us"], figures["p99_us"], figures["p999_us"]


def _run(job: str, what: str, records: int) -> Sequence[Sample]:
    outcome = processes.run([sys.executable, str(PROGRAMS / "flownet_peer.py"), job, what])
    report = outcome.report
    if report["records"] != records:
        raise Unavailable(f"{report['records']} records arrived, not {records}")
    cpu_ns = report["cpu_seconds"] * 1e9 / records
    return [Sample(records / report["seconds"], cpu_ns, outcome.usage.peak_rss_mb)]


def _objects(scale: Scale) -> Sequence[Sample]:
    records = scale.pick(10_000_000, 20_000)
    return _run("objects", str(records), records)


def _words(scale: Scale) -> Sequence[Sample]:
    with text.listed(scale) as (name, words):
        return _run("words", name, words)


_SMALL = 8
_PAYLOAD = 32 * 1024
_TWO = (
    "2 processes, a task thread and a network thread each; tasks in Rust; the product's exchange: credit, pools, "
    "32 KiB segments"
)
_TWIN = "2 processes, blocking sockets in Rust, run by `flownet bench` alternately with its own"
_PYTHON = "2 worker processes and the one that started them, TCP between them; typed codec"
_CLOCK = (
    "clock: first batch read in a worker -> last close of a sink, starting not in it; CPU of the workers over that span"
)

PEER = Peer(
    "flownet",
    _prepare,
    (
        Case(
            Workload.EXCHANGE,
            (
                Row(
                    "flownet",
                    "timeout 100 ms",
                    f"{_TWO}; clock: first record emitted -> end of the channel; RSS with the two Python interpreters",
                ),
                Row("bare Rust", "twin of flownet bench", f"{_TWIN}; length + value encoded, decoded"),
            ),
            functools.partial(_exchange, _SMALL, 200_000_000, 1_000_000),
        ),
        *(
            Case(
                of.workload,
                (Row("flownet", "many channels", f"{_TWO}; clock and RSS as above"),),
                functools.partial(_channels, of),
            )
            for of in channels.ALL
        ),
        Case(
            Workload.BULK,
            (
                Row("flownet", "records of 32 KiB", f"{_TWO}; each record spans two segments; clock and RSS as above"),
                Row("bare Rust", "twin of flownet bench", f"{_TWIN}; length + payload, copied in and out"),
            ),
            functools.partial(_exchange, _PAYLOAD, 150_000, 5_000),
        ),
        Case(
            Workload.LATENCY,
            (
                Row("flownet", "timeout 0", f"{_TWO}; emission of a record -> reading thread has it"),
                Row("bare Rust", "twin of flownet bench", f"{_TWIN}; one write a record; write -> read returned"),
            ),
            _latency,
        ),
        Case(
            Workload.OBJECTS,
            (
                Row(
                    "flownet",
                    "workers=2, parallelism 2",
                    f"{_PYTHON}; numbers made in the workers, 1000 a call; map -> key_by -> reduce; {_CLOCK}; 10 M "
                    "ints",
                ),
            ),
            _objects,
        ),
        Case(
            Workload.WORDS,
            (
                Row(
                    "flownet",
                    "workers=2, parallelism 2",
                    f"{_PYTHON}; read_text -> flat_map(split) -> key_by -> 5 s window -> count, as `flownet demo "
                    f"wordcount`; {_CLOCK}",
                ),
            ),
            _words,
        ),
    ),
)
