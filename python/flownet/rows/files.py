"""Files that rows are read from, listed where the job is described."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import InputError

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def listed(method: str, paths: Paths, endings: Iterable[str]) -> list[str]:
    """List files: those that are named, and of folders all whose names end so, in order.

    Parameters
    ----------
    method
        What users call who reads them.
    paths
        Files and folders.
    endings
        Without a dot: ``["csv", "csv.gz"]``.

    Raises
    ------
    InputError
        There is no such file or folder, or no file in it.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    ends = tuple(f".{ending}" for ending in endings)
    files: list[str] = []
    for path in map(Path, given):
        if not path.exists():
            raise InputError(f"{method}(): there is no file or folder {str(path)!r}", path=str(path))
        found = sorted(file for file in path.rglob("*") if file.name.endswith(ends)) if path.is_dir() else [path]
        files += [str(file.absolute()) for file in found]
    if not files:
        shown, wanted = ", ".join(repr(str(path)) for path in given), " or ".join(f"*{end}" for end in ends)
        raise InputError(f"{method}(): there are no files {wanted} in {shown}", path=str(given[0]) if given else None)
    return files


def bytes_of(method: str, path: str) -> int:
    """Say how long a file is.

    Raises
    ------
    InputError
        It is gone, or cannot be looked at.
    """
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise InputError(f"{method}(): {path}: {error}", path=path) from error
