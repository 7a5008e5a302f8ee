"""Runs one cell once and makes its row. The same on a laptop, in a Spark task and in a driver."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..internal.machine import versions
from . import facts
from .description import Experiment
from .plan import Run
from .workload import Measurement, RunPlace

Row = dict[str, Any]
"""A row of the results, by the columns of `store.COLUMNS`."""


@dataclass(frozen=True, slots=True)
class Session:
    """What all runs of one call have in common; it is sent to where they run.

    Parameters
    ----------
    experiment
        What is run.
    description
        `described` of it.
    mode
        How it is distributed: ``local``, ``spread`` or ``across``.
    git_commit
        As `facts.git_commit` says where the call was made.
    """

    experiment: Experiment
    description: str
    mode: str
    git_commit: str | None

    @classmethod
    def of(cls, experiment: Experiment, mode: str) -> Session:
        """Make the session of a call that is made here."""
        return cls(experiment, json.dumps(described(experiment)), mode, facts.git_commit())


def described(experiment: Experiment) -> dict[str, Any]:
    """Say all of an experiment in plain values: to repeat it, to report it, and to tell it from another."""
    work = experiment.work
    parameters = {name for cell in experiment.all_cells for name in cell.parameters}
    return {
        "name": experiment.name,
        "workload": work.name,
        "title": experiment.heading,
        "cells": [experiment.written(cell.parameters) for cell in experiment.all_cells],
        "labels": [cell.label for cell in experiment.all_cells],
        "repetitions": experiment.repetitions,
        "seed": experiment.seed,
        "shown": experiment.shown,
        "axis": experiment.axis,
        "varied": experiment.varied,
        "columns": {name: work.parameters[name].column(name) for name in sorted(parameters)},
        "numeric": sorted(name for name in parameters if work.parameters[name].is_numeric),
        "compare": experiment.compare,
        "knee": experiment.knee,
        "figures": {
            name: {"unit": figure.unit, "doc": figure.doc, "higher_is_better": figure.higher_is_better}
            for name, figure in work.figures.items()
        },
    }


@dataclass(frozen=True, slots=True)
class RunStart:
    """What is known of a run as it begins.

    Parameters
    ----------
    at
        When it began.
    clock
        The same by `time.perf_counter`.
    load
        Load of the host at that time, as an average over a minute.
    waited
        Seconds that it had waited for free cores.
    """

    at: datetime
    clock: float
    load: float
    waited: float

    @classmethod
    def now(cls, waited: float) -> RunStart:
        """Make that of a run that begins now."""
        return cls(datetime.now(UTC), time.perf_counter(), os.getloadavg()[0], waited)


def execute(session: Session, run: Run, place: RunPlace, waited: float = 0.0) -> Row:
    """Run one cell once, in this process. What it raises, other than an interrupt, is the error of its row.

    Parameters
    ----------
    session
        What it belongs to.
    run
        Which cell, which repetition.
    place
        Where it takes place.
    waited
        Seconds that it waited for free cores.
    """
    beginning = RunStart.now(waited)
    error: str | None = None
    try:
        found = session.experiment.work.measure(run.cell.parameters, place)
        _check(session.experiment, found)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
        found = Measurement({}, details={"traceback": traceback.format_exc()})
    return row_of(session, run, beginning, found, error)


def row_of(session: Session, run: Run, beginning: RunStart, found: Measurement, error: str | None) -> Row:
    """Make the row of a run that has ended now; with an error, one that failed."""
    experiment = session.experiment
    written = {name: experiment.work.parameters[name].write(value) for name, value in run.cell.parameters.items()}
    return {
        "workload": experiment.work.name,
        "cell_index": run.cell.index,
        "cell": run.cell.label,
        "repetition": run.repetition,
        "position": run.position,
        "status": "failed" if error else "ok",
        "error": error,
        "parameters": written,
        "numbers": _numbers(experiment, run),
        "figures": {name: float(value) for name, value in found.figures.items()},
        "histogram": found.histogram,
        "details": json.dumps(dict(found.details), default=str),
        "started_at": beginning.at,
        "run_seconds": time.perf_counter() - beginning.clock,
        "waited_seconds": beginning.waited,
        "seed": run.seed,
        "mode": session.mode,
        "versions": versions("pyspark", "numpy"),
        "git_commit": session.git_commit,
        "host": facts.host() | {"load_before": f"{beginning.load:.2f}"},
        "description": session.description,
        "experiment": experiment.name,
    }


def _numbers(experiment: Experiment, run: Run) -> Mapping[str, float]:
    known = experiment.work.parameters
    return {
        known[name].column(name): float(value)
        for name, value in run.cell.parameters.items()
        if known[name].is_numeric and value is not None
    }


def _check(experiment: Experiment, found: Measurement) -> None:
    unknown = found.figures.keys() - experiment.work.figures.keys()
    if unknown:
        raise ValueError(f"the workload measured figures that it does not declare: {', '.join(sorted(unknown))}")
