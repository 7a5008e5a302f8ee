"""The workloads that come with flownet, by name."""

from __future__ import annotations

from ...errors import ConfigError
from ..workload import Workload
from .bench import EXCHANGE, LATENCY
from .laboratory import HEAD_OF_LINE
from .live import LIVE_COUNTS

WORKLOADS = {workload.name: workload for workload in (EXCHANGE, LATENCY, HEAD_OF_LINE, LIVE_COUNTS)}


def find(name: str) -> Workload:
    """Find a workload by name; raise `ConfigError` that lists those there are."""
    try:
        return WORKLOADS[name]
    except KeyError:
        known = ", ".join(sorted(WORKLOADS))
        raise ConfigError(
            f"there is no workload {name!r}; there are: {known}", setting="workload", value=name
        ) from None
