"""Columns whose values are said by names of folders, as Hive has them: ``country=de/day=2026-11-23/a.parquet``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..connectors.file_listing import is_pattern, root_of
from ..errors import InputError, PlanError
from .pushed_down import pushed_down
from .schemas import schema_of

if TYPE_CHECKING:
    import pyarrow

    from .schemas import SchemaLike

_MISSING = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Folders:
    """The columns that the folders of some files say; all of the files have the same."""

    names: list[str]
    """What the last so many folders of each say, outermost first."""
    schema: pyarrow.Schema
    """Those of them that count: what files say themselves does not."""
    method: str
    """What users call who reads the files."""

    def values_of(self, path: str) -> dict[str, pyarrow.Scalar]:
        """Give the value of each column that counts, in all rows of a file.

        Raises
        ------
        InputError
            A value is not of its type.
        """
        import pyarrow

        values = {}
        for name, level in zip(self.names, path.split(os.sep)[-len(self.names) - 1 : -1], strict=True):
            if name not in self.schema.names:
                continue
            try:
                values[name] = pyarrow.scalar(_value_of(level), pyarrow.string()).cast(self.schema.field(name).type)
            except ValueError as error:
                raise InputError(f"{self.method}(): {path}: its folder {level!r}: {error}", path=path) from error
        return values

    def said_of(self, path: str) -> Any:
        """Say what holds for all rows of a file, as pyarrow has it; None where its folders say nothing."""
        import pyarrow.compute as pc

        said = None
        for name, value in self.values_of(path).items():
            column = pc.field(name)
            holds = column == value if value.is_valid else column.is_null()
            said = holds if said is None else said & holds
        return said

    def refuse_some(self, schemas: Mapping[str, pyarrow.Schema]) -> None:
        """Refuse a column that folders say and some of the files too: which of the two counts would differ by file.

        Raises
        ------
        InputError
            There is such a column.
        """
        for name in self.names:
            having = {path: name in schema.names for path, schema in schemas.items()}
            if len(set(having.values())) > 1:
                file, other = (next(path for path, has in having.items() if has is wanted) for wanted in (True, False))
                raise InputError(
                    f"{self.method}(): {file} has a column {name!r} in it, and of {other} its folder says it: write it "
                    "into all files or none, or read them apart",
                    path=file,
                )


def folders_of(
    method: str,
    files: list[str],
    given: list[str | os.PathLike[str]],
    of_files: pyarrow.Schema,
    partitions: SchemaLike | None,
) -> Folders:
    """Find the columns that folders of files say, below those folders that were given.

    Parameters
    ----------
    method
        What users call who reads the files.
    files
        Absolute paths.
    given
        What the user named: files, folders and patterns. A pattern counts from its first folder without a wildcard.
    of_files
        What the files say themselves.
    partitions
        Types of some of the columns; those of others are guessed from their values: whole numbers, dates and texts.

    Raises
    ------
    InputError
        Folders of the files say different columns.
    PlanError
        There is no column of which a type was given, or no text is of that type.
    """
    import pyarrow

    asked = f"{method}(partitions=...)"
    types = None if partitions is None else pyarrow.schema(schema_of(asked, partitions))
    roots = {
        root_of(os.path.abspath(path)) if is_pattern(path) else os.path.abspath(path)
        for path in (os.fspath(path) for path in given)
        if is_pattern(path) or os.path.isdir(path)
    }
    levels = [_levels(file, roots) for file in files]
    names = [_name_of(level) for level in levels[0]]
    for file, others in zip(files, levels, strict=True):
        if [_name_of(level) for level in others] != names:
            raise InputError(
                f"{method}(): {file}: its folders say {_shown(map(_name_of, others))}, and those of {files[0]} "
                f"{_shown(names)}",
                path=file,
            )
    told = {} if types is None else {field.name: field.type for field in types}
    for name in told:
        if name not in names:
            raise PlanError(f"{asked}: no folder says {name!r}; they say {_shown(names)}")
        if not _may_be_of(told[name]):
            raise PlanError(
                f"{asked}: {name!r} cannot be {told[name]}: names of folders are texts, which "
                "become numbers, booleans, dates, timestamps or binary"
            )
    columns = zip(*levels, strict=True) if names else ()
    values = [[_value_of(level) for level in column] for column in columns]
    kinds = [told.get(name) or _guessed(column) for name, column in zip(names, values, strict=True)]
    fields = [field for field in zip(names, kinds, strict=True) if field[0] not in of_files.names]
    return Folders(names, pyarrow.schema(fields), method)


def possible(files: list[str], folders: Folders, kept: Any) -> list[str]:
    """Leave out files of which the folders say already that no row is wanted.

    Parameters
    ----------
    files
        Absolute paths.
    folders
        What their folders say, which is looked at here for all of them.
    kept
        The tree of the expression that rows have to meet; None for all rows.

    Raises
    ------
    InputError
        A value that a folder says is not of its type.
    """
    import pyarrow.dataset
    import pyarrow.fs

    said = [folders.said_of(path) for path in files]
    asked = None if kept is None else pushed_down(kept, folders.schema)
    if asked is None or not folders.schema.names:
        return files
    # Nothing is read of them: whatever they are, it is no matter here.
    format, system = pyarrow.dataset.ParquetFileFormat(), pyarrow.fs.LocalFileSystem()
    parts = [
        format.make_fragment(path, system, partition_expression=holds) for path, holds in zip(files, said, strict=True)
    ]
    dataset = pyarrow.dataset.FileSystemDataset(parts, folders.schema, format, system)
    return [part.path for part in dataset.get_fragments(filter=asked)]


def _levels(file: str, roots: set[str]) -> list[str]:
    """Names of the folders that a file is in, below one of these, which say a column each."""
    found: list[str] = []
    folder = os.path.dirname(file)
    while folder not in roots and "=" in os.path.basename(folder):
        found.insert(0, os.path.basename(folder))
        folder = os.path.dirname(folder)
    # Above what was given names say nothing.
    return found if any(folder == root or folder.startswith(root + os.sep) for root in roots) else []


def _name_of(level: str) -> str:
    return unquote(level.partition("=")[0])


def _value_of(level: str) -> str | None:
    value = level.partition("=")[2]
    # A text of that name is written with its first character escaped.
    return None if value == _MISSING else unquote(value)


def _may_be_of(kind: pyarrow.DataType) -> bool:
    """Say whether a text can become a value of a type."""
    import pyarrow

    try:
        pyarrow.scalar(None, pyarrow.string()).cast(kind)
    except pyarrow.ArrowNotImplementedError:
        return False
    return True


def _guessed(values: list[str | None]) -> pyarrow.DataType:
    import pyarrow

    there = [value for value in values if value is not None]
    if there and all(_WHOLE.fullmatch(value) for value in there):
        return pyarrow.int64()
    if there and all(_DAY.fullmatch(value) for value in there):
        return pyarrow.date32()
    return pyarrow.string()


def _shown(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
