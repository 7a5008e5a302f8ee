"""Tables that are in memory before a job starts, structured arrays of numpy among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


def is_in_memory(source: Any) -> bool:
    """Say whether an Arrow source is a table or data frame, whose rows are all there before the first is read.

    Others, such as a reader or a query of DuckDB, make their rows as they are read, and may not end.
    """
    if isinstance(source, StructuredArrays):
        return not source.is_read_once
    library = type(source).__module__.partition(".")[0]
    return library in _LIBRARIES_OF_TABLES and hasattr(source, "__len__")


_LIBRARIES_OF_TABLES = frozenset({"pyarrow", "polars", "pandas"})


@dataclass(slots=True)
class StructuredArrays:
    """Structured arrays of numpy as an Arrow stream, a batch each, made when it is read."""

    chunks: Iterable[Any]
    schema: pyarrow.Schema
    """Of the first one."""
    is_used: bool = False

    @property
    def is_read_once(self) -> bool:
        """Whether they are not there a second time."""
        return iter(self.chunks) is self.chunks

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> object:
        import pyarrow

        if self.is_used and self.is_read_once:
            raise ValueError("the arrays of an iterator were read by the run before: give from_numpy() a list of them")
        self.is_used = True
        return pyarrow.RecordBatchReader.from_batches(self.schema, map(self._batch, self.chunks)).__arrow_c_stream__()

    def _batch(self, array: Any) -> pyarrow.RecordBatch:
        batch = batch_of(array) if is_structured(array) else None
        if batch is None or batch.schema != self.schema:
            kind = getattr(array, "dtype", type(array).__name__)
            names = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
            raise TypeError(f"the first array of from_numpy() has the fields {names}, and a later one is of {kind}")
        return batch


def batch_of(array: Any) -> pyarrow.RecordBatch:
    """Make a column of each field of a structured array.

    Raises
    ------
    TypeError
        Arrow has nothing like a field: it is named.
    """
    import pyarrow

    return pyarrow.RecordBatch.from_pydict({name: _column(array, name) for name in array.dtype.names})


def _column(array: Any, name: str) -> pyarrow.Array:
    import pyarrow

    values = array[name]
    try:
        # In the order of bytes that this machine has.
        return pyarrow.array(values.astype(values.dtype.newbyteorder("="), copy=False))
    except pyarrow.ArrowException as error:
        raise TypeError(
            f"from_numpy: field {name!r} is of {values.dtype} in {values.ndim - 1} dimensions: {error}"
        ) from None


def is_structured(array: Any) -> bool:
    """Whether it is an array of numpy whose fields can be columns."""
    import numpy as np

    return isinstance(array, np.ndarray) and array.dtype.names is not None and array.ndim == 1
