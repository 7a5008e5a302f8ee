"""The dataflow as plain data, the input of the planner in Rust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .spec import OperatorKind, RateLimit

Chaining = Literal["always", "head", "never"]
"""Whether an operator may share a task. ``head``: only with downstream operators. ``never``: with no operator."""

FlowControl = Literal["credit", "tcp", "storm", "pid", "drop", "unbounded"]
"""Flow control between producers and consumers on different workers."""

PartitionerName = Literal["forward", "rebalance", "rescale", "broadcast", "key_group", "custom"]
"""How an edge distributes records to the subtasks downstream."""


@dataclass(slots=True)
class Operator:
    """One operator of the dataflow."""

    id: int
    """Number of the operator, unique in its dataflow. Upstream operators have smaller numbers."""
    uid: str | None
    """Stable ID from the user, which does not change with the dataflow."""
    name: str
    """Name shown in plans, metrics and errors."""
    kind: OperatorKind
    """Kind of the operator, one that ``_flownet`` knows, with or without settings."""
    payload: bytes | None
    """The user's function, serialised; None if it runs in this process or there is none."""
    local: int | None
    """Key of the function among the objects of this process; None if it is serialised or there is none."""
    rate_limit: RateLimit | None
    """Rate limit of a source: ``per_second`` of the ``unit``, ``records`` or ``bytes``."""
    brake: float | None
    """Rate limit of the operator, in records per second."""
    parallelism: int
    """Number of subtasks, at least 1."""
    chaining: Chaining = "always"
    """Whether it shares a task with its neighbours."""
    on_driver: bool = False
    """Whether it must run in the process that called ``execute()``."""
    workers: tuple[int, ...] = ()
    """Workers of its subtasks, from 1, round-robin. Empty: all workers."""
    target: str | None = None
    """Target of a sink that prepares output for checkpoints; None if unknown."""


@dataclass(slots=True)
class Edge:
    """An edge, on which records flow from ``source`` to ``target``."""

    source: int
    """Id of the operator upstream."""
    tag: str | None
    """Side output of ``source``; None for its main output."""
    target: int
    """Id of the operator downstream."""
    side: int
    """Index of the input of ``target``, from 0."""
    partitioner: PartitionerName
    """How records choose a subtask of ``target``."""
    payload: bytes | None = None
    """Key selector or partition function, serialised."""
    local: int | None = None
    """Key of that function among the objects of this process."""
    flow_control: FlowControl | None = None
    """Flow control between workers; None for the job's setting."""
