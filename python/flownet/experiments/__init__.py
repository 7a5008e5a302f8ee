"""Experiments: a workload, a grid of its parameters, repetitions in random order, and what comes of it as a DataFrame.

>>> from flownet.experiments import Experiment
>>> experiment = Experiment(
...     "timeouts", "exchange", parameters={"records": 1000}, grid={"buffer_timeout": ["1ms", "10ms"]}
... )
>>> len(experiment.all_cells) * experiment.repetitions
6

`run` runs one on this machine or spread over Spark, `report` writes a page about its rows, `load` reads them into a
DataFrame of Spark. On the command line it is ``flownet experiment``.
"""

from __future__ import annotations

from ..internal.parameter import Parameter
from .description import Cell, Experiment
from .files import find_experiment, ready_made
from .frame import load
from .report import report
from .run import Mode, Outcome, run
from .workload import Figure, Measurement, RunPlace, Workload

__all__ = [
    "Cell",
    "Experiment",
    "Figure",
    "Measurement",
    "Mode",
    "Outcome",
    "Parameter",
    "RunPlace",
    "Workload",
    "find_experiment",
    "load",
    "ready_made",
    "report",
    "run",
]
