"""What it costs that every operator owns what it is given: three maps in one task, with and without ``object_reuse``.

The first map makes the record, the others hand it on. ``fresh``: nobody else has it, so it is looked at and no more.
``kept``: the function that made it keeps it, so it is copied. ``twice``: it goes to two operators. CPU time of the
whole process for each record, the functions' own included.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import flownet as fn


@dataclasses.dataclass(frozen=True)
class Reading:
    """Cannot be changed."""

    sensor: str
    value: float


@dataclasses.dataclass
class Basket:
    """Can be changed, and so can a part of it."""

    customer: str
    items: list[int]


MADE: dict[str, Callable[[int], Any]] = {
    "int": lambda n: n,
    "tuple": lambda n: ("sensor", n, 0.5),
    "frozen dataclass": lambda n: Reading("sensor", 0.5),
    "dict of 5": lambda n: {"id": n, "name": "a", "price": 0.5, "amount": n, "note": None},
    "list of 100": lambda n: [n] * 100,
    "dataclass with a list": lambda n: Basket("a", [n]),
}
SHAPES = ("fresh", "kept", "twice")


class Discard(fn.Sink[Any]):
    """Takes records and does nothing with them."""

    def write(self, records: list[Any]) -> None:
        """Forget them."""


class Keeps:
    """Makes records and keeps the last one."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __call__(self, number: int) -> Any:
        """Make one."""
        self.kept = self.make(number)
        return self.kept


def cpu_ns(made: str, shape: str, object_reuse: bool, records: int) -> float:
    """Run once."""
    env = fn.Environment(object_reuse=object_reuse)
    make = Keeps(MADE[made]) if shape == "kept" else MADE[made]
    stream = env.from_iterable(lambda subtask, subtasks: range(records)).map(make)
    if shape == "twice":
        stream.map(lambda record: record).sink_to(Discard())
    stream.map(lambda record: record).map(lambda record: record).sink_to(Discard())
    began = time.process_time()
    env.execute()
    return (time.process_time() - began) / records * 1e9


def main() -> None:
    """Parse the command line, measure in turn, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    parser.add_argument("--smoke", action="store_true", help="once, with few records: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.repeat = 100, 1
    for made in MADE:
        for shape in SHAPES:
            runs: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(options.repeat):
                for object_reuse in (True, False):
                    runs[object_reuse].append(cpu_ns(made, shape, object_reuse, options.records))
            reused, owned = (statistics.median(runs[object_reuse]) for object_reuse in (True, False))
            row = {"record": made, "shape": shape, "object_reuse": round(reused), "owned": round(owned)}
            text = f"{made:22} {shape:6} {reused:6.0f} ns with object_reuse, {owned:6.0f} ns without"
            print(json.dumps(row) if options.json else text)


if __name__ == "__main__":
    main()
