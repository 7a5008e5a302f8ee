"""The object codec: Python values to bytes and back, beside pickle.

    python benches/python/object_codec.py [--smoke] [--json] [FILTER]

Each figure is the best of several rounds, in nanoseconds a value: what disturbs a round only makes it slower. Pickle
(protocol 5) stands beside it as a yardstick; it runs code when it decodes, which is why flownet does not use it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from flownet import codec

VALUES: dict[str, Any] = {
    "int": 123_456,
    "float": 3.5,
    "str/chars=20": "twenty characters ok",
    "bytes/bytes=1024": bytes(1024),
    "tuple/str,int": ("word", 1),
    "tuple/str,int,float": ("sensor-17", 1_700_000_000_000, 21.5),
    "dict/keys=5": {"id": 17, "name": "sensor", "value": 21.5, "ok": True, "tags": None},
    "list/ints=100": list(range(100)),
    "datetime": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "ndarray/float64=128": np.arange(128, dtype=np.float64),
}
"""By what they are and how large."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one value costs."""

    value: str
    encoded_bytes: int
    encode_ns: float
    decode_ns: float
    pickle_encode_ns: float
    pickle_decode_ns: float


def measure(name: str, value: Any, seconds: float) -> Row:
    """Measure one value, and that it comes back as it was."""
    encoded, pickled = codec.encode(value), pickle.dumps(value, protocol=5)
    if not np.array_equal(codec.decode(encoded), value):
        raise SystemExit(f"{name}: came back as {codec.decode(encoded)!r}")
    return Row(
        name,
        len(encoded),
        nanoseconds(partial(codec.encode, value), seconds),
        nanoseconds(partial(codec.decode, encoded), seconds),
        nanoseconds(partial(pickle.dumps, value, protocol=5), seconds),
        nanoseconds(partial(pickle.loads, pickled), seconds),
    )


def nanoseconds(call: Callable[[], object], seconds: float) -> float:
    """Return the time of one call, the best of `ROUNDS` rounds that take ``seconds`` together."""
    timer = timeit.Timer(call)
    once = max(timer.timeit(1), 1e-7)
    calls = max(1, int(seconds / ROUNDS / once))
    # The first call is slower than those that follow: look again, then measure.
    calls = max(1, int(seconds / ROUNDS / max(timer.timeit(calls) / calls, 1e-8)))
    return min(timer.repeat(ROUNDS, calls)) / calls * 1e9


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the object codec beside pickle.")
    parser.add_argument("filter", nargs="?", default="", help="only values whose name holds this")
    parser.add_argument("--smoke", action="store_true", help="prove that it works, measure nothing")
    parser.add_argument("--json", action="store_true", help="write one line of JSON a value")
    options = parser.parse_args()
    chosen = {name: value for name, value in VALUES.items() if options.filter in name}
    if not options.json:
        print(f"{'object codec, ns a value':<24}{'bytes':>7}{'encode':>9}{'decode':>9}{'pickle':>9}{'unpickle':>9}")
    for name, value in chosen.items():
        row = measure(name, value, 0.001 if options.smoke else 0.5)
        if options.json:
            print(json.dumps(asdict(row)), flush=True)
            continue
        times = (row.encode_ns, row.decode_ns, row.pickle_encode_ns, row.pickle_decode_ns)
        print(f"{name:<24}{row.encoded_bytes:>7}" + "".join(f"{ns:>9.0f}" for ns in times), flush=True)


ROUNDS = 5

if __name__ == "__main__":
    main()
