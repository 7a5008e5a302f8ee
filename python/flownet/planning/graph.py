"""The dataflow as plain data: what Python hands to the planner in Rust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .spec import OperatorKind, RateLimit

Chaining = Literal["always", "head", "never"]
"""May the operator share a task with its upstream? ``head``: only with its downstream; ``never``: with nobody."""

FlowControl = Literal["credit", "tcp", "storm", "pid", "drop", "unbounded"]
"""What keeps producers from sending more than their consumers on other workers take."""

PartitionerName = Literal["forward", "rebalance", "rescale", "broadcast", "key_group", "custom"]
"""How the records of an edge spread over the subtasks downstream."""


@dataclass(slots=True)
class Operator:
    """One operator of the dataflow."""

    id: int
    """Number of the operator, unique in its dataflow; upstream operators have smaller ones."""
    uid: str | None
    """Name given by the user that stays the same when the dataflow changes."""
    name: str
    """Name shown in plans, metrics and errors."""
    kind: OperatorKind
    """What the operator does: one of the kinds that ``_flownet`` knows, or that and its settings."""
    payload: bytes | None
    """The user's function, serialised; None when it is used directly or there is none."""
    local: int | None
    """Key of the function among the objects kept in this process; None when it is serialised or there is none."""
    rate_limit: RateLimit | None
    """The most that a source emits: ``per_second`` of the ``unit``, ``records`` or ``bytes``."""
    brake: float | None
    """Records a second to which it is slowed down."""
    parallelism: int
    """Number of subtasks, at least 1."""
    chaining: Chaining = "always"
    """Whether it shares a task with its neighbours."""
    on_driver: bool = False
    """True when it must run in the process that called ``execute()``."""
    workers: tuple[int, ...] = ()
    """Workers its subtasks go round, from 1; empty: all of them."""
    target: str | None = None
    """Where a sink writes that prepares output for checkpoints; None if it does not say."""


@dataclass(slots=True)
class Edge:
    """Records flow from ``source`` to ``target``."""

    source: int
    """Id of the operator upstream."""
    tag: str | None
    """Side output of ``source``; None: what it emits otherwise."""
    target: int
    """Id of the operator downstream."""
    side: int
    """Which input of ``target``, from 0."""
    partitioner: PartitionerName
    """How records choose a subtask of ``target``."""
    payload: bytes | None = None
    """Key selector or partition function, serialised."""
    local: int | None = None
    """Key of that function among the objects kept in this process."""
    flow_control: FlowControl | None = None
    """What controls the flow between workers; None: the job's setting."""
