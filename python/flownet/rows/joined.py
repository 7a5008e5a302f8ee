"""Two streams of rows that meet by key: all of them, or by how far apart in time they are, by version, by window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import _flownet, config
from ..dataflow import Node, has_timestamps
from ..errors import PlanError
from .schemas import checked

if TYPE_CHECKING:
    from .keyed import KeyedRows


def joined(
    method: str, sides: tuple[KeyedRows, KeyedRows], by: dict[str, dict[str, Any]], suffix: str
) -> tuple[Node, _flownet.RowSchema]:
    """Add a join of two streams, and what brings their rows there.

    Parameters
    ----------
    method
        What users call it.
    sides
        The first stream and the second.
    by
        Which rows meet, as the plan has it.
    suffix
        Behind names of the second stream that the first one has, too.

    Raises
    ------
    PlanError
        Keys that are never equal, names that come twice, or rows without the event time that the join goes by.
    """
    first, second = sides
    if first._rows._env is not second._rows._env:
        raise PlanError(f"{method}() takes rows of the same environment, and these are of another")
    if _goes_by_event_time(by):
        _check_event_time(method, sides)
    keeps_unmatched = bool(by.get("as_of", {}).get("keeps_unmatched"))
    sides_of = [(keyed._rows._schema, list(keyed._keys)) for keyed in sides]
    left, right, output, kept = checked(
        _flownet.rows_after_join, sides_of[0], sides_of[1], config.text("suffix", suffix), keeps_unmatched
    )
    origins = (
        first._one_by_one(left, keeps_null_keys=keeps_unmatched),
        replace(second._one_by_one(right, keeps_null_keys=False), side=1),
    )
    settings = {"join": {"left": left[1].planned(), "right": right[1].planned(), "by": by, "kept": kept}}
    return first._rows._env._dataflow.add("rows", name=method, settings=settings, inputs=origins), output


def _check_event_time(method: str, sides: tuple[KeyedRows, KeyedRows]) -> None:
    """Refuse rows that have no event time."""
    for keyed, which in zip(sides, ("first", "second"), strict=True):
        if not has_timestamps(keyed._rows._origins):
            raise PlanError(
                f"{method}() goes by event time, and the {which} stream has none: say event_time= where its rows "
                "begin, or call assign_timestamps() before key_by()"
            )


def _goes_by_event_time(by: dict[str, dict[str, Any]]) -> bool:
    if (window := by.get("window")) is not None:
        return bool(window["window"]["clock"] == "event")
    return "regular" not in by
