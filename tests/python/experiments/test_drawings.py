"""Where the cells of an experiment stand on the axis of a drawing."""

from __future__ import annotations

from typing import Any

import pytest

from flownet.experiments.drawings import _Axis
from flownet.internal import plots


def axis(values: list[tuple[str, float | None]]) -> _Axis:
    said = {"axis": "load", "columns": {"load": "load"}, "numeric": ["load"], "varied": ["load"]}
    rows: list[dict[str, Any]] = [
        {"cell_index": index, "parameters": {"load": text}, "numbers": {"load": number}}
        for index, (text, number) in enumerate(values)
    ]
    return _Axis(said, rows)


@pytest.mark.parametrize(
    ("values", "places", "scale"),
    [
        ([("1", 1), ("2", 2), ("8", 8)], [1, 2, 8], "linear"),
        ([("1000", 1000), ("1", 1), ("10", 10)], [1000, 1, 10], "symlog"),
        ([("0 ms", 0), ("1 ms", 0.001), ("100 ms", 0.1)], [0, 0.001, 0.1], "symlog"),
        ([("many", None), ("2", 2)], [0, 1], "linear"),
    ],
)
def test_numbers_stand_at_their_value(values: list[tuple[str, float | None]], places: list[float], scale: str) -> None:
    found = axis(values)
    assert list(found.place.values()) == places
    panel = plots.figure(4, 3).subplots()
    found.label(panel)
    assert panel.get_xscale() == scale
    assert list(panel.get_xticks()) == sorted(places)
