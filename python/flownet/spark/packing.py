"""Packs Arrow batches into rows of one binary column, for results that pass a shuffle of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow

COLUMNS = "batch binary"
"""The schema of packed batches, in DDL: one batch a row, in Arrow's IPC format."""


def pack(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Turn each batch into a row."""
    for batch in batches:
        yield pyarrow.record_batch({"batch": pyarrow.array([batch.serialize().to_pybytes()], pyarrow.binary())})


def unpacker(schema: pyarrow.Schema) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Make the function that turns rows into batches of this schema. It travels by value and needs no flownet."""
    schema_bytes = schema.serialize().to_pybytes()

    def unpack(rows: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as arrow

        schema = arrow.ipc.read_schema(arrow.py_buffer(schema_bytes))
        for batch in rows:
            for packed in batch.column(0):
                yield arrow.ipc.read_record_batch(packed.as_buffer(), schema)

    return unpack
