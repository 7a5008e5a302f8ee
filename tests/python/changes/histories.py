"""Random histories of tables, and what their rows are after each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

from hypothesis import strategies as st

import flownet as fn

Row: TypeAlias = tuple[str, int]

ADDING = st.sampled_from([fn.RowKind.INSERT, fn.RowKind.UPDATE_AFTER])
CHANCE: st.SearchStrategy[Any] = st.booleans()
REMOVING = st.sampled_from([fn.RowKind.DELETE, fn.RowKind.UPDATE_BEFORE])


@st.composite
def histories(draw: st.DrawFn, max_size: int = 30) -> list[fn.Change[Row]]:
    """Changes of a table of pairs of few keys and values; only rows that are there go."""
    rows: list[Row] = []
    changes: list[fn.Change[Row]] = []
    for _ in range(draw(st.integers(0, max_size))):
        if rows and draw(CHANCE):
            row = rows.pop(draw(st.integers(0, len(rows) - 1)))
            changes.append(fn.Change(draw(REMOVING), row))
        else:
            row = draw(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)))
            rows.append(row)
            changes.append(fn.Change(draw(ADDING), row))
    return changes


def rows_of(changes: Iterable[fn.Change[Any]]) -> Counter[Any]:
    """Add all up: how often each row is there. None may be there less than never."""
    counts: Counter[Any] = Counter()
    for change in changes:
        counts[change.value] += 1 if change.adds else -1
        assert counts[change.value] >= 0, change
    return +counts
