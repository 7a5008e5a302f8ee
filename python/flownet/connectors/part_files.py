"""Folders that sinks write the files of their subtasks into."""

from __future__ import annotations

import os

from ..errors import ConfigError
from ..planning.dataflow import Dataflow


def folder_of(dataflow: Dataflow, method: str, path: str | os.PathLike[str], format: str) -> bytes:
    """Check where a sink is to write, and return that as the system takes it.

    Parameters
    ----------
    dataflow
        Where the sink is to be.
    method
        What users call it.
    path
        The folder; it need not be there.
    format
        What it writes: sinks of several formats may share a folder.

    Raises
    ------
    ConfigError
        It is a file, or another sink of the dataflow writes such files there.
    """
    given = os.fspath(path)
    folder = os.path.abspath(given)
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"{method}({given!r}): is a file; name a folder", setting="path", value=given)
    for node in dataflow.nodes:
        written = node.rows.get("write_files") or node.settings.get("write_files")
        if written is None or written.get("format") != format:
            continue
        if os.path.realpath(os.fsdecode(written["path"])) == os.path.realpath(folder):
            raise ConfigError(
                f"{method}({given!r}): another {method} writes there; give each a folder of its own",
                setting="path",
                value=given,
            )
    return os.fsencode(folder)
