"""Files of lines as rows: their columns are known before a job starts, and each file is read by one subtask."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InputError, PlanError
from .csv_files import CsvFormat
from .expressions import Expr
from .files import Paths, bytes_of, listed
from .folders import Folders, folders_of, possible
from .json_files import JsonFormat, is_text
from .line_blocks import LineError
from .schemas import schema_of, wanted_columns
from .splits import FileSplit
from .unify import unify_schemas

if TYPE_CHECKING:
    import pyarrow

    from .. import _flownet
    from .schemas import SchemaLike


_INFERRED_BYTES = 64 << 20
"""Bytes of all files together that types are inferred from, before a job starts."""

_LEAST_INFERRED_BYTES = 64 << 10
"""Of each file, however many there are."""


class LineFormat(Protocol):
    """How lines become rows."""

    @property
    def endings(self) -> tuple[str, ...]:
        """How names of such files end."""

    def read(
        self, path: str, schema: pyarrow.Schema, columns: list[str], *, is_inferred: bool
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read these columns of a file, and whatever else if there are none; `LineError` names the line of an error."""

    def infer(self, path: str, most_bytes: int) -> pyarrow.Schema:
        """Infer columns from the beginning of a file."""

    def refuse(self, schema: object) -> None:
        """Refuse a schema that is not enough."""

    def may_be_empty(self) -> bool:
        """Whether a file without a byte is one without rows; else it is broken."""


@dataclass(frozen=True, slots=True)
class LineFiles:
    """Reads files, one after the other."""

    method: str
    """What users call who reads them."""
    files: list[str]
    schema: pyarrow.Schema
    """Of all that is read of a line, and what folders say."""
    columns: list[str]
    """Those that are wanted."""
    folders: Folders
    format: LineFormat
    is_inferred: bool
    """Whether the schema is of the files themselves, and not given."""

    def splits(self) -> list[FileSplit]:
        """List the files, each of which is read whole."""
        return [FileSplit(path, bytes_of(self.method, path), None) for path in self.files]

    def parts(self, file: FileSplit) -> list[FileSplit]:
        """List the file alone: lines are read from its beginning on."""
        return [file]

    def lower_bounds(self, column: str) -> None:
        """Lines say nothing of those behind them."""

    def read(self, path: str, part: int | None) -> pyarrow.RecordBatchReader:
        """Read a file."""
        import pyarrow

        schema = pyarrow.schema([self.schema.field(name) for name in self.columns])
        return pyarrow.RecordBatchReader.from_batches(schema, self._batches(path))

    def _batches(self, path: str) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        if _has_no_lines(self.format, path):
            return
        said = self.folders.values_of(path)
        of_lines = pyarrow.schema([field for field in self.schema if field.name not in said])
        wanted = [name for name in self.columns if name not in said]
        try:
            for batch in self.format.read(path, of_lines, wanted, is_inferred=self.is_inferred):
                of_folders = {name: pyarrow.repeat(value, batch.num_rows) for name, value in said.items()}
                columns = [of_folders[name] if name in said else batch.column(name) for name in self.columns]
                yield pyarrow.RecordBatch.from_arrays(columns, names=self.columns)
        except LineError as error:
            hint = f"; types are of the beginning of the files: name others in {self.method}(schema=...)"
            raise OSError(f"{error}{hint if self.is_inferred else ''}") from error
        except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
            raise OSError(str(error)) from error


def line_files(
    method: str,
    format: LineFormat,
    paths: Paths,
    given: tuple[SchemaLike | None, Iterable[str] | None, SchemaLike | None],
    kept: Expr | None,
) -> tuple[LineFiles, _flownet.RowSchema]:
    """Check what is to be read, before anything runs: by schema, columns that are wanted, types of those of folders.

    Raises
    ------
    InputError
        There is no such file, one cannot be read, columns of one name have types in two files that have nothing in
        common, no file has a column of the schema, or folders do not say the same columns, or no value of its type.
    PlanError
        There is no such column, or one of a type that rows cannot have.
    """
    import pyarrow

    schema, columns, partitions = given
    format.refuse(schema)
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    only = None if columns is None else list(columns)
    files = listed(method, named, format.endings)
    tree = None if kept is None else kept._tree()
    inferred: dict[str, pyarrow.Schema] = {}
    if schema is None:
        most_bytes = max(_LEAST_INFERRED_BYTES, _INFERRED_BYTES // len(files))
        inferred[files[0]] = of_lines = _inferred(method, format, files[0], most_bytes)
    else:
        of_lines = pyarrow.schema(_known(method, schema))
    folders = folders_of(method, files, named, of_lines, partitions)
    left = possible(files, folders, tree)
    if schema is None:
        others = [path for path in left if path not in inferred]
        inferred |= {path: _inferred(method, format, path, most_bytes) for path in others}
        of_lines = _unified(method, format, folders, inferred, only)
    elif isinstance(format, CsvFormat) and format.header:
        _refuse_missing(method, format, left, of_lines)
    whole = pyarrow.schema([*of_lines, *folders.schema])
    wanted = wanted_columns(method, only, whole.names, str(named[0]) if len(files) > 1 else files[0])
    found = _known(method, pyarrow.schema([whole.field(name) for name in wanted]))
    return LineFiles(method, left, whole, wanted, folders, format, schema is None), found


def _inferred(method: str, format: LineFormat, path: str, most_bytes: int) -> pyarrow.Schema:
    """Say which columns a file has; those of an empty file are none."""
    import pyarrow

    try:
        if _has_no_lines(format, path):
            return pyarrow.schema([])
        return format.infer(path, most_bytes)
    except LineError as error:
        raise InputError(f"{method}(): {path}, {error}", path=path) from error
    except (OSError, ValueError) as error:
        raise InputError(f"{method}(): {path}: {error}", path=path) from error


def _unified(
    method: str, format: LineFormat, folders: Folders, inferred: dict[str, pyarrow.Schema], wanted: list[str] | None
) -> pyarrow.Schema:
    there = {path: schema for path, schema in inferred.items() if schema.names}
    folders.refuse_some(there)
    texts = is_text if isinstance(format, JsonFormat) else None
    return unify_schemas(method, there.items(), wanted, "name its type in schema=, such as 'utf8'", texts)


def _refuse_missing(method: str, format: CsvFormat, files: list[str], schema: pyarrow.Schema) -> None:
    """Refuse a column of a schema that no file has: it is misspelt, or the header is."""
    names: list[str] = []
    for path in files:
        try:
            names = list(dict.fromkeys([*names, *format.names(path)]))
        except LineError as error:
            raise InputError(f"{method}(): {path}, {error}", path=path) from error
        except (OSError, ValueError) as error:
            raise InputError(f"{method}(): {path}: {error}", path=path) from error
        if set(schema.names) <= set(names):
            return
    for name in schema.names:
        if names and name not in names:
            raise InputError(
                f"{method}(): no file has column {name!r} of the schema; there are {', '.join(map(repr, names))}",
                path=files[0],
            )


def _has_no_lines(format: LineFormat, path: str) -> bool:
    """Whether there is nothing in a file, when it is unpacked, and that is no mistake."""
    import pyarrow

    if not format.may_be_empty():
        return False
    with pyarrow.input_stream(path) as stream:
        return not stream.read(1)


def _known(method: str, schema: Any) -> _flownet.RowSchema:
    try:
        return schema_of(method, schema)
    except PlanError as error:
        raise PlanError(f"{error}; schema= says what columns are") from error
