"""Rows into one Parquet file after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ROW_GROUP_ROWS = 122_880
"""Rows of a group, as DuckDB has them: enough that a group is worth skipping, few enough to wait in memory."""

_ROW_GROUP_BYTES = 64 << 20
"""A group of large rows ends earlier: what waits for its end is in memory."""


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """How files are written; called with a path and a schema it begins one."""

    compression: str
    row_group_rows: int
    gathers: bool
    """Whether rows wait for a whole group. Where they come gathered they are one."""

    def __call__(self, path: str, schema: Any) -> ParquetFile:
        """Begin the file of this name."""
        import pyarrow

        return ParquetFile(path, pyarrow.schema(schema), self)


class ParquetFile:
    """One file, whose rows come in batches."""

    def __init__(self, path: str, schema: Any, format: ParquetFormat) -> None:
        import pyarrow.parquet

        self._schema = schema
        self._most_rows = format.row_group_rows
        self._gathers = format.gathers
        self._writer = pyarrow.parquet.ParquetWriter(path, schema, compression=format.compression)
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, batch: Any) -> None:
        """Take a batch."""
        import pyarrow

        batch = pyarrow.record_batch(batch)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if not self._gathers or self._rows >= self._most_rows or self._bytes >= _ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write what was gathered, and make the file whole."""
        if self._rows:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        import pyarrow

        table = pyarrow.Table.from_batches(self._batches, self._schema)
        self._batches, self._rows, self._bytes = [], 0, 0
        self._writer.write_table(table, self._most_rows)
