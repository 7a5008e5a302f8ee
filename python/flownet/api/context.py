"""The context of a function: its operator, subtask and worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..metrics import Metrics


class TaskContext(Protocol):
    """Describe the subtask that runs a function."""

    @property
    def operator(self) -> str:
        """Name of the operator."""

    @property
    def subtask(self) -> int:
        """Index of this subtask, from 0."""

    @property
    def parallelism(self) -> int:
        """Number of subtasks of the operator."""

    @property
    def worker(self) -> str:
        """Name of the worker that runs this subtask."""

    @property
    def metrics(self) -> Metrics:
        """Registry for custom counters, meters, gauges and histograms."""
