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
from .parquet_times import least_times
from .pushed_down import pushed_down
from .schemas import schema_of, wanted_columns
from .splits import FileSplit

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
    kept: Any
    """The rows that are wanted, as pyarrow has it; None for all. Row groups that have none are not read."""

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
        """Read a file, or one of its row groups, with the types that it has: who takes them sees which are others.

        Raises
        ------
        OSError
            It cannot be read, or has not all of the columns; named with its row group.
        """
        import pyarrow

        where = path if part is None else f"{path}, row group {part}"
        with _named(where):
            scanner = self._scanner(path, part)
            return pyarrow.RecordBatchReader.from_batches(scanner.projected_schema, _batches(scanner, where))

    def _scanner(self, path: str, group: int | None) -> Any:
        import pyarrow.dataset
        import pyarrow.fs

        said = self.folders.said_of(path)
        fragment = pyarrow.dataset.ParquetFileFormat().make_fragment(
            path,
            pyarrow.fs.LocalFileSystem(),
            partition_expression=said,
            row_groups=None if group is None else [group],
        )
        schema = fragment.physical_schema
        if said is not None:
            schema = pyarrow.schema([*schema, *self.folders.schema])
        for name in self.columns:
            if name not in schema.names:
                there = ", ".join(map(repr, schema.names))
                raise ValueError(f"there is no column {name!r}, which {self.files[0]} has; there are {there}")
        return fragment.scanner(schema, columns=self.columns, filter=self.kept, use_threads=False)


@contextmanager
def _named(where: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise OSError(f"{where}: {error}") from error


def _batches(scanner: Any, where: str) -> Iterator[pyarrow.RecordBatch]:
    with _named(where):
        yield from scanner.to_batches()


def parquet_files(
    paths: Paths, columns: Iterable[str] | None, kept: Expr | None, partitions: SchemaLike | None
) -> tuple[ParquetFiles, _flownet.RowSchema]:
    """Check what is to be read, before anything runs.

    Raises
    ------
    InputError
        There is no such file, the first one is not one of Parquet, or folders do not say the same columns,
        or no value of its type.
    PlanError
        There is no such column, or one of a type that rows cannot have.
    """
    import pyarrow
    import pyarrow.parquet

    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = listed("read_parquet", given, ["parquet"])
    try:
        schema = pyarrow.parquet.read_schema(files[0])
    except (OSError, ValueError) as error:
        raise InputError(f"read_parquet(): {files[0]}: {error}", path=files[0]) from error
    folders = folders_of("read_parquet", files, given, schema, partitions)
    for field in folders.schema:
        schema = schema.append(field)
    wanted = wanted_columns("read_parquet", columns, schema.names, files[0])
    found = schema_of("read_parquet", pyarrow.schema([schema.field(name) for name in wanted]))
    told = None if kept is None else pushed_down(kept._tree(), schema)
    files = possible(files, folders, schema, told)
    return ParquetFiles(files, schema, wanted, folders, told), found


def _groups(path: str) -> int:
    return int(_metadata(path).num_row_groups)


def _metadata(path: str) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_metadata(path)
    except (OSError, ValueError) as error:
        raise InputError(f"read_parquet(): {path}: {error}", path=path) from error
