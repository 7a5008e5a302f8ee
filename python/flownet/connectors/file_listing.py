"""List the files of folders and patterns, for every source that reads files.

`read_text`, `read_parquet`, `read_csv` and `read_json` call it; ``flownet-runtime/src/source/text.rs`` has the same
rule for names (`is_hidden`).
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Iterator

_UNFINISHED = (".inprogress", ".pending", "._COPYING_")
"""Ends of the names of files that flownet and Hadoop have not completed."""


def is_hidden(name: str) -> bool:
    """Say whether a file or folder holds no data by its name, as Spark decides it.

    Those are ``.part-0.crc``, ``_SUCCESS``, ``_temporary`` and ``_delta_log``; ``_day=2026-11-26`` is a partition.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_unfinished(name: str) -> bool:
    """Say whether a file is not complete by its name; a partition may be called so."""
    return name.endswith(_UNFINISHED)


def is_pattern(path: str) -> bool:
    """Say whether a path stands for others: it has ``*``, ``?`` or ``[``, and there is nothing of that name."""
    return glob.has_magic(path) and not os.path.lexists(path)


def root_of(pattern: str) -> str:
    """Return the folder that all matches of a pattern are below of."""
    root = os.path.dirname(pattern)
    while glob.has_magic(root):
        root = os.path.dirname(root)
    return root


def matches(pattern: str) -> Iterator[str]:
    """List the files and folders that a pattern matches, in the order of their names, without hidden ones.

    A hidden name that the pattern spells out, as in ``_logs/*.csv`` or ``_part*``, is not left out.
    """
    root = root_of(pattern)
    spelled = [part for part in pattern[len(root) :].split(os.sep) if part.startswith((".", "_"))]

    def is_wanted(name: str) -> bool:
        return not is_hidden(name) or any(fnmatch.fnmatchcase(name, part) for part in spelled)

    for path in sorted(glob.glob(pattern, recursive=True)):
        if is_unfinished(path) and os.path.isfile(path):
            continue
        if all(is_wanted(part) for part in path[len(root) :].split(os.sep)):
            yield path


def files_below(folder: str, refuse: Callable[[OSError], None]) -> Iterator[str]:
    """List the files of a folder and of the folders in it, in the order of their names, without hidden ones.

    Links to folders, links to nothing, and entries that are neither file nor folder are left out.

    Parameters
    ----------
    folder
        The folder; its own name may be hidden.
    refuse
        Called with the error of a folder that cannot be listed; if it returns, the folder is left out.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        refuse(error)
        return
    for entry in entries:
        if is_hidden(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(entry.path, refuse)
        elif not is_unfinished(entry.name) and os.path.isfile(entry.path):
            yield entry.path
