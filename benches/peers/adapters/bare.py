"""A bare TCP socket in C: what any exchange is measured against."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import environments
import processes
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Unavailable, Workload


def _binary() -> str:
    return str(environments.build_folder("bare") / "bare")


def _prepare() -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Unavailable("no C compiler: install gcc; the Rust twin that flownet runs beside itself does the same")
    source = PROGRAMS / "bare.c"
    binary = environments.build_folder("bare") / "bare"
    environments.compile_to([compiler, "-O2", "-march=native", "-o", str(binary), str(source)], source, binary)
    return f"{environments.first_line([compiler, '--version'])} -O2 -march=native"


def _exchange(scale: Scale) -> Sequence[Sample]:
    outcome = processes.run([_binary(), "records", str(scale.pick(200_000_000, 1_000_000))])
    report = outcome.report
    return [Sample(report["records_per_s"], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb)]


def _bulk(scale: Scale) -> Sequence[Sample]:
    outcome = processes.run([_binary(), "bulk", str(_PAYLOAD), str(scale.pick(150_000, 5_000))])
    report = outcome.report
    return [Sample(report["records_per_s"] * _PAYLOAD, report["cpu_ns_per_record"], outcome.usage.peak_rss_mb)]


def _latency(scale: Scale) -> Sequence[Sample]:
    outcome = processes.run([_binary(), "oneway", "1000", str(scale.pick(6_000, 500))])
    report = outcome.report
    percentiles = (report["p50_us"], report["p99_us"], report["p999_us"])
    return [Sample(percentiles[0], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb, percentiles)]


_PAYLOAD = 32 * 1024

PEER = Peer(
    "bare",
    _prepare,
    (
        Case(
            Workload.EXCHANGE,
            (
                Row(
                    "bare C",
                    "blocking socket",
                    "2 processes, 1 thread each; length + value encoded into 32 KiB writes, decoded and summed; no "
                    "engine, credit or pools; clock: first record encoded -> last decoded",
                ),
            ),
            _exchange,
        ),
        Case(
            Workload.BULK,
            (
                Row(
                    "bare C",
                    "blocking socket",
                    "2 processes, 1 thread each; the same 32 KiB written again and again, nothing encoded or looked "
                    "at; clock: first write -> last read",
                ),
            ),
            _bulk,
        ),
        Case(
            Workload.LATENCY,
            (
                Row(
                    "bare C",
                    "blocking socket",
                    "2 processes; the message is the time of sending; TCP_NODELAY; write -> read returned",
                ),
            ),
            _latency,
        ),
    ),
)
