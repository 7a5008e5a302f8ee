"""Conversion of batches to the formats of user functions, and of their results to Arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import ConfigError

BatchFormat = Literal["arrow", "polars", "pandas", "numpy"]
"""Type of the argument of a function over batches."""


def known_format(method: str, format: object) -> None:
    """Refuse an unknown format.

    Raises
    ------
    ConfigError
        There is no such format.
    """
    if format not in get_args(BatchFormat):
        raise ConfigError(
            f"{method}(format={format!r}): must be one of {', '.join(map(repr, get_args(BatchFormat)))}",
            setting="format",
            value=format,
        )


def given(batch: Any, format: BatchFormat) -> Any:
    """Convert a batch to a format."""
    match format:
        case "arrow":
            import pyarrow

            return pyarrow.record_batch(batch)
        case "polars":
            import polars

            return polars.DataFrame(batch)
        case "pandas":
            import pyarrow

            return pyarrow.record_batch(batch).to_pandas()
        case "numpy":
            import pyarrow

            arrow = pyarrow.record_batch(batch)
            return {name: arrow.column(name).to_numpy(zero_copy_only=False) for name in arrow.schema.names}


def taken(returned: Any, format: BatchFormat, schema: Any = None) -> Any:
    """Convert the result of a function to an object with the Arrow interface, with the types of ``schema``."""
    match format:
        case "arrow":
            return returned
        case "polars":
            import polars

            return returned.collect() if isinstance(returned, polars.LazyFrame) else returned
        case "pandas":
            import pyarrow

            # pandas 3 stores strings in chunks, which a batch cannot have.
            table = pyarrow.Table.from_pandas(returned, schema=schema, preserve_index=False).combine_chunks()
            batches = table.to_batches()
            return batches[0] if len(batches) == 1 else table
        case "numpy":
            import pyarrow

            if not isinstance(returned, dict):
                raise TypeError(f"it returned {type(returned).__name__}, where a dict of arrays is wanted")
            return pyarrow.RecordBatch.from_pydict(returned, schema=schema)


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """Calls a user function with batches in its format."""

    function: Callable[[Any], Any]
    format: BatchFormat

    def __call__(self, batch: Any) -> Any:
        """Convert the batch, call the function, and convert its result to Arrow."""
        return taken(self.function(given(batch, self.format)), self.format)
