"""Rows: everything that was sampled, as a tidy table: one observation a row."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from .trace import Row, Trace


def write_rows(path: Path, traces: Iterable[Trace]) -> int:
    """Write the samples as CSV, or as Parquet if that is the file's ending, and return the number of rows."""
    rows = [row for trace in traces for row in trace.rows()]
    if path.suffix == ".parquet":
        _write_parquet(path, rows)
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(Row._fields)
            writer.writerows(rows)
    return len(rows)


def _write_parquet(path: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns: Iterator[list[object]] = ([row[position] for row in rows] for position in range(len(Row._fields)))
    texts, numbers = pa.string(), pa.float64()
    kinds = {"seconds": numbers, "value": numbers}
    arrays = [pa.array(column, kinds.get(name, texts)) for name, column in zip(Row._fields, columns, strict=True)]
    parquet.write_table(pa.table(arrays, names=list(Row._fields)), path)
