"""What the rows of an experiment say. It needs numpy and the rows, and no Spark: they are on this machine.

Medians come with percentile bootstrap intervals: a cell's runs are drawn with replacement, a thousand times; the middle
95 % of the medians of these draws is the interval. The draws come from a generator whose stream numpy promises to keep,
so the same rows always give the same interval. With few runs an interval is as wide as the runs lie apart.

Cells are compared repetition by repetition: both sides of a ratio ran within minutes of each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import histograms
from .execute import Row
from .histograms import Percentiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES: Final = 1000
"""Draws of the bootstrap."""

LEVEL: Final = 0.95
"""Share of the draws whose medians lie inside an interval."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What some values come down to.

    Parameters
    ----------
    runs
        How many there are.
    median
        Their median.
    low, high
        Its interval.
    least, greatest
        The values at the ends.
    """

    runs: int
    median: float
    low: float
    high: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise one value or more."""
        import numpy as np  # not for each run, which is a process of its own

        found = np.sort(np.asarray(values, float))
        draws = np.random.PCG64(_SEED).random_raw((RESAMPLES, len(found))) % len(found)
        medians = np.sort(_middle(np.sort(found[draws])))
        outside = round(RESAMPLES * (1 - LEVEL) / 2)
        ends = medians[outside], medians[RESAMPLES - 1 - outside], found[0], found[-1]
        return cls(len(found), float(_middle(found)), *map(float, ends))


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of one cell by the same figure of another, each repetition by itself.

    Parameters
    ----------
    cell_index
        The cell above the line.
    context
        The parameters that both sides share, as text.
    value
        What the compared parameter is above the line.
    figure
        The figure.
    summary
        Of the ratios of all repetitions.
    """

    cell_index: int
    context: str
    value: str
    figure: str
    summary: Summary


@dataclass(frozen=True, slots=True)
class Latency:
    """All records of a cell.

    Parameters
    ----------
    cell_index, cell
        Which cell.
    runs
        Runs that took latencies.
    percentiles
        Of the records of all of them.
    """

    cell_index: int
    cell: str
    runs: int
    percentiles: Percentiles


@dataclass(frozen=True, slots=True)
class Point:
    """One cell on a throughput/latency curve; medians.

    Parameters
    ----------
    series
        The curve: the parameters its cells share, as text.
    cell_index, cell
        Which cell.
    throughput, latency
        Medians of its runs.
    is_knee
        Whether no other point of the curve has more power.
    """

    series: str
    cell_index: int
    cell: str
    throughput: float
    latency: float
    is_knee: bool


def cells(rows: Sequence[Row]) -> dict[str, dict[int, Summary]]:
    """Summarise each figure of each cell; by the name of the figure and the index of the cell, both in order."""
    values = defaultdict[tuple[str, int], list[float]](list)
    for row in _good(rows):
        for figure, value in row["figures"].items():
            values[figure, row["cell_index"]].append(value)
    found = defaultdict[str, dict[int, Summary]](dict)
    for figure, index in sorted(values):
        found[figure][index] = Summary.of(values[figure, index])
    return dict(found)


def ratios(rows: Sequence[Row], compare: str, against: str, varied: Sequence[str]) -> list[Ratio]:
    """Compare cells that differ in one parameter only, each repetition by itself.

    Parameters
    ----------
    rows
        Of one experiment.
    compare
        The parameter.
    against
        Its value, as written, that the others are divided by.
    varied
        Parameters that are not the same in all cells.

    Returns
    -------
    list of Ratio
        By cell and figure. A repetition of which one side failed, or whose lower side is 0, does not count.
    """
    others = [name for name in varied if name != compare]
    sides = [(row, _labelled(row["parameters"], others)) for row in _good(rows) if compare in row["parameters"]]
    bases = {
        (context, row["repetition"], figure): value
        for row, context in sides
        if row["parameters"][compare] == against
        for figure, value in row["figures"].items()
    }
    values = defaultdict[tuple[int, str, str, str], list[float]](list)
    for row, context in sides:
        written = row["parameters"][compare]
        if written == against:
            continue
        for figure, value in row["figures"].items():
            if base := bases.get((context, row["repetition"], figure)):
                values[row["cell_index"], figure, context, written].append(value / base)
    return [
        Ratio(index, context, written, figure, Summary.of(values[index, figure, context, written]))
        for index, figure, context, written in sorted(values)
    ]


def latencies(rows: Sequence[Row]) -> list[Latency]:
    """Merge the histograms of each cell's runs and read the percentiles of all its records; by cell."""
    encoded = defaultdict[tuple[int, str], list[str]](list)
    for row in _good(rows):
        if row["histogram"] is not None:
            encoded[row["cell_index"], row["cell"]].append(row["histogram"])
    merged = ((cell, len(encoded[cell]), histograms.merged(encoded[cell])) for cell in sorted(encoded))
    return [Latency(*cell, runs, percentiles) for cell, runs, percentiles in merged if percentiles is not None]


def knees(rows: Sequence[Row], axis: str, figures: Sequence[str], varied: Sequence[str]) -> list[Point]:
    """Find the knee of each throughput/latency curve: the point of most *power*, throughput by latency (Kleinrock).

    Left of the knee, more load costs little latency; right of it, latency buys little throughput.

    Parameters
    ----------
    rows
        Of one experiment.
    axis
        The parameter along a curve; cells that differ in others are on other curves.
    figures
        A throughput and a latency.
    varied
        Parameters that are not the same in all cells.

    Returns
    -------
    list of Point
        Along each curve by throughput. Of equal power, the point of less throughput is the knee.
    """
    import numpy as np

    others = [name for name in varied if name != axis]
    values = defaultdict[tuple[str, int, str], list[tuple[float, float]]](list)
    for row in _good(rows):
        if all(figure in row["figures"] for figure in figures):
            cell = _labelled(row["parameters"], others), row["cell_index"], row["cell"]
            values[cell].append((row["figures"][figures[0]], row["figures"][figures[1]]))
    curves = defaultdict[str, list[tuple[float, float, int, str]]](list)
    for series, index, label in sorted(values):
        throughput, latency = (float(middle) for middle in _middle(np.sort(np.array(values[series, index, label]).T)))
        if latency > 0:
            curves[series].append((throughput, latency, index, label))
    points = list[Point]()
    for series, curve in curves.items():
        curve.sort()
        # The first of several that are alike.
        knee = max(curve, key=lambda point: point[0] / point[1])
        points += [Point(series, *point[2:], *point[:2], is_knee=point is knee) for point in curve]
    return points


def _good(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ok"]


def _labelled(parameters: Mapping[str, str], names: Sequence[str]) -> str:
    """Write the parameters of a row that are among ``names``."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items() if name in names)


def _middle(ascending: NDArray[np.float64]) -> Any:
    """Give the median along the last axis; of an even number of values, the middle of those two."""
    size = ascending.shape[-1]
    return (ascending[..., (size - 1) // 2] + ascending[..., size // 2]) / 2


_SEED: Final = 1
