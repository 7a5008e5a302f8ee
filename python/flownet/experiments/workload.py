"""What an experiment runs: a `Workload` takes checked parameters and returns figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..internal.parameter import Parameter, Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that a workload measures.

    Parameters
    ----------
    unit
        Its unit, such as ``"records/s"``; empty for a ratio.
    doc
        What it says, in a few words.
    higher_is_better
        Which way is good.
    """

    unit: str
    doc: str
    higher_is_better: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run of a workload found.

    Parameters
    ----------
    figures
        Values by the names that the workload declares, in the units it declares.
    histogram
        All latencies of the run in nanoseconds: an HdrHistogram, V2, deflated, base64. None: it takes none.
    details
        Whatever else may explain the figures; kept as JSON.
    """

    figures: Mapping[str, float]
    histogram: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where and with what a run takes place.

    Parameters
    ----------
    seed
        The same for the same cell and repetition; what a workload draws at random it draws from this.
    spark
        The session, where the run takes place in the driver of one; None elsewhere.
    across
        The workers of the run must be on executors of ``spark``.
    """

    seed: int
    spark: SparkSession | None = None
    across: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """Something that can be measured with different parameters.

    Parameters
    ----------
    name
        Its name in descriptions and rows.
    doc
        What it measures, in one line.
    parameters
        What it takes.
    figures
        What it measures. The first is the one that "best" is about.
    measure
        Runs once and returns what it found. Called with every parameter by name; those that neither the cell nor a
        default sets are left out. What it raises becomes the error of the run.
    check
        Raises `ConfigError` for parameters that do not go together; called before anything runs.
    cores
        CPU cores that a run keeps busy. Not more of them run on a host at once than it has cores.
    goes_across
        It can run with its workers on different executors.
    needs_spark
        With these parameters it runs in the driver of a Spark session and nowhere else.
    """

    name: str
    doc: str
    parameters: Mapping[str, Parameter]
    figures: Mapping[str, Figure]
    measure: Callable[[Mapping[str, Value], RunPlace], Measurement]
    check: Callable[[Mapping[str, Value]], None] = lambda parameters: None
    cores: Callable[[Mapping[str, Value]], int] = lambda parameters: 1
    goes_across: bool = False
    needs_spark: Callable[[Mapping[str, Value]], bool] = lambda parameters: False
