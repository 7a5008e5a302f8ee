"""What a function of the user is given for a batch, and what becomes of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

BatchFormat = Literal["arrow", "polars", "pandas", "numpy"]
"""What a function over batches takes."""


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """Calls a function of the user with a batch in the format that it takes."""

    function: Callable[[Any], Any]
    format: BatchFormat

    def __call__(self, batch: Any) -> Any:
        """Convert, call, and give what has the Arrow interface."""
        match self.format:
            case "arrow":
                import pyarrow

                return self.function(pyarrow.record_batch(batch))
            case "polars":
                import polars

                returned = self.function(polars.DataFrame(batch))
                return returned.collect() if isinstance(returned, polars.LazyFrame) else returned
            case "pandas":
                import pyarrow

                returned = self.function(pyarrow.record_batch(batch).to_pandas())
                return pyarrow.RecordBatch.from_pandas(returned, preserve_index=False)
            case "numpy":
                import pyarrow

                given = pyarrow.record_batch(batch)
                columns = {name: given.column(name).to_numpy(zero_copy_only=False) for name in given.schema.names}
                returned = self.function(columns)
                if not isinstance(returned, dict):
                    raise TypeError(f"it returned {type(returned).__name__}, where a dict of arrays is wanted")
                return pyarrow.RecordBatch.from_pydict(returned)
