"""Opens Parquet files: one place says how they are read, for their schemas and for their rows alike."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    import pyarrow

_READERS = 8
"""Footers that are read at a time: of many files most of the time is spent on opening them."""


def fragment_of(path: str, groups: list[int] | None = None) -> Any:
    """Open a file, or some of its row groups, as a fragment of a dataset.

    Timestamps of 96 bits are read as microseconds: as nanoseconds, which they are written in, they would wrap around
    outside of the years 1678 to 2262. Pages that have a checksum are checked.
    """
    import pyarrow.dataset
    import pyarrow.fs

    format = pyarrow.dataset.ParquetFileFormat(
        read_options=pyarrow.dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
        default_fragment_scan_options=pyarrow.dataset.ParquetFragmentScanOptions(page_checksum_verification=True),
    )
    return format.make_fragment(path, pyarrow.fs.LocalFileSystem(), row_groups=groups)


def schema_of_file(path: str) -> pyarrow.Schema:
    """Read the schema of a file from its footer.

    Raises
    ------
    InputError
        It cannot be read, or is no Parquet file.
    """
    try:
        return fragment_of(path).physical_schema
    except (OSError, ValueError) as error:
        raise InputError(f"read_parquet(): {path}: {error}", path=path) from error


def schemas_of_files(paths: Iterable[str]) -> dict[str, pyarrow.Schema]:
    """Read the schemas of many files, in their order.

    Raises
    ------
    InputError
        One cannot be read, or is no Parquet file.
    """
    listed = list(paths)
    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(listed, pool.map(schema_of_file, listed), strict=True))
