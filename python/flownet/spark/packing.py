"""Packs Arrow batches into rows of one binary column, to pass a shuffle of Spark cheaply and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow

RESULT_COLUMNS = "result int, batch binary"
"""The schema of packed results, in DDL: which result, and a batch of it in Arrow's IPC format without the schema."""

INPUT_COLUMNS = "source int, worker int, batch binary"
"""The schema of packed inputs, in DDL: for which source and worker, and a batch as a stream in Arrow's IPC format."""


def pack(results: Iterator[tuple[int, pyarrow.RecordBatch]]) -> Iterator[pyarrow.RecordBatch]:
    """Turn each batch of a result into a row."""
    for result, batch in results:
        packed = pyarrow.array([batch.serialize().to_pybytes()], pyarrow.binary())
        yield pyarrow.record_batch({"result": pyarrow.array([result], "int32"), "batch": packed})


def unpacker(schema: pyarrow.Schema) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Make the function that turns rows into batches of this schema. It travels by value and needs no flownet."""
    schema_bytes = schema.serialize().to_pybytes()

    def unpack(rows: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as arrow

        schema = arrow.ipc.read_schema(arrow.py_buffer(schema_bytes))
        for batch in rows:
            for packed in batch.column("batch"):
                yield arrow.ipc.read_record_batch(packed.as_buffer(), schema)

    return unpack


def input_packer(source: int, workers: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Make the function that packs a DataFrame for the workers. It travels by value and needs no flownet.

    Each batch is cut into pieces for all workers, which so get equally much of every partition, in its order.
    """
    fewest = _FEWEST_ROWS

    def pack_input(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as arrow
        from pyspark import TaskContext

        context = TaskContext.get()
        place = context.partitionId() if context is not None else 0
        for batch in batches:
            rows = max(fewest, -(-batch.num_rows // workers))
            pieces, targets = list[Any](), list[int]()
            for start in range(0, batch.num_rows, rows):
                stream = arrow.BufferOutputStream()
                with arrow.ipc.new_stream(stream, batch.schema) as writer:
                    writer.write_batch(batch.slice(start, rows))
                pieces.append(stream.getvalue().to_pybytes())
                targets.append(place % workers)
                place += 1
            columns = {
                "source": arrow.array([source] * len(pieces), "int32"),
                "worker": arrow.array(targets, "int32"),
                "batch": arrow.array(pieces, "binary"),
            }
            yield arrow.record_batch(columns)

    return pack_input


def unpack_input(payload: bytes) -> Iterator[pyarrow.RecordBatch]:
    """Read a packed batch of a DataFrame."""
    with pyarrow.ipc.open_stream(payload) as reader:
        yield from reader


_FEWEST_ROWS = 64
"""A piece of a batch has at least so many rows, if the batch has."""
