"""Apache Flink's network stack alone, by Flink's own benchmark of it: the classes are published with its tests."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence

import channels
import flink_jvm
import processes
from interface import Case, Peer, Row, Sample, Scale, Workload


def _prepare() -> str:
    flink_jvm.compiled("FlinkNetworkPeer")
    return flink_jvm.versions_of_tests()


def _run(of: channels.Channels, scale: Scale) -> Sequence[Sample]:
    # Its runs are long where those of flownet are, which is the faster; and all but the last one warm it up.
    records, warm = scale.pick(of.records // 20, of.smoke_records), scale.pick(2, 0)
    # Flink leaves folders behind.
    with tempfile.TemporaryDirectory() as folder:
        outcome = processes.run(
            [
                *flink_jvm.command("FlinkNetworkPeer", f"-Djava.io.tmpdir={folder}"),
                *(f"kind={of.partitioner}", f"writers={of.writers}", f"channels={of.channels}"),
                *(f"timeout={of.timeout_ms}", f"n={records}", f"warm={warm}"),
            ]
        )
    report = outcome.report
    return [Sample(report["records_per_s"], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb)]


_LAYOUT = (
    "1 JVM with both ends, Netty TCP over loopback: writer threads, a network thread a side, one reading thread; "
    "numbers of 8 bytes made and read by Flink's serialiser, no operators; after 2 warm-up runs through the same "
    "channels; clock: first record emitted -> the reader has the last; CPU of the whole JVM"
)
_ONE = channels.Channels(Workload.EXCHANGE, 1, 1, 100, "rr", 400_000_000)

PEER = Peer(
    "flink-network",
    _prepare,
    tuple(
        Case(of.workload, (Row("Flink", "its own network benchmark", _LAYOUT),), functools.partial(_run, of))
        for of in (_ONE, *channels.ALL)
    ),
)
