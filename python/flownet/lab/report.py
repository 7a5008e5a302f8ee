"""Report: pictures of what came of scenarios, and one page with everything in it that asks nothing of the network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from ..internal import plots
from ..internal.machine import cpu_model, system, versions
from ..internal.pages import Page
from .controls import CONTROLS
from .picture import Picture
from .result import Result
from .scenario import Scenario
from .settings import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Answer = tuple[Scenario, Sequence[Result]]


def drawn(
    scenario: Scenario,
    results: Sequence[Result],
    size: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the results of a scenario.

    Parameters
    ----------
    scenario
        What was run.
    results
        What came of it.
    size
        Width and height of the picture in inches, at least `picture.least_size`. Default: what suits it.
    title
        In place of what the picture says of itself; empty for a picture without, as where a caption stands below it.
    """
    with plots.style():
        picture = Picture(size, title)
        scenario.draw(results, picture)
        return picture.finished()


def page(answers: Sequence[Answer], command: str) -> Page:
    """Make the page.

    Parameters
    ----------
    answers
        Scenarios with their results.
    command
        How they were run.
    """
    title = "flownet laboratory" if len(answers) > 1 else f"flownet laboratory: {answers[0][0].name}"
    made = Page(title, "Real worker processes, real sockets; sampled by counters beside the engine, in the tasks.")
    if len(answers) > 1:
        made.contents((scenario.name, f"{scenario.finding(results)}.") for scenario, results in answers)
    shown = [name for name in CONTROLS if any(result.control == name for _, results in answers for result in results)]
    made.section("Ways of controlling flow")
    made.terms((name, CONTROLS[name].how) for name in shown)
    for scenario, results in answers:
        _add(made, scenario, results)
    made.section("How it was run")
    made.terms(
        (
            ("command", command),
            ("when", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
            ("machine", f"{os.cpu_count()} cores of {cpu_model()}, {system()}"),
            ("versions", ", ".join(f"{name} {of}" for name, of in versions("numpy", "matplotlib").items())),
        )
    )
    return made


def _add(made: Page, scenario: Scenario, results: Sequence[Result]) -> None:
    made.section(scenario.name, scenario.question)
    made.drawing(plots.element(drawn(scenario, results)), label=f"{scenario.finding(results)}.")
    head, *rows = scenario.table(results)
    made.table(head, rows)
    made.terms(written(scenario), summary="settings")
