"""The workload ``head-of-line``: one run of the laboratory's scenario under one control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...internal.parameter import Parameter, Value
from ...lab.head_of_line import HeadOfLine
from ...lab.settings import parameters, with_values
from ...lab.trace import Trace
from ..workload import Figure, Measurement, RunPlace, Workload


def _scenario(given: Mapping[str, Value]) -> HeadOfLine:
    return with_values(HeadOfLine(), {name: value for name, value in given.items() if name != "control"})


def _check(given: Mapping[str, Value]) -> None:
    _scenario(given).check()


def _measure(given: Mapping[str, Value], place: RunPlace) -> Measurement:
    scenario = _scenario(given)
    trace = Trace(scenario.name, str(given["control"]))
    scenario.run(trace)
    result = scenario.result(trace)
    found = {name: result.figures[name] for name in _FIGURES if result.figures[name] is not None}
    return Measurement(found, details={**result.figures, "verdict": result.verdict})


_FIGURES: Final = {
    "b3_ratio": Figure("", "rate of B.3 beside its crawling neighbour, by its rate alone", higher_is_better=True),
    "peak_in_flight_bytes": Figure("B", "most bytes sent and not yet taken", higher_is_better=False),
    "dropped_bytes": Figure("B", "bytes lost", higher_is_better=False),
    "b4_ratio": Figure("", "rate of B.4 when it crawls, by its rate before", higher_is_better=True),
}

HEAD_OF_LINE: Final = Workload(
    name="head-of-line",
    doc="two pairs of tasks share one connection, and the consumer of one of them slows down to a crawl",
    parameters={
        "control": Parameter("choice", "what controls the flow", default="credit", choices=HeadOfLine.controls),
        **parameters(HeadOfLine),
    },
    figures=_FIGURES,
    measure=_measure,
    check=_check,
    cores=lambda given: 2,
)
