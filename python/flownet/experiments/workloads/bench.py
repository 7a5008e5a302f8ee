"""The workloads ``exchange`` and ``latency``: one run of ``flownet bench``, raw twin and exchange, in two processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ... import bench
from ...internal.parameter import Parameter, Value
from ..workload import Figure, Measurement, RunPlace, Workload


def _settings(given: Mapping[str, Value]) -> dict[str, object]:
    """Put parameters into the words of flownet-bench."""
    settings: dict[str, object] = {_NAMES.get(name, name): value for name, value in given.items()}
    settings["network"] = {key: settings.pop(key) for key in _OF_NETWORK if key in settings}
    return settings


def _check(kind: bench.Kind) -> Callable[[Mapping[str, Value]], None]:
    def check(parameters: Mapping[str, Value]) -> None:
        bench.settings(kind, _settings(parameters))

    return check


def _measure(kind: bench.Kind, figures: Mapping[str, Figure]) -> Callable[[Mapping[str, Value], RunPlace], Measurement]:
    def measure(parameters: Mapping[str, Value], place: RunPlace) -> Measurement:
        run = bench.run(kind, bench.settings(kind, _settings(parameters)))
        details: dict[str, Any] = run["details"] | {"settings": run["settings"], "seconds": run["seconds"]}
        return Measurement(
            figures={name: run[name] for name in figures if run[name] is not None},
            histogram=details.pop("histogram"),
            details=details,
        )

    return measure


def _exchange_cores(parameters: Mapping[str, Value]) -> int:
    """Count the writers and their network thread, the reader and its own."""
    return int(parameters.get("writers") or 1) + 3


_NAMES: Final = {
    "active": "active_channels",
    "buffer_timeout": "buffer_timeout_us",
    "network_memory": "network_memory_bytes",
    "segment_size": "segment_bytes",
}
_OF_NETWORK: Final = ("network_memory_bytes", "segment_bytes", "exclusive_buffers", "floating_buffers", "flow_control")
_COMMON: Final = {
    "buffer_timeout": Parameter(
        "duration", "how long a record may wait for its buffer to fill; 0: not at all", may_be_none=True
    ),
    "record_bytes": Parameter("count", "bytes of one record, at least 8 (default: 8)"),
    "channels": Parameter("count", "channels of each writer (default: 1)"),
    "network_memory": Parameter("size", "network memory of each side (default: what its pools would use at most)"),
    "segment_size": Parameter("size", "size of a buffer (default: 32KiB)"),
    "exclusive_buffers": Parameter("count", "buffers that each channel owns (default: 2)"),
    "floating_buffers": Parameter("count", "buffers that all channels share (default: 8)"),
    "flow_control": Parameter("choice", "what holds the sender back (default: credit)", choices=("credit", "tcp")),
    "tls": Parameter("flag", "encrypt the connection; the raw twin's stays plain"),
}
_COSTS: Final = {
    "cpu_ns_per_record": Figure("ns", "CPU time of all threads of both processes by record", higher_is_better=False),
    "cpu_cores": Figure("cores", "CPU time by time: 1 is one core", higher_is_better=False),
    "peak_rss_mb": Figure("MB", "most memory in RAM of both processes added", higher_is_better=False),
}
_RATE: Final = {
    "records_per_s": Figure("records/s", "records that arrived, by time", higher_is_better=True),
    "bytes_per_s": Figure("B/s", "the same in bytes, with 4 bytes of length each", higher_is_better=True),
}
_EXCHANGE_FIGURES: Final = {
    **_RATE,
    "ratio_to_raw_tcp": Figure("", "rate, by that of one bare TCP socket a moment before", higher_is_better=True),
    "raw_tcp_records_per_s": Figure("records/s", "the bare socket's own rate", higher_is_better=True),
    **_COSTS,
}
_LATENCY_FIGURES: Final = {
    "p99_us": Figure("us", "99 of 100 records took no longer from emission to arrival", higher_is_better=False),
    "p50_us": Figure("us", "half of the records took no longer", higher_is_better=False),
    "p999_us": Figure("us", "999 of 1000 records took no longer", higher_is_better=False),
    "max_us": Figure("us", "the slowest record", higher_is_better=False),
    "ratio_to_raw_tcp": Figure("", "p50 by the least that two processes can do", higher_is_better=False),
    **_RATE,
    **_COSTS,
}

EXCHANGE: Final = Workload(
    name="exchange",
    doc="throughput, CPU time and memory of the exchange, beside a raw TCP socket, in two processes",
    parameters={
        "writers": Parameter("count", "writing tasks, a thread each (default: 1)"),
        "records": Parameter("count", "records that all writers emit (default: as many as make 2.4 GB on the wire)"),
        "active": Parameter("count", "only so many channels of each writer get records, the others stay idle"),
        "partitioner": Parameter(
            "choice", "which channel gets a record (default: rr)", choices=("rr", "hash", "broadcast", "skewed")
        ),
        "local": Parameter("flag", "both ends in one process, through local channels"),
        **_COMMON,
    },
    figures=_EXCHANGE_FIGURES,
    measure=_measure("exchange", _EXCHANGE_FIGURES),
    check=_check("exchange"),
    cores=_exchange_cores,
)
LATENCY: Final = Workload(
    name="latency",
    doc="time from emission to arrival at a fixed rate, beside a raw TCP socket, in two processes",
    parameters={
        "rate": Parameter("number", "records emitted a second (default: 1000)"),
        "seconds": Parameter("number", "how long to send; the first tenth is not counted (default: 10)"),
        **_COMMON,
    },
    figures=_LATENCY_FIGURES,
    measure=_measure("latency", _LATENCY_FIGURES),
    check=_check("latency"),
    cores=lambda parameters: 4,
)
