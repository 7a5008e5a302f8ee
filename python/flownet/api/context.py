"""What a function may know of the place where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..metrics import Metrics


class TaskContext(Protocol):
    """Where an operator runs."""

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
        """Where it gets counters, meters, gauges and histograms of its own."""
