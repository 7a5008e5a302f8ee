"""pyzmq: messages between two Python processes."""

from __future__ import annotations

from collections.abc import Sequence

import environments
import processes
from interface import PROGRAMS, Case, Peer, Row, Sample, Scale, Workload


def _python() -> str:
    return environments.python_of("zmq", ["pyzmq==27.3.0"])


def _prepare() -> str:
    python = _python()
    libzmq = environments.first_line([python, "-c", "import zmq; print('libzmq', zmq.zmq_version())"])
    return f"{environments.version_in(python, 'pyzmq')}, {libzmq}"


def _push(size: int, count: int) -> tuple[float, Sample]:
    outcome = processes.run([_python(), str(PROGRAMS / "zmq_peer.py"), "push", str(size), str(count)])
    rate = float(outcome.report["records_per_s"])
    return rate, Sample(rate, outcome.report["cpu_ns_per_record"], outcome.usage.peak_rss_mb)


def _exchange(scale: Scale) -> Sequence[Sample]:
    return [_push(8, scale.pick(2_000_000, 20_000))[1]]


def _bulk(scale: Scale) -> Sequence[Sample]:
    rate, sample = _push(_PAYLOAD, scale.pick(100_000, 1_000))
    return [Sample(rate * _PAYLOAD, sample.cpu_ns_per_record, sample.peak_rss_mb)]


def _latency(scale: Scale) -> Sequence[Sample]:
    count = scale.pick(6_000, 500)
    outcome = processes.run([_python(), str(PROGRAMS / "zmq_peer.py"), "oneway", "1000", str(count)])
    report = outcome.report
    percentiles = (report["p50_us"], report["p99_us"], report["p999_us"])
    return [Sample(percentiles[0], report["cpu_ns_per_record"], outcome.usage.peak_rss_mb, percentiles)]


_PAYLOAD = 32 * 1024

PEER = Peer(
    "zmq",
    _prepare,
    (
        Case(
            Workload.EXCHANGE,
            (
                Row(
                    "pyzmq",
                    "PUSH/PULL 8 B",
                    "2 Python processes, an IO thread each; one send() and recv() in Python per record, nothing "
                    "encoded; clock: first message received -> last",
                ),
            ),
            _exchange,
        ),
        Case(
            Workload.BULK,
            (Row("pyzmq", "PUSH/PULL 32 KiB", "2 Python processes; bytes, copied in and out; clock as above"),),
            _bulk,
        ),
        Case(
            Workload.LATENCY,
            (
                Row(
                    "pyzmq",
                    "PUSH/PULL one way",
                    "2 Python processes; the message is the time of sending; send() -> recv() returned",
                ),
            ),
            _latency,
        ),
    ),
)
