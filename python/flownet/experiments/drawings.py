"""The drawings of a report, as ``<svg>`` elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import plots
from .extras import need
from .units import heading, scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from pyspark.sql import Row


def figures(said: Mapping[str, Any], rows: Sequence[Row], cells: Sequence[Row]) -> str:
    """Draw each shown figure over the axis: a line for each series, with intervals and single runs."""
    shown = [name for name in said["shown"] if any(row.figure == name for row in cells)]
    with plots.style():
        figure = _figure(9.6, 3.6 if len(shown) > 1 else 4.2)
        panels = figure.subplots(1, max(len(shown), 1), squeeze=False)[0]
        axis = _Axis(said, rows)
        for panel, name in zip(panels, shown, strict=False):
            unit = said["figures"][name]["unit"]
            summaries = {row.cell_index: row for row in cells if row.figure == name}
            factor, written = scale(max(row.greatest for row in summaries.values()), unit)
            for number, (series, indices) in enumerate(axis.series.items()):
                points = [(axis.place[index], summaries[index]) for index in indices if index in summaries]
                _summaries(panel, points, factor, number, series)
            for row in rows:
                if row.status == "ok" and name in row.figures:
                    number = axis.number[row.cell_index]
                    panel.plot(
                        axis.place[row.cell_index],
                        row.figures[name] / factor,
                        ".",
                        color=plots.COLOURS[number % len(plots.COLOURS)],
                        alpha=0.35,
                        markersize=4,
                        markeredgewidth=0,
                    )
            panel.set_title(heading(name, written))
            axis.label(panel)
            panel.set_ylim(bottom=0)
        if len(axis.series) > 1:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))
        return plots.svg(figure)


def ratios(said: Mapping[str, Any], found: Sequence[Row]) -> str:
    """Draw ratios of the shown figures with their intervals, one below the other, around 1."""
    kept = [row for row in found if row.figure in said["shown"]]
    shown = [name for name in said["shown"] if any(row.figure == name for row in kept)]
    labels = list(dict.fromkeys(_side(said, row) for row in kept))
    with plots.style():
        figure = _figure(9.6, 1.0 + 0.34 * len(labels))
        panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        for number, (panel, name) in enumerate(zip(panels, shown, strict=True)):
            own = [row for row in kept if row.figure == name]
            places = [labels.index(_side(said, row)) for row in own]
            middles = [row.median for row in own]
            below = [max(row.median - row.low, 0) for row in own]
            above = [max(row.high - row.median, 0) for row in own]
            panel.axvline(1, color="#8a939c", linewidth=1)
            panel.errorbar(middles, places, xerr=[below, above], fmt="o", capsize=3, color=plots.COLOURS[number])
            panel.set_title(heading(name, "ratio"))
            panel.set_yticks(range(len(labels)), labels)
            panel.margins(x=0.15)
        panels[0].invert_yaxis()
        return plots.svg(figure)


def knees(said: Mapping[str, Any], found: Sequence[Row]) -> str:
    """Draw latency over throughput, the knee of each curve marked."""
    throughput, latency = said["knee"]
    x_factor, x_unit = scale(max(row.throughput for row in found), said["figures"][throughput]["unit"])
    y_factor, y_unit = scale(min(row.latency for row in found), said["figures"][latency]["unit"])
    with plots.style():
        figure = _figure(9.6, 4.2)
        panel = figure.subplots()
        for number, series in enumerate(dict.fromkeys(row.series for row in found)):
            own = [row for row in found if row.series == series]
            colour = plots.COLOURS[number % len(plots.COLOURS)]
            places = [(row.throughput / x_factor, row.latency / y_factor) for row in own]
            panel.plot(
                *zip(*places, strict=True), plots.MARKS[number % len(plots.MARKS)] + "-", color=colour, label=series
            )
            for place, row in zip(places, own, strict=True):
                if row.is_knee:
                    panel.plot(*place, "o", markersize=15, fillstyle="none", markeredgewidth=1.6, color=colour)
                    # At the end of a curve nobody knows what comes behind it.
                    said_of_it = "knee" if row is not own[-1] else "knee, or it lies beyond"
                    panel.annotate(said_of_it, place, (0, -18), textcoords="offset points", color=colour, ha="center")
        panel.margins(0.08, 0.15)
        _logarithmic(panel, panel.xaxis)
        _logarithmic(panel, panel.yaxis)
        panel.set_xlabel(heading(throughput, x_unit))
        panel.set_ylabel(heading(latency, y_unit))
        _legend(panel)
        return plots.svg(figure)


def latencies(found: Sequence[Row]) -> str:
    """Draw latency over ever rarer records: half, one in ten, one in a hundred ..."""
    factor, unit = scale(min(row.p50_us for row in found), "us")
    with plots.style():
        figure = _figure(9.6, 4.4)
        panel = figure.subplots()
        for number, row in enumerate(found):
            rare = [1 / max(1 - point.quantile, 1e-12) for point in row.curve]
            panel.plot(
                rare,
                [point.us / factor for point in row.curve],
                color=plots.COLOURS[number % len(plots.COLOURS)],
                linestyle=("-", "--", ":", "-.")[number // len(plots.COLOURS) % 4],
                label=row.cell,
            )
        panel.set_xscale("log")
        _logarithmic(panel, panel.yaxis)
        rarest = max(row.samples for row in found)
        ticks = [(2, "p50")] + [(10**nines, f"p{_nines(nines)}") for nines in range(1, 9) if 10**nines <= rarest]
        panel.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
        panel.set_xticks([], minor=True)
        panel.set_ylabel(f"latency, {unit}")
        _legend(panel)
        return plots.svg(figure)


def order(headline: str, rows: Sequence[Row], medians: Mapping[int, Row]) -> str:
    """Draw each run by the median of its cell, over the time at which it began."""
    began = rows[0].started_at
    with plots.style():
        figure = _figure(9.6, 2.6)
        panel = figure.subplots()
        panel.axhline(1, color="#8a939c", linewidth=1)
        seconds = (rows[-1].started_at - began).total_seconds()
        unit, factor = ("minutes", 60) if seconds >= 180 else ("seconds", 1)
        for row in rows:
            passed = (row.started_at - began).total_seconds() / factor
            summary = medians.get(row.cell_index)
            if row.status == "failed" or summary is None or not summary.median or headline not in row.figures:
                panel.plot(passed, 1, "x", color=plots.COLOURS[1])
                continue
            colour = plots.COLOURS[row.cell_index % len(plots.COLOURS)]
            panel.plot(passed, row.figures[headline] / summary.median, "o", color=colour, markersize=4, alpha=0.8)
        panel.set_xlabel(f"{unit} since the first run began (x: failed)")
        panel.set_ylabel("run by median")
        return plots.svg(figure)


class _Axis:
    """Where the cells of an experiment stand on the axis, and which of them belong to one line."""

    def __init__(self, said: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self._name = said["axis"]
        column = said["columns"][self._name]
        first = {row.cell_index: row for row in reversed(rows)}
        written = {index: first[index].parameters.get(self._name, "default") for index in sorted(first)}
        numbers = {index: first[index].numbers.get(column) for index in sorted(first)}
        numeric = self._name in said["numeric"] and all(number is not None for number in numbers.values())
        self._ticks = list(
            dict.fromkeys(
                written[index]
                for index in (sorted(written, key=lambda index: (numbers[index], index)) if numeric else written)
            )
        )
        self.place = {index: self._ticks.index(text) for index, text in written.items()}
        self.series: dict[str, list[int]] = {}
        self.number: dict[int, int] = {}
        for index in written:
            others = [name for name in said["varied"] if name != self._name]
            known = first[index].parameters
            label = ", ".join(f"{name}={known[name]}" for name in others if name in known)
            self.series.setdefault(label, []).append(index)
            self.number[index] = list(self.series).index(label)
        for indices in self.series.values():
            indices.sort(key=lambda index: self.place[index])

    def label(self, panel: Axes) -> None:
        """Write the values below a panel, evenly: 0, 1 ms and 100 ms have no common scale."""
        panel.set_xticks(range(len(self._ticks)), [_short(tick) for tick in self._ticks])
        panel.set_xlim(-0.4, len(self._ticks) - 0.6)
        panel.set_xlabel(self._name)


def _summaries(panel: Axes, points: Sequence[tuple[int, Row]], factor: float, number: int, label: str) -> None:
    places = [place for place, _ in points]
    middles = [row.median / factor for _, row in points]
    below = [max(row.median - row.low, 0) / factor for _, row in points]
    above = [max(row.high - row.median, 0) / factor for _, row in points]
    panel.errorbar(
        places,
        middles,
        yerr=[below, above],
        fmt=plots.MARKS[number % len(plots.MARKS)] + "-",
        capsize=3,
        color=plots.COLOURS[number % len(plots.COLOURS)],
        label=label or None,
    )


def _figure(width: float, height: float) -> Figure:
    figure: Figure = need("matplotlib.figure", "drawing a report").Figure(figsize=(width, height))
    return figure


def _logarithmic(panel: Axes, axis: Axis) -> None:
    """Set steps of 1, 2 and 5, written as plain numbers, whether there are many decades or less than one."""
    ticker = need("matplotlib.ticker", "drawing a report")
    (panel.set_xscale if axis is panel.xaxis else panel.set_yscale)("log")
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=9))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


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


def _side(said: Mapping[str, Any], row: Row) -> str:
    own = f"{said['compare']}={row.value}"
    return f"{row.context}, {own}" if row.context else own


def _nines(nines: int) -> str:
    return {1: "90", 2: "99"}.get(nines, "99." + "9" * (nines - 2))
