"""Sources of rows. They check their arguments before a job runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from ..errors import PlanError
from ..planning import spec
from ..planning.dataflow import Dataflow, Node
from .expressions import Expr
from .files import Paths
from .parquet import parquet_files
from .schemas import checked, schema_of
from .splits import FileAssignment, FilesOfRows, ReadOrder
from .tables import StructuredArrays, batch_of, is_in_memory, is_structured
from .text_files import LineFormat, line_files

if TYPE_CHECKING:
    from .. import _flownet
    from .schemas import SchemaLike


def from_arrow(
    dataflow: Dataflow, source: Any, schema: SchemaLike | None, name: str = "from_arrow"
) -> tuple[Node, _flownet.RowSchema]:
    """Add a source that reads an object with the Arrow stream interface, or calls a function that returns one."""
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
    # A reader can be read only once, a table several times.
    is_reader = hasattr(source, "read_next_batch") or hasattr(source, "__next__")
    is_reader |= getattr(source, "is_read_once", False)
    settings: spec.RowsKind = {"from_arrow": {"schema": found.planned(), "repeatable": not is_reader}}
    node = dataflow.add(
        {"rows": settings},
        name=name,
        function=source,
        parallelism=1,
        is_parallel=False,
        is_bounded=is_in_memory(source),
        on_driver=True,
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
    settings: spec.RowsKindFromArrow = {"schema": found.planned(), "makes_its_own": True, "repeatable": True}
    return dataflow.add({"rows": {"from_arrow": settings}}, name=name, function=source), found


def read_parquet(
    dataflow: Dataflow,
    paths: Paths,
    columns: Iterable[str] | None,
    kept: Expr | None,
    partitions: SchemaLike | None,
    order: ReadOrder,
) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the rows of Parquet files."""
    _check_filter("read_parquet", kept)
    files, schema = parquet_files(paths, columns, kept, partitions)
    return _read_files(dataflow, "read_parquet", files, schema, order), schema


def read_lines(
    dataflow: Dataflow,
    method: str,
    format: LineFormat,
    paths: Paths,
    given: tuple[SchemaLike | None, Iterable[str] | None, SchemaLike | None],
    kept: Expr | None,
    order: ReadOrder,
) -> tuple[Node, _flownet.RowSchema]:
    """Add a source that reads files of lines. ``given`` has schema, columns to read, and types of folders' columns."""
    _check_filter(method, kept)
    files, schema = line_files(method, format, paths, given, kept)
    return _read_files(dataflow, method, files, schema, order), schema


def _check_filter(method: str, kept: object) -> None:
    if kept is not None and not isinstance(kept, Expr):
        raise PlanError(f'{method}(filter=...) takes an expression such as fn.col("price") > 3, not {kept!r:.60}')


def _read_files(
    dataflow: Dataflow, method: str, files: FilesOfRows, schema: _flownet.RowSchema, order: ReadOrder
) -> Node:
    if order not in get_args(ReadOrder):
        allowed = " or ".join(map(repr, get_args(ReadOrder)))
        raise PlanError(f"{method}(order={order!r}): must be {allowed}")
    settings: spec.RowsKindReadFiles = {"schema": schema.planned(), "format": _FORMATS[method]}
    assignment = FileAssignment(files, order)
    return dataflow.add({"rows": {"read_files": settings}}, name=method, function=assignment, is_bounded=True)


_FORMATS: dict[str, spec.RowFormat] = {"read_parquet": "parquet", "read_csv": "csv", "read_json": "json"}


def from_numpy(dataflow: Dataflow, given: Any) -> tuple[Node, _flownet.RowSchema]:
    """Add a source that reads structured arrays, one after the other."""
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
    return _given(dataflow, StructuredArrays(chunks, checked(batch_of, first).schema), None, "from_numpy")
