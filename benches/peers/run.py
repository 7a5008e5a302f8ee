"""The same work on flownet and its peers, alternately, in one call; one table out.

    python benches/peers/run.py [--peers bytewax zmq] [--workloads exchange] [--rounds 3] [--json FILE] [--smoke]

Run it with the Python that flownet is installed in; ``make bench-peers`` does. Each round runs every case of a workload
once, every other round backwards, so that a slow spell of the machine hits all alike.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

import machine
import processes
from adapters import PEERS
from interface import REFERENCE, Case, Peer, Sample, Scale, Unavailable, Workload
from table import Record, render


def main() -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args()
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = {REFERENCE, *(options.peers or [peer.name for peer in PEERS])}
    workloads = [Workload(name) for name in options.workloads] if options.workloads else list(Workload)
    peers = [peer for peer in PEERS if peer.name in names]
    records: list[Record] = []
    json_lines: TextIO | None = None
    try:
        json_lines = sys.stdout if options.json == "-" else open(options.json, "a") if options.json else None
        print(machine.sentence(), file=sys.stderr, flush=True)
        for record in _measure(peers, workloads, options.rounds, Scale(options.smoke)):
            records.append(record)
            if json_lines is not None:
                print(record.to_json(), file=json_lines, flush=True)
    except KeyboardInterrupt:
        print("cancelled; what was measured so far:", file=sys.stderr)
        return 130
    finally:
        processes.end_all()
        if records and json_lines is not sys.stdout:
            if options.smoke:
                print("SMOKE RUN: tiny sizes, these figures measure nothing\n")
            print(render(records))
        if json_lines is not None and json_lines is not sys.stdout:
            json_lines.close()
    return 0 if any(record.sample for record in records) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run.py", description="The same work on flownet and its peers, alternately.")
    parser.add_argument(
        "--peers",
        nargs="+",
        metavar="PEER",
        choices=[peer.name for peer in PEERS],
        help=f"which beside flownet: {', '.join(peer.name for peer in PEERS if peer.name != REFERENCE)}; default: all",
    )
    parser.add_argument(
        "--workloads",
        nargs="+",
        metavar="WORKLOAD",
        choices=[workload.value for workload in Workload],
        help=f"which of {', '.join(workload.value for workload in Workload)}; default: all",
    )
    parser.add_argument("--rounds", type=_positive, default=3, help="rounds of each workload (default: 3)")
    parser.add_argument(
        "--json", metavar="FILE", help="also append a line of JSON per run to FILE; - writes those instead of the table"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: prove that all run, measure nothing")
    return parser


def _measure(peers: Sequence[Peer], workloads: Sequence[Workload], rounds: int, scale: Scale) -> Iterator[Record]:
    """Run all rounds; a peer that cannot be run gives records that say why."""
    versions, reasons = _prepare(peers, workloads)
    call = time.strftime("%Y-%m-%dT%H:%M:%S")
    for workload in workloads:
        cases = [(peer, case) for peer in peers for case in peer.cases if case.workload is workload]
        for round_number in range(rounds):
            for peer, case in cases[:: -1 if round_number % 2 else 1]:
                known = reasons.get(peer.name)
                results = [known] * len(case.rows) if known else _run(case, scale, round_number)
                described = machine.describe()
                for row, result in zip(case.rows, results, strict=True):
                    yield Record.of(
                        workload, row, versions.get(peer.name, ""), f"{call} {round_number}", result, described
                    )


def _prepare(peers: Sequence[Peer], workloads: Sequence[Workload]) -> tuple[dict[str, str], dict[str, str]]:
    """Install what is needed; return the versions, and why peers cannot be run."""
    versions, reasons = {}, {}
    for peer in peers:
        if any(case.workload in workloads for case in peer.cases):
            try:
                versions[peer.name] = peer.prepare()
            except Unavailable as reason:
                reasons[peer.name] = str(reason)
                print(f"{peer.name}: {reason}", file=sys.stderr, flush=True)
    return versions, reasons


def _run(case: Case, scale: Scale, round_number: int) -> Sequence[Sample | str]:
    title = f"{case.workload.value} {round_number + 1}: {case.rows[0].peer}, {case.rows[0].name}"
    try:
        samples = case.run(scale)
    except (Unavailable, KeyError) as error:
        reason = f"no {error} in its figures" if isinstance(error, KeyError) else str(error)
        print(f"{title}: {reason}", file=sys.stderr, flush=True)
        return [reason] * len(case.rows)
    print(f"{title}: {samples[0].value:,.1f} {case.workload.unit}", file=sys.stderr, flush=True)
    return samples


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
