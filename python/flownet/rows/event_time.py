"""How rows get their event time: what is promised of their order, and what their source knows of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..api.watermark import WatermarkStrategy
from ..errors import PlanError
from ..planning.dataflow import Node, Origin, lacks_order, unbounded_source
from .splits import FileAssignment
from .tables import is_in_memory


def watermarks_of(
    origins: tuple[Origin, ...], column: str, delay: str | timedelta | None, idle_after: str | timedelta | None
) -> WatermarkStrategy[Any]:
    """Choose how event time advances.

    Parameters
    ----------
    origins
        Where the rows come from.
    column
        Column of event times, for errors.
    delay
        Most that a row comes after later ones of its file, row group or partition; None if nothing is promised.
    idle_after
        As of `Rows.assign_timestamps`.

    Raises
    ------
    PlanError
        There is no delay, and a source may have no end or is to be passed over if it pauses.
    """
    if delay is not None and lacks_order(origins):
        return WatermarkStrategy("unordered")
    if delay is not None:
        strategy: WatermarkStrategy[Any] = WatermarkStrategy.for_bounded_out_of_orderness(delay)
        return strategy if idle_after is None else strategy.with_idleness(idle_after)
    wanted = f'give delay= with event time {column!r}, the most that a row comes after later ones, such as delay="5s"'
    if (source := unbounded_source(origins)) is not None:
        raise PlanError(
            f"without delay= event time waits for the end of the input, and {source.name!r} may have none: {wanted}",
            operator=source.name,
        )
    if idle_after is not None:
        raise PlanError(
            f"idle_after= is for input that pauses, and without delay= event time waits for its end: {wanted}"
        )
    return WatermarkStrategy("unordered")


def bind_event_time(origins: tuple[Origin, ...], column: str) -> None:
    """Tell the source of rows which of its columns is their event time, if it is a column of the source itself.

    Files then hold event time back by the least times of what is unread, and tables by those of the rows ahead.
    """
    found = _column_of_source(origins, column)
    if found is None:
        return
    source, name = found
    if isinstance(source.function, FileAssignment):
        source.function.set_event_time(name)
        return
    if is_in_memory(source.function):
        table = source.rows["from_arrow"]
        # If two streams of one table take their times from different columns, its times ahead bound neither.
        before = table.get("time_column", name)
        table["time_column"] = name if before == name else None


def _column_of_source(origins: tuple[Origin, ...], column: str) -> tuple[Node, str] | None:
    """Follow a column to the source in whose task the rows are; None if it is computed, or behind an exchange."""
    while len(origins) == 1:
        (origin,) = origins
        if origin.partitioner is not None or origin.tag is not None:
            return None
        node = origin.node
        if not node.inputs:
            return node, column
        project = node.rows.get("project")
        known = None if project is None else _before_steps(project["steps"], column)
        if known is None:
            return None
        origins, column = node.inputs, known
    return None


def _before_steps(steps: list[dict[str, Any]], column: str) -> str | None:
    """Name the column that a column is before these steps; None if they compute it."""
    for step in reversed(steps):
        if step.get("explode") == column:
            return None
        made = step.get("select", step.get("with_columns", []))
        values = {one["name"]: one["value"] for one in made}
        value = values.get(column, None if "select" in step else {"column": column})
        if not isinstance(value, dict) or set(value) != {"column"}:
            return None
        column = value["column"]
    return column
