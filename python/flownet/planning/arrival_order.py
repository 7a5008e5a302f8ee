"""Aggregates whose results depend on the order in which rows arrive: `first` and `last` without event time."""

from __future__ import annotations

from collections.abc import Iterator

from .dataflow import Dataflow, Node, has_timestamps, upstream

_ORDERED = ("first", "last")


def arrival_dependent(dataflow: Dataflow, parallelism: int, workers: int = 0) -> Iterator[str]:
    """Describe in a sentence each aggregate whose rows come from several subtasks; parameters as for `describe`."""
    ordered = [(node, columns) for node in dataflow.nodes if (columns := _ordered_columns(node))]
    if not ordered:
        return
    subtasks = dataflow.subtasks(parallelism, workers)
    for node, columns in ordered:
        if has_timestamps(node.inputs):
            continue
        before = list(upstream(node.inputs))
        sources = [given for given in before if not given.inputs]
        spread = next((given for given in reversed(before) if subtasks[given.id] > 1), None)
        if spread is not None:
            yield _sentence(node.name, columns, f"{subtasks[spread.id]} subtasks of {spread.name!r}")
        elif len(sources) > 1:
            yield _sentence(node.name, columns, f"{len(sources)} sources")


def _ordered_columns(node: Node) -> list[str]:
    aggregate = node.rows.get("aggregate")
    columns = [] if aggregate is None else aggregate["aggregates"]
    return [column["name"] for column in columns if column.get("function") in _ORDERED]


def _sentence(operator: str, columns: list[str], several: str) -> str:
    return (
        f"{operator!r} takes the first or the last row of each key in {', '.join(map(repr, columns))}, and its rows "
        f"have no event time and come from {several}: which row is first depends on which arrives first. Call "
        "assign_timestamps() in front of it, or set_parallelism(1) of the source"
    )
