"""``flownet bench exchange`` and ``flownet bench latency``: the exchange beside a raw TCP socket, in two processes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from .. import bench
from ..errors import ConfigError
from ..internal.config import duration_us, size_bytes
from ..internal.units import format_number, format_value

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_FIGURES = """\
A run is a pair: the raw twin, then the exchange, a moment later on the same machine. Believe the ratio rather than the
figures, and the median of several runs rather than one. What arrives is counted and added up; a wrong sum is an error.

figures, here and in --json (one line a run; null where a bench does not measure it):
  records_per_s         records that arrived, by the time from the first one sent to the end of every channel; a
                        broadcast record counts once a channel
  bytes_per_s           the same in bytes, with the 4 bytes of length in front of each record
  cpu_ns_per_record     CPU time, user and system, of all threads of both processes for each record that arrived
  cpu_cores             the same CPU time by the time of the run: 1 is one core
  peak_rss_mb           most memory in RAM of both processes added, their Python interpreters (13 MB each) included
  p50_us ... max_us     from the emission of a record to the reading thread that has it
  raw_tcp_records_per_s the raw twin: one thread a side, one blocking socket, the same records encoded into writes of
                        32 KiB and decoded from reads of up to 256 KiB; no channels, no credit, no pool. The exchange
                        takes records of 8 bytes in a row (PartitionWriter::emit_all), larger ones one by one (emit)
  ratio_to_raw_tcp      exchange: records_per_s by the twin's. latency: p50_us by half a ping-pong over a raw socket
                        plus one wake-up of a thread, which is the least that two processes can do
  details               pool sizes, the twin's own figures, what the network threads did; histogram: all latencies in
                        ns, an HdrHistogram (V2, deflated, base64), which can be added to those of other runs
  machine, versions     where and with what; load_before is the machine's load average when the run began
