"""Read files that other projects collect, and compare rows with those of a reference reader.

``make test-foreign-files PARQUET_TESTING=path JSON_TEST_SUITE=path`` runs it over copies of apache/parquet-testing and
nst/JSONTestSuite. It prints how many files were tried, read as the reference reads them, and refused by an error that
names the file, and ends with 1 if a file was read otherwise.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import flownet as fn
from flownet.errors import FlownetError

Outcome = tuple[str, str]
"""``"equal"``, ``"refused"``, ``"lenient"`` or ``"other"``, and why."""

KINDS = ("equal", "refused", "lenient", "other")

LENIENT = {"n_number_-NaN.json", "n_number_Inf.json"}
"""pyarrow's parser takes these numbers, which JSON has not."""


def main(parquet: str, suite: str) -> int:
    """Run what there is a path for, and say how many files were read otherwise."""
    others = 0
    if parquet:
        files = sorted(Path(parquet).joinpath("data").rglob("*.parquet"))
        files += sorted(Path(parquet).joinpath("bad_data").rglob("*.parquet"))
        others += report("parquet-testing", files, of_parquet)
    if suite:
        others += report("JSONTestSuite", sorted(Path(suite).joinpath("test_parsing").glob("*.json")), of_json)
    return others


def report(name: str, files: list[Path], read: Callable[[Path], Outcome]) -> int:
    """Read files and print the outcomes."""
    outcomes = [(path, *read(path)) for path in files]
    for path, outcome, why in outcomes:
        if outcome != "equal":
            print(f"{outcome:8} {path.name}: {why.splitlines()[-1] if why else ''}"[:230])
    counts = {kind: sum(outcome == kind for _, outcome, _ in outcomes) for kind in KINDS}
    print(f"{name}: tried {len(files)}, " + ", ".join(f"{kind} {count}" for kind, count in counts.items()))
    return counts["other"]


def of_parquet(path: Path) -> Outcome:
    """Read a file of Parquet; columns that rows cannot have are left out."""
    try:
        reference = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")
    except Exception as error:  # noqa: BLE001 - whatever the reference says, there is nothing to compare with
        reference = None
        reason = str(error)
    try:
        found = fn.Environment(parallelism=1).read_parquet(path).to_arrow()
    except FlownetError as error:
        named = path.name in str(error) or "column " in str(error)
        return ("refused" if named else "other"), str(error)
    if reference is None:
        return "other", f"read, where the reference says: {reason}"
    try:
        return compared(found.to_pylist(), reference.to_pylist())
    except (OverflowError, ValueError):
        # Python has no such dates.
        is_same = reference.cast(found.schema).equals(found)
        return ("equal", "") if is_same else ("other", f"{found} is not {reference}")


def of_json(path: Path) -> Outcome:
    """Read a text that is valid (y_), not (n_) or either (i_), as the value of a row."""
    data = path.read_bytes()
    row = Path(SCRATCH, path.name + ".jsonl")
    # A line of JSON is an object, and has no end of line in it.
    flat = data.replace(b"\n", b" ").replace(b"\r", b" ")
    row.write_bytes(b'{"it": ' + flat + b"}\n")
    try:
        expected: Any = [{"it": json.loads(flat)}]
    except (ValueError, RecursionError) as error:
        expected = str(error)
    try:
        found = fn.Environment(parallelism=1).read_json(row).to_arrow().to_pylist()
    except FlownetError as error:
        named = row.name in str(error) or "column " in str(error)
        return ("refused" if named else "other"), str(error)
    if isinstance(expected, str):
        outcome = "lenient" if path.name in LENIENT else "other"
        return outcome, f"read as {found!r:.80}, where the reference says: {expected}"
    return compared(found, expected)


def compared(found: Any, expected: Any) -> Outcome:
    """Compare rows; NaN is equal to NaN, and an absent field to null."""
    return ("equal", "") if is_equal(found, expected) else ("other", f"{found!r:.90} is not {expected!r:.90}")


def is_equal(one: Any, other: Any) -> bool:
    """Compare values at any depth."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, float) and isinstance(other, int):
        # Beyond 64 bits, whole numbers are floats.
        return one == float(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return all(is_equal(one.get(name), other.get(name)) for name in one.keys() | other.keys())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return bool(one == other)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as SCRATCH:
        sys.exit(1 if main(*sys.argv[1:3]) else 0)
