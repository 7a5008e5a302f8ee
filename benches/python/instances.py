"""How fast instances of classes go through two worker processes, beside tuples of the same values.

Ints made in one worker are mapped to records, which cross an exchange to the other worker, where a sink counts them.
``module`` is a dataclass that workers import, ``script`` one of this script, which travels to them by value.

    python benches/python/instances.py [--records N] [--repeat N] [--codec pickle] [--json] [--smoke]
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from object_path import Discard, Stamps
from reading import Reading as OfModule

import flownet as fn


@dataclasses.dataclass
class OfScript:
    """The same in the script."""

    sensor: str
    time: int
    value: float


class Named(NamedTuple):
    """The same as a tuple with names."""

    sensor: str
    time: int
    value: float


class Colour(enum.Enum):
    """One member of it is a record."""

    RED = 1


KINDS: dict[str, Callable[[int], Any]] = {
    "tuple": lambda number: ("sensor-17", number, 21.5),
    "module": lambda number: OfModule("sensor-17", number, 21.5),
    "script": lambda number: OfScript("sensor-17", number, 21.5),
    "named": lambda number: Named("sensor-17", number, 21.5),
    "enum": lambda number: Colour.RED,
}


def run(kind: str, options: argparse.Namespace, folder: str) -> tuple[float, float]:
    """Run the job once: records a second, bytes a record."""
    stamps = Stamps(str(Path(folder) / "stamps"))
    Path(stamps.path).unlink(missing_ok=True)
    records = options.records

    def numbers(subtask: int, subtasks: int) -> range:
        stamps.note()
        return range(subtask, records, subtasks)

    env = fn.Environment(codec=options.codec)
    made = env.from_iterable(numbers).place_on(1).map(KINDS[kind]).place_on(1)
    made.sink_to(Discard(stamps, len)).place_on(2)
    result = env.execute(workers=2)
    seconds, _, arrived = stamps.read()
    if arrived != records:
        sys.exit(f"{arrived} records arrived, not {records}")
    return records / seconds, result.bytes_tcp / records


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--codec", choices=["typed", "pickle"], default="typed")
    parser.add_argument("--kind", choices=list(KINDS), help="only this one")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each kind")
    parser.add_argument("--smoke", action="store_true", help="once, with few records: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.repeat = 1_000, 1
    kinds = [options.kind] if options.kind else list(KINDS)
    runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repeat):
            for kind in kinds:
                runs[kind].append(run(kind, options, folder))
    for kind, results in runs.items():
        rates, record_bytes = [rate for rate, _ in results], results[0][1]
        spread = [statistics.median(rates), min(rates), max(rates)]
        row = {"kind": kind, "codec": options.codec, "records_per_s": spread, "bytes_per_record": record_bytes}
        text = (
            f"{kind:8} {spread[0]:>10,.0f} records/s [{spread[1]:,.0f}-{spread[2]:,.0f}]"
            f" {record_bytes:>6.1f} bytes a record, codec {options.codec}"
        )
        print(json.dumps(row) if options.json else text)


if __name__ == "__main__":
    main()
