"""The workloads that come with flownet, by name: imported when they are asked for, as each run is a process."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Final

from ...errors import ConfigError
from ..workload import Workload

_HOMES: Final = {
    "exchange": (".bench", "EXCHANGE"),
    "latency": (".bench", "LATENCY"),
    "head-of-line": (".laboratory", "HEAD_OF_LINE"),
    "live-counts": (".live", "LIVE_COUNTS"),
}


def find(name: str) -> Workload:
    """Find a workload by name; raise `ConfigError` that lists those there are."""
    try:
        module, constant = _HOMES[name]
    except KeyError:
        known = ", ".join(sorted(_HOMES))
        raise ConfigError(
            f"there is no workload {name!r}; there are: {known}", setting="workload", value=name
        ) from None
    workload: Workload = getattr(importlib.import_module(module, __name__), constant)
    return workload


def each() -> Iterator[Workload]:
    """Give all of them."""
    return map(find, _HOMES)
