"""Apache Flink: the Java engine, from the jars in PyFlink's package."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import flink_jvm
import processes
from interface import Case, Peer, Row, Sample, Scale, Workload


def _prepare() -> str:
    flink_jvm.compiled("FlinkPeer")
    return flink_jvm.versions()


def _run(*arguments: str) -> processes.Outcome:
    return processes.run([*flink_jvm.command("FlinkPeer"), *arguments])


def _exchange(timeout_ms: int, scale: Scale) -> Sequence[Sample]:
    records, warm = scale.pick(40_000_000, 100_000), scale.pick(2, 0)
    outcome = _run("job=exchange", f"timeout={timeout_ms}", f"n={records}", f"warm={warm}")
    report = outcome.report
    return [Sample(report["records_per_s"], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb)]


def _latency(scale: Scale) -> Sequence[Sample]:
    seconds, warm = scale.pick(6, 1), scale.pick(1, 0)
    outcome = _run("job=latency", "timeout=0", "rate=1000", f"seconds={seconds}", f"warm={warm}")
    report = outcome.report
    percentiles = (report["p50_us"], report["p99_us"], report["p999_us"])
    return [Sample(percentiles[0], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb, percentiles)]


_LAYOUT = (
    "1 JVM with 2 TaskManagers, the channel is Netty TCP over loopback; boxed Long, Flink's serialiser, object reuse, "
    "64 MiB network memory, no checkpoints"
)

PEER = Peer(
    "flink",
    _prepare,
    (
        Case(
            Workload.EXCHANGE,
            (
                Row(
                    "Flink",
                    "remote channel, timeout 100 ms",
                    f"{_LAYOUT}; after 2 warm-up jobs in the JVM; clock: first record emitted -> end of the sink; CPU "
                    "of the whole JVM",
                ),
            ),
            functools.partial(_exchange, 100),
        ),
        Case(
            Workload.LATENCY,
            (
                Row(
                    "Flink",
                    "remote channel, timeout 0",
                    f"{_LAYOUT}; after a warm-up job of 5 s at 100,000/s; source's stamp -> sink's; CPU of the whole "
                    "JVM, heartbeats and JIT too",
                ),
            ),
            _latency,
        ),
    ),
)
