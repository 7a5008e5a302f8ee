"""The drawings of a report, as ``<svg>`` elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..internal import plots
from ..internal.units import heading, scale
from .analysis import Latency, Point, Ratio, Summary
from .execute import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def figures(said: Mapping[str, Any], rows: Sequence[Row], cells: Mapping[str, Mapping[int, Summary]]) -> str:
    """Draw each shown figure over the axis: a line for each series, with intervals and single runs."""
    shown = [name for name in said["shown"] if name in cells]
    with plots.style():
        figure = plots.figure(_WIDTH, 3.6 if len(shown) > 1 else 4.2)
        panels = figure.subplots(1, max(len(shown), 1), squeeze=False)[0]
        axis = _Axis(said, rows)
        for panel, name in zip(panels, shown, strict=False):
            unit = said["figures"][name]["unit"]
            summaries = cells[name]
            factor, written = scale(max(summary.greatest for summary in summaries.values()), unit)
            for number, (series, indices) in enumerate(axis.series.items()):
                points = [(axis.place[index], summaries[index]) for index in indices if index in summaries]
                _summaries(panel, points, factor, number, series)
            for row in rows:
                if row["status"] == "ok" and name in row["figures"]:
                    number = axis.number[row["cell_index"]]
                    panel.plot(
                        axis.place[row["cell_index"]],
                        row["figures"][name] / factor,
                        "o",
                        color=plots.COLOURS[number % len(plots.COLOURS)],
                        alpha=0.45,
                        markersize=5,
                        markeredgewidth=0,
                        zorder=3,
                    )
            panel.set_title(heading(name, written))
            axis.label(panel)
            panel.set_ylim(bottom=0)
        if len(axis.series) > 1:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))
        return plots.element(figure)


def ratios(said: Mapping[str, Any], found: Sequence[Ratio]) -> str:
    """Draw ratios of the shown figures with their intervals, one below the other, around 1."""
    kept = [ratio for ratio in found if ratio.figure in said["shown"]]
    shown = [name for name in said["shown"] if any(ratio.figure == name for ratio in kept)]
    labels = list(dict.fromkeys(_side(said, ratio) for ratio in kept))
    with plots.style():
        figure = plots.figure(_WIDTH, 1.0 + 0.34 * len(labels))
        panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        for number, (panel, name) in enumerate(zip(panels, shown, strict=True)):
            own = [ratio for ratio in kept if ratio.figure == name]
            places = [labels.index(_side(said, ratio)) for ratio in own]
            middles, bars = _bars([ratio.summary for ratio in own], 1.0)
            panel.axvline(1, color=plots.LINE, linewidth=1)
            panel.errorbar(middles, places, xerr=bars, fmt="o", capsize=3, color=plots.COLOURS[number])
            panel.set_title(heading(name, "ratio"))
            panel.set_yticks(range(len(labels)), labels)
            panel.margins(x=0.15)
        panels[0].invert_yaxis()
        return plots.element(figure)


def knees(said: Mapping[str, Any], found: Sequence[Point]) -> str:
    """Draw latency over throughput, the knee of each curve marked."""
    throughput, latency = said["knee"]
    x_factor, x_unit = scale(max(point.throughput for point in found), said["figures"][throughput]["unit"])
    y_factor, y_unit = scale(min(point.latency for point in found), said["figures"][latency]["unit"])
    with plots.style():
        figure = plots.figure(_WIDTH, 4.2)
        panel = figure.subplots()
        for number, series in enumerate(dict.fromkeys(point.series for point in found)):
            own = [point for point in found if point.series == series]
            colour = plots.COLOURS[number % len(plots.COLOURS)]
            places = [(point.throughput / x_factor, point.latency / y_factor) for point in own]
            panel.plot(
                *zip(*places, strict=True), plots.MARKS[number % len(plots.MARKS)] + "-", color=colour, label=series
            )
            for place, point in zip(places, own, strict=True):
                if point.is_knee:
                    panel.plot(*place, "o", markersize=15, fillstyle="none", markeredgewidth=1.6, color=colour)
                    # At the end of a curve nobody knows what comes behind it.
                    said_of_it = "knee" if point is not own[-1] else "knee, or it lies beyond"
                    panel.annotate(said_of_it, place, (0, -18), textcoords="offset points", color=colour, ha="center")
        panel.margins(0.08, 0.15)
        plots.logarithmic(panel, panel.xaxis)
        plots.logarithmic(panel, panel.yaxis)
        panel.set_xlabel(heading(throughput, x_unit))
        panel.set_ylabel(heading(latency, y_unit))
        _legend(panel)
        return plots.element(figure)


def latencies(found: Sequence[Latency]) -> str:
    """Draw latency over ever rarer records: half, one in ten, one in a hundred ..."""
    factor, unit = scale(min(latency.percentiles.p50_us for latency in found), "us")
    with plots.style():
        figure = plots.figure(_WIDTH, 4.4)
        panel = figure.subplots()
        for number, latency in enumerate(found):
            quantiles, times = zip(*latency.percentiles.curve, strict=True)
            panel.plot(
                [1 / max(1 - quantile, 1e-12) for quantile in quantiles],
                [us / factor for us in times],
                color=plots.COLOURS[number % len(plots.COLOURS)],
                linestyle=("-", "--", ":", "-.")[number // len(plots.COLOURS) % 4],
                label=latency.cell,
            )
        panel.set_xscale("log")
        plots.logarithmic(panel, panel.yaxis)
        rarest = max(latency.percentiles.samples for latency in found)
        ticks = [(2, "p50")] + [(10**nines, f"p{_nines(nines)}") for nines in range(1, 9) if 10**nines <= rarest]
        panel.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
        panel.set_xticks([], minor=True)
        panel.set_ylabel(f"latency, {unit}")
        _legend(panel)
        return plots.element(figure)


def order(headline: str, rows: Sequence[Row], summaries: Mapping[int, Summary]) -> str:
    """Draw each run by the median of its cell, over the time at which it began."""
    began = rows[0]["started_at"]
    with plots.style():
        figure = plots.figure(_WIDTH, 2.6)
        panel = figure.subplots()
        panel.axhline(1, color=plots.LINE, linewidth=1)
        seconds = (rows[-1]["started_at"] - began).total_seconds()
        unit, factor = ("minutes", 60) if seconds >= 180 else ("seconds", 1)
        for row in rows:
            passed = (row["started_at"] - began).total_seconds() / factor
            index, value = row["cell_index"], row["figures"].get(headline)
            summary = summaries.get(index)
            if row["status"] == "failed" or summary is None or not summary.median or value is None:
                panel.plot(passed, 1, "x", color=plots.RED)
                continue
            colour = plots.COLOURS[index % len(plots.COLOURS)]
            panel.plot(passed, value / summary.median, "o", color=colour, markersize=4, alpha=0.8)
        panel.set_xlabel(f"{unit} since the first run began (x: failed)")
        panel.set_ylabel("run by median")
        return plots.element(figure)


class _Axis:
    """Where the cells of an experiment stand on the axis, and which of them belong to one line."""

    def __init__(self, said: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self._name = said["axis"]
        column = said["columns"][self._name]
        first = {row["cell_index"]: row for row in reversed(rows)}
        written = {index: first[index]["parameters"].get(self._name, "default") for index in sorted(first)}
        numbers = {index: first[index]["numbers"].get(column) for index in sorted(first)}
        numeric = self._name in said["numeric"] and all(number is not None for number in numbers.values())
        self._is_numeric = numeric
        texts = list(dict.fromkeys(written.values()))
        self.place: dict[int, float] = (
            {index: float(numbers[index]) for index in written}
            if numeric
            else {index: texts.index(text) for index, text in written.items()}
        )
        self._ticks = dict(sorted({self.place[index]: text for index, text in written.items()}.items()))
        self.series: dict[str, list[int]] = {}
        self.number: dict[int, int] = {}
        for index in written:
            others = [name for name in said["varied"] if name != self._name]
            known = first[index]["parameters"]
            label = ", ".join(f"{name}={known[name]}" for name in others if name in known)
            self.series.setdefault(label, []).append(index)
            self.number[index] = list(self.series).index(label)
        for indices in self.series.values():
            indices.sort(key=lambda index: self.place[index])

    def label(self, panel: Axes) -> None:
        """Write the values below a panel: numbers at their place, by their logarithm if they differ by ten times."""
        places = list(self._ticks)
        positive = [place for place in places if place > 0]
        if self._is_numeric and positive and positive[-1] >= 10 * positive[0]:
            # A value of zero has no logarithm: up to the least positive one the scale is linear.
            panel.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        panel.set_xticks(places, [_short(text) for text in self._ticks.values()])
        panel.set_xticks([], minor=True)
        panel.margins(x=0.08)
        panel.set_xlabel(self._name)


def _summaries(panel: Axes, points: Sequence[tuple[float, Summary]], factor: float, number: int, label: str) -> None:
    middles, bars = _bars([summary for _, summary in points], factor)
    panel.errorbar(
        [place for place, _ in points],
        middles,
        yerr=bars,
        fmt=plots.MARKS[number % len(plots.MARKS)] + "-",
        capsize=3,
        color=plots.COLOURS[number % len(plots.COLOURS)],
        label=label or None,
    )


def _bars(summaries: Sequence[Summary], factor: float) -> tuple[list[float], list[list[float]]]:
    """Give the medians, and how far their intervals reach down and up."""
    middles = [summary.median / factor for summary in summaries]
    below = [max(summary.median - summary.low, 0) / factor for summary in summaries]
    above = [max(summary.high - summary.median, 0) / factor for summary in summaries]
    return middles, [below, above]


def _legend(panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    if any(labels):
        panel.figure.legend(handles, labels, loc="outside upper left", ncols=min(3, len(labels)))


def _short(tick: str) -> str:
    """Write a large number with a letter: many of them stand side by side."""
    if tick.isdecimal() and int(tick) >= 10_000:
        for factor, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
            if int(tick) % (factor // 10) == 0 and int(tick) >= factor:
                return f"{int(tick) / factor:g} {letter}"
    return tick


def _side(said: Mapping[str, Any], ratio: Ratio) -> str:
    own = f"{said['compare']}={ratio.value}"
    return f"{ratio.context}, {own}" if ratio.context else own


def _nines(nines: int) -> str:
    return {1: "90", 2: "99"}.get(nines, "99." + "9" * (nines - 2))


_WIDTH: Final = 9.6
"""Inches, of every drawing."""
