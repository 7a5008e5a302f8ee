"""Two streams of rows that meet by key: all of them, or by how far apart in time they are, by version, by window."""

from __future__ import annotations

from dataclasses import replace

from .. import _flownet, rows
from ..api.functions import OutputTag
from ..errors import PlanError
from ..internal import config
from ..planning import spec
from ..planning.dataflow import Origin, has_timestamps
from ..streams.checks import kind_of
from .schemas import checked
from .stream import Rows


def joined(
    method: str,
    sides: tuple[rows.KeyedRows, rows.KeyedRows],
    by: spec.RowsJoin,
    suffix: str,
    late_tags: tuple[OutputTag | None, OutputTag | None],
) -> Rows:
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
    late_tags
        Where late rows of each stream go, if not nowhere.

    Raises
    ------
    PlanError
        Keys that are never equal, names that come twice, rows without the event time that the join goes by, or late
        rows of a join for which none are late.
    """
    first, second = sides
    if first._rows._env is not second._rows._env:
        raise PlanError(f"{method}() takes rows of the same environment, and these are of another")
    if _goes_by_event_time(by):
        _check_event_time(method, sides)
    late = _late(method, sides, by, late_tags)
    keeps_unmatched = "as_of" in by and by["as_of"]["keeps_unmatched"]
    sides_of = [(keyed._rows._schema, list(keyed._keys)) for keyed in sides]
    left, right, shown, output, kept = checked(
        _flownet.rows_after_join,
        sides_of[0],
        sides_of[1],
        config.text("suffix", suffix),
        keeps_unmatched,
        late[1] is not None,
    )
    bundles = "interval" in by
    origins = (
        first._to_keys(left, keeps_null_keys=keeps_unmatched, bundles=bundles),
        replace(second._to_keys(right, keeps_null_keys=False, bundles=bundles), side=1),
    )
    described: spec.RowsKindJoin = {
        "left": left[1].planned(),
        "right": right[1].planned(),
        "shown": shown,
        "output": output.planned(),
        "by": by,
        "late": [None if side is None else {"tag": side[0], "schema": side[1].planned()} for side in late],
        "kept": [*kept, first._key_kinds()],
    }
    env = first._rows._env
    node = env._dataflow.add({"rows": {"join": described}}, name=method, inputs=origins)
    return Rows(env, (Origin(node),), output, dict(side for side in late if side is not None))


def _late(
    method: str,
    sides: tuple[rows.KeyedRows, rows.KeyedRows],
    by: spec.RowsJoin,
    tags: tuple[OutputTag | None, OutputTag | None],
) -> list[tuple[str, _flownet.RowSchema] | None]:
    """Say for each stream which side output has its late rows, and their columns."""
    late: list[tuple[str, _flownet.RowSchema] | None] = [None, None]
    for at, (keyed, tag, which) in enumerate(zip(sides, tags, ("left", "right"), strict=True)):
        if tag is None:
            continue
        if not isinstance(tag, OutputTag):
            raise PlanError(
                f"{method}(side_output_{which}_late_data=): must be a flownet.OutputTag, not {kind_of(tag)}"
            )
        if "regular" in by:
            raise PlanError(
                f"{method}(side_output_{which}_late_data=): without a window no row is late, as each is kept for ever"
            )
        late[at] = (tag.name, keyed._rows._schema)
    if late[0] is not None and late[1] is not None and late[0][0] == late[1][0] and late[0][1] != late[1][1]:
        raise PlanError(
            f"{method}(): late rows of the two streams have other columns, and one side output for both, "
            f"{late[0][0]!r}: give each a tag of its own"
        )
    return late


def _check_event_time(method: str, sides: tuple[rows.KeyedRows, rows.KeyedRows]) -> None:
    """Refuse rows that have no event time."""
    for keyed, which in zip(sides, ("first", "second"), strict=True):
        if not has_timestamps(keyed._rows._origins):
            raise PlanError(
                f"{method}() goes by event time, and the {which} stream has none: say event_time= where its rows "
                "begin, or call assign_timestamps() before key_by()"
            )


def _goes_by_event_time(by: spec.RowsJoin) -> bool:
    if (windowed := by.get("window")) is not None:
        return windowed["window"].get("clock") == "event"
    return "regular" not in by
