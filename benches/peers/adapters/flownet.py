"""flownet itself: the reference of all ratios."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import environments
import processes
import text
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Unavailable, Workload


def _prepare() -> str:
    return environments.version_in(sys.executable, "flownet")


def _bench(*arguments: str) -> dict[str, float]:
    report: dict[str, float] = processes.run([sys.executable, "-m", "flownet", "bench", *arguments, "--json"]).report
    return report


def _exchange(record_bytes: int, scale: Scale, full: int, smoke: int) -> dict[str, float]:
    return _bench(
        "exchange",
        *("--writers", "1", "--channels", "1", "--buffer-timeout", "100ms", "--repeat", "1"),
        *("--record-bytes", str(record_bytes), "--records", str(scale.pick(full, smoke))),
    )


def _small(scale: Scale) -> Sequence[Sample]:
    report = _exchange(8, scale, 200_000_000, 1_000_000)
    own = Sample(report["records_per_s"], report.get("cpu_ns_per_record"), report.get("peak_rss_mb"))
    return [own, Sample(report["raw_tcp_records_per_s"])]


def _bulk(scale: Scale) -> Sequence[Sample]:
    report = _exchange(_PAYLOAD, scale, 150_000, 5_000)
    own = Sample(report["records_per_s"] * _PAYLOAD, report.get("cpu_ns_per_record"), report.get("peak_rss_mb"))
    return [own, Sample(report["raw_tcp_records_per_s"] * _PAYLOAD)]


def _latency(scale: Scale) -> Sequence[Sample]:
    report = _bench("latency", "--rate", "1000", "--buffer-timeout", "0", "--seconds", str(scale.pick(6, 1)))
    percentiles = (report["p50_us"], report["p99_us"], report["p999_us"])
    return [Sample(percentiles[0], report.get("cpu_ns_per_record"), report.get("peak_rss_mb"), percentiles)]


def _run(job: str, what: str, records: int) -> Sequence[Sample]:
    outcome = processes.run([sys.executable, str(PROGRAMS / "flownet_peer.py"), job, what])
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


_PAYLOAD = 32 * 1024
_TWO = "2 processes, a task thread and a network thread each, the product's exchange: credit, pools, 32 KiB segments, tasks in Rust"
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
            _small,
        ),
        Case(
            Workload.BULK,
            (
                Row("flownet", "records of 32 KiB", f"{_TWO}; each record spans two segments; clock and RSS as above"),
                Row("bare Rust", "twin of flownet bench", _TWIN),
            ),
            _bulk,
        ),
        Case(
            Workload.LATENCY,
            (Row("flownet", "timeout 0", f"{_TWO}; emission of a record -> reading thread has it"),),
            _latency,
        ),
        Case(
            Workload.OBJECTS,
            (
                Row(
                    "flownet",
                    "workers=2, parallelism 2",
                    f"{_PYTHON}; numbers made in the workers, 1000 a call; map -> key_by -> reduce; {_CLOCK}; 2 M ints",
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
