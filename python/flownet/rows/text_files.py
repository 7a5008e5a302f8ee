"""Files of lines as rows: read one after the other, by the readers of pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InputError, PlanError
from ..streams.checks import delimiter_of
from .expressions import Expr
from .files import Paths, bytes_of, listed
from .folders import Folders, folders_of, possible
from .pushed_down import pushed_down
from .schemas import schema_of, wanted_columns
from .splits import FileSplit
from .text_values import Texts

if TYPE_CHECKING:
    import pyarrow

    from .. import _flownet
    from .schemas import SchemaLike


_TEXTS_OF_CSV = Texts(dates=False)
_TEXTS_OF_JSON = Texts(dates=True)


class LineFormat(Protocol):
    """How lines become rows."""

    @property
    def endings(self) -> tuple[str, ...]:
        """How names of such files end."""

    def read(self, path: str, schema: pyarrow.Schema | None, columns: list[str] | None) -> Any:
        """Open a file as a reader of batches, which have at least these columns; all, as they are found, of None."""

    def refuse(self, schema: object) -> None:
        """Refuse a schema that is not enough."""

    def may_be_empty(self) -> bool:
        """Whether a file without a byte is one without rows; else it is broken."""


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Comma-separated values."""

    delimiter: str
    header: bool

    @property
    def endings(self) -> tuple[str, ...]:
        """Those that pyarrow unpacks by their names are among them."""
        return ("csv", "csv.gz", "csv.bz2", "csv.zst", "csv.lz4")

    def read(self, path: str, schema: pyarrow.Schema | None, columns: list[str] | None) -> Any:
        """Open a file."""
        import pyarrow.csv

        # An empty value is missing, also among texts; but nothing else is, such as a text NA.
        convert = pyarrow.csv.ConvertOptions(
            column_types=None if schema is None else _TEXTS_OF_CSV.schema(schema),
            include_columns=columns,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        names = None if self.header or schema is None else schema.names
        batches = pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=convert,
        )
        return batches if schema is None else _TEXTS_OF_CSV.values(batches, schema, columns)

    def refuse(self, schema: object) -> None:
        """Nothing else says what columns are called."""
        if schema is None and not self.header:
            raise PlanError("read_csv(header=False) needs schema=, such as {'user': 'utf8', 'spent': 'float64'}")

    def may_be_empty(self) -> bool:
        """Where there has to be a header, there is something."""
        return not self.header


def csv_format(delimiter: str, header: bool) -> CsvFormat:
    """Check how values are written.

    Raises
    ------
    ConfigError
        The delimiter is not one character of ASCII.
    """
    return CsvFormat(delimiter_of("read_csv", delimiter, is_ascii=True), header)


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """A line of JSON for each row."""

    @property
    def endings(self) -> tuple[str, ...]:
        """Those that pyarrow unpacks by their names are among them."""
        return ("jsonl", "ndjson", "json", "jsonl.gz", "ndjson.gz", "json.gz")

    def read(self, path: str, schema: pyarrow.Schema | None, columns: list[str] | None) -> Any:
        """Open a file."""
        import pyarrow.json

        options = pyarrow.json.ReadOptions(use_threads=False)
        if schema is None:
            return pyarrow.json.open_json(path, read_options=options)
        read_as = _TEXTS_OF_JSON.schema(schema)
        parse = pyarrow.json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore")
        batches = pyarrow.json.open_json(path, read_options=options, parse_options=parse)
        return _TEXTS_OF_JSON.values(batches, schema, columns)

    def refuse(self, schema: object) -> None:
        """Lines say what their values are called."""

    def may_be_empty(self) -> bool:
        """No lines are no rows."""
        return True


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

    def splits(self) -> list[FileSplit]:
        """List the files, each of which is read whole."""
        return [FileSplit(path, bytes_of(self.method, path), None) for path in self.files]

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
            # Where no column of the lines is wanted, one of them says how many there are.
            for batch in self.format.read(path, of_lines, wanted or of_lines.names[:1]):
                of_folders = {name: pyarrow.repeat(value, batch.num_rows) for name, value in said.items()}
                columns = [of_folders[name] if name in said else batch.column(name) for name in self.columns]
                yield pyarrow.RecordBatch.from_arrays(columns, names=self.columns)
        except (OSError, ValueError, KeyError) as error:
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
        There is no such file, the first one cannot be read, or folders do not say the same columns, or no value of its
        type.
    PlanError
        It has no such column, or one of a type that rows cannot have.
    """
    import pyarrow

    schema, columns, partitions = given
    format.refuse(schema)
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files = listed(method, named, format.endings)
    if schema is None:
        of_lines = _found(method, format, files)
    else:
        of_lines = pyarrow.schema(_known(method, schema))
    folders = folders_of(method, files, named, of_lines, partitions)
    whole = pyarrow.schema([*of_lines, *folders.schema])
    wanted = wanted_columns(method, columns, whole.names, files[0])
    found = _known(method, pyarrow.schema([whole.field(name) for name in wanted]))
    possible_files = possible(files, folders, whole, None if kept is None else pushed_down(kept._tree(), whole))
    return LineFiles(method, possible_files, whole, wanted, folders, format), found


def _found(method: str, format: LineFormat, files: list[str]) -> pyarrow.Schema:
    """Say which columns the first file has that has rows."""
    path = files[0]
    try:
        path = next((path for path in files if not _has_no_lines(format, path)), path)
        return format.read(path, None, None).schema
    except (OSError, ValueError) as error:
        raise InputError(f"{method}(): {path}: {error}", path=path) from error


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
