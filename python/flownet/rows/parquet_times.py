"""Event times of Parquet files, as far as their footers give them."""

from __future__ import annotations

import json
from typing import Any

_DAY_MS = 86_400_000
_PER_MILLISECOND = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}


def least_times(metadata: Any, column: str) -> dict[int, int | None]:
    """Find the least event time in each row group that has rows, by its statistics.

    Parameters
    ----------
    metadata
        A ``pyarrow.parquet.FileMetaData``.
    column
        Name of a column that is not nested: a timestamp, a date, or an integer of milliseconds.

    Returns
    -------
    dict
        Milliseconds since 1970-01-01 UTC by row group, rounded down; None for a group without statistics of the column.
    """
    schema = metadata.schema
    place = next((index for index in range(len(schema)) if schema.column(index).path == column), None)
    unit = None if place is None else _unit(schema.column(place))
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    return {
        index: None if place is None or unit is None else _least(group.column(place).statistics, *unit)
        for index, group in enumerate(groups)
        if group.num_rows
    }


def _unit(column: Any) -> tuple[int, int] | None:
    """Say what to multiply a stored integer by, and then to divide it by, for milliseconds; None if it is no time."""
    if column.physical_type not in ("INT32", "INT64"):
        return None
    kind = json.loads(column.logical_type.to_json())
    match kind["Type"]:
        case "Timestamp":
            # Of a unit that a later version of the format brings nothing is known.
            per_millisecond = _PER_MILLISECOND.get(kind["timeUnit"])
            return None if per_millisecond is None else (1, per_millisecond)
        case "Date":
            return _DAY_MS, 1
        case "None":
            return 1, 1
        case "Int" if kind["isSigned"]:
            return 1, 1
    return None


def _least(statistics: Any, times: int, per_millisecond: int) -> int | None:
    if statistics is None or not statistics.has_min_max:
        return None
    # As it is stored: `min` raises for nanoseconds if pandas is not installed.
    return int(statistics.min_raw) * times // per_millisecond
