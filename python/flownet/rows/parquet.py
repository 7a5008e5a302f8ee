"""Parquet files as rows: listed once, where the job is described, and read in parts by all subtasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .expressions import Expr
from .files import Paths, bytes_of, listed
from .folders import Folders, folders_of, possible
from .parquet_footers import fragment_of, schema_of_file, schemas_of_files
from .parquet_times import least_times
from .pushed_down import pushed_down
from .schemas import schema_of, wanted_columns
from .splits import FileSplit
from .unify import fitted, type_name, unify_schemas

if TYPE_CHECKING:
    import pyarrow

    from .. import _flownet
    from .schemas import SchemaLike

_ENOUGH_FILES = 64
"""As many are dealt out whole; fewer by their row groups."""

_FOOTERS_AT_ONCE = 8
"""Threads that read footers."""


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Reads files, whole or by row groups."""

    files: list[str]
    schema: pyarrow.Schema
    """What files and their folders have."""
    columns: list[str]
    """Those that are read, in the order in which they are wanted."""
    folders: Folders
    filter: Any
    """The tree of the expression that rows have to meet; None for all. Row groups without such rows are not read."""

    def splits(self) -> list[FileSplit]:
        """List the files; where they are few, their row groups.

        Raises
        ------
        InputError
            One cannot be read.
        """
        sizes = [(path, bytes_of("read_parquet", path)) for path in self.files]
        if len(sizes) >= _ENOUGH_FILES:
            return [FileSplit(path, size, None) for path, size in sizes]
        return [FileSplit(path, size, group) for path, size in sizes for group in range(_groups(path))]

    def parts(self, file: FileSplit) -> list[FileSplit]:
        """List the row groups of a file."""
        return [FileSplit(file.path, file.bytes, group) for group in range(_groups(file.path))]

    def lower_bounds(self, column: str) -> list[tuple[FileSplit, int | None]]:
        """List the row groups that have rows, with the least event time that the file's statistics give for each.

        Raises
        ------
        InputError
            A file cannot be read.
        """
        # Footers wait for the disk more than they compute.
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            of_files = pool.map(lambda path: self._lower_bounds(path, column), self.files)
            return [bound for bounds in of_files for bound in bounds]

    def _lower_bounds(self, path: str, column: str) -> list[tuple[FileSplit, int | None]]:
        size, least = bytes_of("read_parquet", path), least_times(_metadata(path), column)
        return [(FileSplit(path, size, group), time_ms) for group, time_ms in least.items()]

    def read(self, path: str, part: int | None) -> pyarrow.RecordBatchReader:
        """Read a file, or one of its row groups, with the columns and types that all files together have.

        Raises
        ------
        OSError
            It cannot be read, a page does not have its checksum, or a value does not fit; named with its row group.
        """
        import pyarrow

        where = path if part is None else f"{path}, row group {part}"
        schema = pyarrow.schema([self.schema.field(name) for name in self.columns])
        with _named(where):
            scanner, said = self._scanner(path, part)
            return pyarrow.RecordBatchReader.from_batches(schema, _batches(scanner, said, schema, where))

    def _scanner(self, path: str, group: int | None) -> tuple[Any, dict[str, Any]]:
        """Open what is wanted of a file, and give the values that its folders say."""
        fragment = fragment_of(path, None if group is None else [group])
        there = fragment.physical_schema
        kept = None if self.filter is None else pushed_down(self.filter, there)
        if kept is not None:
            # Only whole row groups are left out here: positions in checkpoints count the rows of the others.
            fragment = fragment.subset(filter=kept)
        columns = [name for name in self.columns if name in there.names]
        return fragment.scanner(there, columns=columns, use_threads=False), self.folders.values_of(path)


@contextmanager
def _named(where: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise OSError(f"{where}: {error}") from error


def _batches(scanner: Any, said: dict[str, Any], schema: pyarrow.Schema, where: str) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    with _named(where):
        for batch in scanner.to_batches():
            columns = []
            for field in schema:
                if field.name in batch.schema.names:
                    columns.append(_fitted(batch.column(field.name), field))
                elif field.name in said:
                    columns.append(pyarrow.repeat(said[field.name], batch.num_rows))
                else:
                    columns.append(pyarrow.nulls(batch.num_rows, field.type))
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _fitted(column: pyarrow.Array, field: pyarrow.Field) -> pyarrow.Array:
    try:
        return fitted(column, field.type)
    except ValueError as error:
        given, wanted = type_name(column.type), type_name(field.type)
        raise ValueError(
            f"column {field.name!r} is {given} here and {wanted} in other files, which does not hold a value: {error}"
        ) from error


def parquet_files(
    paths: Paths, columns: Iterable[str] | None, kept: Expr | None, partitions: SchemaLike | None
) -> tuple[ParquetFiles, _flownet.RowSchema]:
    """Check what is to be read, before anything runs.

    Raises
    ------
    InputError
        There is no such file, one is not one of Parquet, files have columns of one name whose types have nothing in
        common, or folders do not say the same columns, or no value of its type.
    PlanError
        There is no such column, or one of a type that rows cannot have.
    """
    import pyarrow

    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    named = None if columns is None else list(columns)
    files = listed("read_parquet", given, ["parquet"])
    tree = None if kept is None else kept._tree()
    first = schema_of_file(files[0])
    folders = folders_of("read_parquet", files, given, first, partitions)
    left = possible(files, folders, tree)
    schemas = {files[0]: first, **schemas_of_files([path for path in left if path != files[0]])}
    folders.refuse_some(schemas)
    schema = unify_schemas("read_parquet", schemas.items(), named, "name others in columns=, or read them apart")
    schema = pyarrow.schema([*schema, *folders.schema])
    wanted = wanted_columns("read_parquet", named, schema.names, os.fspath(given[0]) if len(schemas) > 1 else files[0])
    found = schema_of("read_parquet", pyarrow.schema([schema.field(name) for name in wanted]))
    return ParquetFiles(left, schema, wanted, folders, tree), found


def _groups(path: str) -> int:
    return int(_metadata(path).num_row_groups)


def _metadata(path: str) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_metadata(path)
    except (OSError, ValueError) as error:
        raise InputError(f"read_parquet(): {path}: {error}", path=path) from error
