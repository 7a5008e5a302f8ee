"""Files that rows are read from, listed where the job is described."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..connectors.file_listing import files_below, is_pattern, matches
from ..errors import InputError

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def listed(method: str, paths: Paths, endings: Iterable[str]) -> list[str]:
    """List files: those that are named, those that patterns match, and of folders those whose names end so, in order.

    Hidden files and folders (`is_hidden` of ``flownet.connectors.file_listing``) are read only if they are named.

    Parameters
    ----------
    method
        The method that users call.
    paths
        Files, folders and patterns, such as ``"data/2026-*/*.csv"``.
    endings
        Without a dot, in lower case: ``["csv", "csv.gz"]``.

    Raises
    ------
    InputError
        There is no such file or folder, or no file in it.
    """
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    ends = tuple(f".{ending}" for ending in endings)
    files: list[str] = []
    for path in given:
        if is_pattern(path):
            # A pattern may match a folder and files in it.
            found = dict.fromkeys(file for match in matches(os.path.abspath(path)) for file in _of(method, match, ends))
        elif os.path.exists(path):
            found = dict.fromkeys(_of(method, os.path.abspath(path), ends))
        else:
            raise InputError(f"{method}(): there is no file or folder {path!r}", path=path)
        files += found
    if not files:
        shown, wanted = ", ".join(map(repr, given)), " or ".join(f"*{end}" for end in ends)
        raise InputError(f"{method}(): there are no files {wanted} in {shown}", path=given[0] if given else None)
    return files


def _of(method: str, path: str, ends: tuple[str, ...]) -> Iterable[str]:
    def refuse(error: OSError) -> None:
        raise InputError(f"{method}(): {error.filename}: {error.strerror}", path=str(error.filename)) from error

    if not os.path.isdir(path):
        return [path]
    return (file for file in files_below(path, refuse) if file.lower().endswith(ends))


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