"""


def add_commands(commands: Commands) -> None:
    """Add ``bench`` to the command line."""
    benches = commands.add_parser("bench", help="measure the exchange beside a raw TCP socket").add_subparsers(
        metavar="BENCH", required=True
    )
    exchange = _add_bench(
        benches,
        "exchange",
        "throughput, CPU time and memory",
        "Send records from the writer tasks of one process (a thread each) to one reading thread of another, over one "
        "TCP connection, as Flink's own network benchmarks do.",
    )
    exchange.add_argument("--writers", metavar="W", type=int, help="writing tasks (default: 1)")
    exchange.add_argument(
        "--channels", metavar="C", type=int, help="channels of each writer; the reader reads all W*C (default: 1)"
    )
    exchange.add_argument(
        "--active",
        metavar="A",
        type=int,
        help="with --partitioner rr: send to the first A channels of each writer only, the others stay idle",
    )
    exchange.add_argument(
        "--records",
        metavar="N",
        type=int,
        help="records that all writers together emit (default: as many as make 2.4 GB on the wire); runs of less than "
        "a second say little",
    )
    exchange.add_argument(
        "--partitioner",
        choices=["rr", "hash", "broadcast", "skewed"],
        help="rr: the channels in turn; hash: by key group; broadcast: each record to all channels; skewed: each "
        "channel once, then only the first (default: rr)",
    )
    exchange.add_argument(
        "--local",
        action="store_true",
        default=None,
        help="both ends in one process, through local channels: no socket, no credit, no copy; the raw twin still has "
        "two processes and a socket",
    )
    exchange.add_argument(
        "--grid",
        choices=["flink"],
        help="run the known grid, each row --repeat times, in turn: 1 writer x 1 channel; 4 writers x 100 channels at "
        "100 ms; 4 x 1000 at 1 ms and at 100 ms; 10 x 1000 skewed at 1 ms; 4 x 100 broadcast at "
        "100 ms. --records then says how many arrive",
    )
    latency = _add_bench(
        benches,
        "latency",
        "time from emission to arrival",
        "Emit records by the clock and take the time until the reading thread of another process has each. The sender "
        "sleeps until the next record is due, then emits all that are; the raw twin does the same with one write a "
        "record. The first tenth of the time is not counted.",
    )
    latency.add_argument(
        "--rate", metavar="R", type=float, help="records a second (default: 1000); 0 measures an idle exchange"
    )
    latency.add_argument("--seconds", metavar="S", type=float, help="how long to send (default: 10)")
    latency.add_argument("--channels", metavar="C", type=int, help="channels the records go to in turn (default: 1)")
    latency.set_defaults(grid=None)


def _add_bench(benches: Commands, name: str, help: str, description: str) -> argparse.ArgumentParser:
    parser = benches.add_parser(
        name,
        help=help,
        description=description,
        epilog=_FIGURES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default_timeout = {"exchange": "100ms", "latency": "0"}[name]
    parser.add_argument(
        "--buffer-timeout",
        metavar="T",
        help="how long a record may wait for its buffer to fill, such as 1ms; 0: sent at once; none: only full buffers "
        f"are sent (default: {default_timeout})",
    )
    parser.add_argument("--record-bytes", metavar="B", type=int, help="bytes of one record, at least 8 (default: 8)")
    parser.add_argument("--repeat", metavar="K", type=int, default=1, help="runs of each configuration (default: 1)")
    parser.add_argument("--json", action="store_true", help="write one line of JSON a run instead of a table")
    parser.add_argument(
        "--network-memory",
        metavar="SIZE",
        help="network memory of each side (default: what its pools would use at most, and no less than 64MiB)",
    )
    parser.add_argument("--segment-size", metavar="SIZE", help="size of a buffer (default: 32KiB)")
    parser.add_argument("--exclusive-buffers", metavar="N", type=int, help="buffers each channel owns (default: 2)")
    parser.add_argument("--floating-buffers", metavar="N", type=int, help="buffers all channels share (default: 8)")
    parser.add_argument(
        "--flow-control",
        choices=["credit", "tcp"],
        help="what holds the sender back; tcp: a buffer that finds no place stops all channels (default: credit)",
    )
    parser.add_argument(
        "--tls", action="store_true", default=None, help="encrypt the connection; the raw twin's stays plain"
    )
    parser.set_defaults(command=_bench, kind=name)
    return parser


def _bench(options: argparse.Namespace) -> int:
    if options.repeat < 1:
        raise ConfigError(f"--repeat {options.repeat}: must be at least 1", setting="repeat", value=options.repeat)
    kind: bench.Kind = options.kind
    given = _settings(options)
    rows = bench.flink_grid(given) if options.grid else [given]
    rows = [bench.settings(kind, row) for row in rows]
    # Row by row, then again: what else happens on the machine meets all rows alike.
    plan = rows * options.repeat
    runs = []
    for number, settings in enumerate(plan, start=1):
        run = bench.run(kind, settings)
        if options.json:
            print(json.dumps(run), flush=True)
        elif len(plan) > 1:
            label = bench.label(kind, settings)
            print(f"run {number} of {len(plan)}: {label}: {_figures(run)}", file=sys.stderr, flush=True)
        runs.append(run)
    if not options.json:
        print(_where(runs[0]))
        print(bench.table(runs))
    return 0


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """Read what was given in the words of flownet-bench; what was not given keeps its default there."""
    memory: dict[str, object] = {
        "network_memory_bytes": _size("network_memory", options.network_memory),
        "segment_bytes": _size("segment_size", options.segment_size),
        "exclusive_buffers": options.exclusive_buffers,
        "floating_buffers": options.floating_buffers,
        "flow_control": options.flow_control,
        "tls": options.tls,
    }
    names = {
        "exchange": ("writers", "channels", "record_bytes", "records", "partitioner", "local"),
        "latency": ("rate", "seconds", "channels", "record_bytes"),
    }[options.kind]
    settings: dict[str, object] = {name: getattr(options, name) for name in names}
    settings["active_channels"] = getattr(options, "active", None)
    settings = {name: value for name, value in settings.items() if value is not None}
    settings["network"] = {name: value for name, value in memory.items() if value is not None}
    if options.buffer_timeout is not None:
        settings["buffer_timeout_us"] = _timeout(options.buffer_timeout)
    return settings


def _size(setting: str, written: str | None) -> int | None:
    if written is None:
        return None
    return size_bytes(setting, int(written) if written.isdecimal() else written)


def _timeout(written: str) -> int | None:
    if written.lower() == "none":
        return None
    return duration_us("buffer_timeout", int(written) if written.isdecimal() else written)


def _figures(run: dict[str, Any]) -> str:
    """Write the figures of one run in a few words, for those who wait for the table."""
    if run["bench"] == "exchange":
        return f"{format_value(run['records_per_s'], 'records/s')}, {format_number(run['ratio_to_raw_tcp'])} of raw TCP"
    if run["p50_us"] is None:
        return f"{run['cpu_cores']:.3f} cores"
    half, most = (format_value(run[name], "us") for name in ("p50_us", "p99_us"))
    return f"p50 {half}, p99 {most}, {format_number(run['ratio_to_raw_tcp'])} of the limit"


def _where(run: dict[str, Any]) -> str:
    machine, versions = run["machine"], run["versions"]
    return (
        f"{machine['cores']} cores of {machine['cpu']}, Linux {machine['kernel']}, load {machine['load_before']:.1f} "
        f"before; flownet {versions['flownet']} ({versions['build']}), Python {versions['python']}"
    )
