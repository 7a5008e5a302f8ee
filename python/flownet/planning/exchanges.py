"""Exchanges between a source with splits and the operators that assign timestamps behind it.

Watermarks are made by split only where the splits of a source are still apart: in front of the first exchange.
An exchange that stands in the way moves behind the assigner where that changes no result. Any other is warned of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .spec import Watermarks

Node: TypeAlias = Any
"""A `flownet.planning.dataflow.Node`: that module imports this one."""

Origin: TypeAlias = Any
"""A `flownet.planning.dataflow.Origin`."""

_TELL_SPLITS = frozenset({"from_source", "read_text", "read_files"})
"""Sources that tell the splits of their input apart, by what they do."""

_MOVABLE = frozenset({"rebalance", "rescale", "broadcast", "custom"})
"""Exchanges that nothing but the spread of records depends on."""

_METHODS = {"key_group": "key_by", "custom": "partition_custom"}


class Exchanges:
    """The exchanges of a dataflow, as they are planned: those in front of an assigner are behind it.

    ``source -> rebalance -> filter -> assign_timestamps`` is planned as
    ``source -> filter -> assign_timestamps -> rebalance``, where the operators between only pass rows.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._moved: dict[int, Origin] = {}
        """The exchange that goes behind each operator that it stood in front of, by the operator's id."""
        for node in nodes:
            if assigns_timestamps(node):
                self._move_behind(node)

    def planned(self, node: Node, origin: Origin) -> Origin:
        """Say how records of `origin` travel to `node`, one of whose inputs it is."""
        if node.id in self._moved:
            return replace(origin, partitioner=None, function=None)
        moved = self._moved.get(origin.node.id)
        if moved is None or origin.partitioner is not None:
            return origin
        return replace(origin, partitioner=moved.partitioner, function=moved.function)

    def leader(self, node: Node) -> Node | None:
        """Find the operator whose subtasks one has because an exchange in front of it has moved."""
        moved = self._moved.get(node.id)
        return None if moved is None else moved.node

    def _move_behind(self, assigner: Node) -> None:
        way: list[Node] = []
        at = assigner
        while len(at.inputs) == 1 and at.parallelism is None and not at.workers:
            way.append(at)
            (origin,) = at.inputs
            if origin.partitioner is not None:
                if origin.partitioner in _MOVABLE and _is_of_splits(origin):
                    self._moved |= {node.id: origin for node in way}
                return
            at = origin.node
            if at.role != "project":
                return


def assigns_timestamps(node: Node) -> bool:
    """Say whether an operator gives records their times and makes watermarks of them as they come."""
    if node.role != "assign_timestamps":
        return False
    return _watermarks(node) != "never"


def _promises_order(assigner: Node) -> bool:
    """Say whether watermarks follow the records; else event time waits for the end of the input."""
    return _watermarks(assigner) not in ("never", "unordered")


def _watermarks(assigner: Node) -> Watermarks | None:
    assigns = assigner.rows.get("assign_timestamps") or assigner.settings.get("assign_timestamps")
    watermarks: Watermarks | None = None if assigns is None else assigns["watermarks"]
    return watermarks


@dataclass(frozen=True, slots=True)
class MixedSplits:
    """An assigner behind an exchange, where the splits of a source are mixed."""

    assigner: str
    source: str
    method: str
    """The method that makes the exchange; ``set_parallelism`` where the parallelism changes."""
    before: str
    """The operator in front of the exchange."""

    def __str__(self) -> str:
        return (
            f"{self.assigner!r} assigns timestamps behind {self.method}(), which mixes the splits of source "
            f"{self.source!r}: watermarks are not by split there, so records of a slow split may be late and are "
            f"dropped. Assign timestamps in front of it, right behind {self.before!r}"
        )


def mixed_splits(nodes: Sequence[Node], subtasks: dict[int, int]) -> Iterator[MixedSplits]:
    """Find the assigners behind exchanges of sources with splits.

    Parameters
    ----------
    nodes
        The operators of the dataflow.
    subtasks
        The parallelism of each, by its id.
    """
    exchanges = Exchanges(nodes)
    for assigner in (node for node in nodes if assigns_timestamps(node) and _promises_order(node)):
        pending: list[tuple[Node, tuple[str, str] | None]] = [(assigner, None)]
        seen = set[int]()
        while pending:
            node, found = pending.pop()
            if node.id in seen:
                continue
            seen.add(node.id)
            if node is not assigner and assigns_timestamps(node):
                # Its times come from an assigner further up; this one changes them, as behind a join.
                continue
            if _tells_splits(node) and found is not None:
                yield MixedSplits(assigner.name, node.name, *found)
            for given in node.inputs:
                origin = exchanges.planned(node, given)
                changes = subtasks[origin.node.id] != subtasks[node.id]
                partitioner = origin.partitioner or ("set_parallelism" if changes else None)
                crossed = None if partitioner is None else (_METHODS.get(partitioner, partitioner), origin.node.name)
                # The exchange that is furthest up is where the splits are mixed.
                pending.append((origin.node, crossed or found))


def _is_of_splits(origin: Origin) -> bool:
    """Say whether records come from one source with splits, subtask by subtask."""
    at = origin.node
    while len(at.inputs) == 1 and at.parallelism is None and at.inputs[0].partitioner is None:
        at = at.inputs[0].node
    return not at.inputs and _tells_splits(at)


def _tells_splits(node: Node) -> bool:
    return node.role in _TELL_SPLITS or bool(node.settings.get("from_iterable", {}).get("tells_splits"))
