"""Arrow Flight: the columnar reference."""

from __future__ import annotations

from collections.abc import Sequence

import environments
import processes
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Workload


def _python() -> str:
    return environments.python_of("flight", ["pyarrow==26.0.1", "numpy"])


def _prepare() -> str:
    return environments.version_in(_python(), "pyarrow")


def _put(batch_bytes: int, total_bytes: int) -> processes.Outcome:
    program = str(PROGRAMS / "flight_peer.py")
    return processes.run([_python(), program, str(batch_bytes), str(max(1, total_bytes // batch_bytes))])


def _exchange(scale: Scale) -> Sequence[Sample]:
    outcome = _put(_BATCH, scale.pick(2 << 30, 16 << 20))
    report = outcome.report
    return [Sample(report["records_per_s"], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb)]


def _bulk(scale: Scale) -> Sequence[Sample]:
    outcome = _put(_BATCH, scale.pick(2 << 30, 16 << 20))
    report = outcome.report
    return [Sample(report["bytes_per_s"], report["cpu_ns_per_batch"], outcome.usage.peak_rss_mb)]


_BATCH = 32 * 1024
_LAYOUT = (
    "2 Python processes, gRPC; one int64 column, the same batch of 4096 values again and again; columnar: nothing "
    "encoded or decoded per value, the server counts rows; clock: the whole DoPut after a warm-up"
)

PEER = Peer(
    "flight",
    _prepare,
    (
        Case(Workload.EXCHANGE, (Row("Arrow Flight", "DoPut 32 KiB batches", _LAYOUT),), _exchange),
        Case(Workload.BULK, (Row("Arrow Flight", "DoPut 32 KiB batches", _LAYOUT),), _bulk),
    ),
)
