"""Folders that sinks write the files of their subtasks into."""

from __future__ import annotations

import os
from typing import Any

from ..errors import ConfigError
from ..planning.dataflow import Dataflow, Node


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
        settings = _written(node)
        written = settings.get("path") if settings.get("format") == format else None
        if isinstance(written, bytes) and os.path.realpath(os.fsdecode(written)) == os.path.realpath(folder):
            raise ConfigError(
                f"{method}({given!r}): another {method} writes there; give each a folder of its own",
                setting="path",
                value=given,
            )
    return os.fsencode(folder)


def _written(node: Node) -> dict[str, Any]:
    settings: dict[str, Any] = node.settings or {}
    if node.kind == "rows":
        settings = settings.get("write_files", {})
    return settings if node.role == "write_files" else {}
