"""Sources of rows: what they are given is checked here, before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dataflow import Dataflow, Node
from ..errors import PlanError
from .expressions import Expr
from .files import Paths
from .parquet import parquet_files
from .schemas import checked, schema_of
from .splits import FileAssignment, FilesOfRows
from .text_files import LineFormat, line_files

if TYPE_CHECKING:
    import pyarrow

    from .. import _flownet
    from .schemas import SchemaLike


def from_arrow(
    dataflow: Dataflow, source: Any, schema: SchemaLike | None, name: str = "from_arrow"
) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the batches of an object with the Arrow stream interface, or of what a function makes."""
    if hasattr(source, "__arrow_c_stream__"):
        return _given(dataflow, source, schema, name)
    if callable(source):
        return _made(dataflow, source, schema, name)
    raise PlanError(
        f"{name}() takes a table or reader with the Arrow PyCapsule interface (pyarrow, polars, pandas, DuckDB, ...), "
        f"or a function that makes one, not {type(source).__name__} {source!r:.60}"
    )


def _given(dataflow: Dataflow, source: Any, schema: Any, name: str) -> tuple[Node, _flownet.RowSchema]:
    if schema is not None:
        raise PlanError(f"{name}(schema=...) is for a function that makes streams; this one says its own")
    found = schema_of(name, source)
    # A reader is used up by the first who reads it; a table can be read again.
    is_reader = hasattr(source, "read_next_batch") or hasattr(source, "__next__")
    is_reader |= getattr(source, "is_read_once", False)
    settings = {"from_arrow": {"schema": found.planned(), "repeatable": not is_reader}}
    node = dataflow.add(
        "rows", name=name, settings=settings, function=source, parallelism=1, is_parallel=False, on_driver=True
    )
    return node, found


def _made(
    dataflow: Dataflow, source: Callable[[int, int], Any], schema: Any, name: str
) -> tuple[Node, _flownet.RowSchema]:
    if schema is None:
        raise PlanError(
            f"{name}() of a function needs schema=, such as {{'user': 'utf8', 'spent': 'float64'}} or that of a "
            "library: it runs in the workers, later"
        )
    found = schema_of(name, schema)
    settings = {"from_arrow": {"schema": found.planned(), "makes_its_own": True, "repeatable": True}}
    return dataflow.add("rows", name=name, settings=settings, function=source), found


def read_parquet(
    dataflow: Dataflow,
    paths: Paths,
    columns: Iterable[str] | None,
    kept: Expr | None,
    partitions: SchemaLike | None,
) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the rows of Parquet files."""
    _check_filter("read_parquet", kept)
    files, schema = parquet_files(paths, columns, kept, partitions)
    return _read_files(dataflow, "read_parquet", files, schema), schema


def read_lines(
    dataflow: Dataflow,
    method: str,
    format: LineFormat,
    paths: Paths,
    given: tuple[SchemaLike | None, Iterable[str] | None, SchemaLike | None],
    kept: Expr | None,
) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the rows of files of lines: by schema, columns that are wanted, types of those of folders."""
    _check_filter(method, kept)
    files, schema = line_files(method, format, paths, given, kept)
    return _read_files(dataflow, method, files, schema), schema


def _check_filter(method: str, kept: object) -> None:
    if kept is not None and not isinstance(kept, Expr):
        raise PlanError(f'{method}(filter=...) takes an expression such as fn.col("price") > 3, not {kept!r:.60}')


def _read_files(dataflow: Dataflow, method: str, files: FilesOfRows, schema: _flownet.RowSchema) -> Node:
    settings = {"read_files": {"schema": schema.planned(), "format": method.removeprefix("read_")}}
    return dataflow.add("rows", name=method, settings=settings, function=FileAssignment(files))


@dataclass(slots=True)
class Structured:
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


def from_numpy(dataflow: Dataflow, given: Any) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the rows of a structured array, or of several that follow each other."""
    chunks: Iterable[Any] = [given] if is_structured(given) else given
    first = None
    if isinstance(chunks, Iterator):
        first = next(chunks, None)
        chunks = itertools.chain([first], chunks)
    elif isinstance(chunks, Sequence):
        first = next(iter(chunks), None)
    if first is None or not is_structured(first):
        raise PlanError(
            "from_numpy() takes a structured array of one dimension, such as "
            "numpy.array([(1, 2.5)], dtype=[('user', 'i8'), ('spent', 'f8')]), or a list or an iterator of such, not "
            f"{given if first is None else first!r:.60}"
        )
    return _given(dataflow, Structured(chunks, checked(batch_of, first).schema), None, "from_numpy")
