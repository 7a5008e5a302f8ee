"""Pictures of the laboratory, and the pieces of which they are made. They need matplotlib.

Every curve and every level has its name where it ends, so that no picture needs its colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..internal import plots
from ..internal.plots import BLUE, GREY, INK, LINE, RED
from .result import Result
from .trace import Series, Trace


def least_size(rows: int) -> tuple[float, float]:
    """Say how wide and how high, in inches, a picture of so many rows has to be for its labels to have room."""
    return 6.5, math.ceil(2 * (1.8 + rows * (0.4 + _BETWEEN_ROWS))) / 2


class Picture:
    """One picture, begun by `grid` or by `single`; a scenario fills it.

    Parameters
    ----------
    size
        Width and height in inches; None for what suits it.
    title
        In place of the one that the scenario gives; None for that one, empty for none.
    """

    def __init__(self, size: tuple[float, float] | None, title: str | None) -> None:
        self._size = size
        self._title = title
        self._figure: Figure
        # Place along the axis, value, name and colour of each curve.
        self._ends: dict[Axes, list[tuple[float, float, str, str]]] = {}

    def grid(self, results: Sequence[Result], title: str, subtitle: str, heads: Sequence[str]) -> list[list[Axes]]:
        """Begin a picture with a row for each control and a column for each quantity, over seconds.

        Above each row stands the control and its verdict.
        """
        rows, columns = len(results), len(heads)
        height, top = self._begin(title, subtitle, _ABOVE_ROWS + rows * (_ROW + _BETWEEN_ROWS))
        top += _ABOVE_ROWS
        figure, width = self._figure, self._figure.get_figwidth()
        panel_width = (width - _LEFT - _RIGHT - (columns - 1) * _BETWEEN_COLUMNS) / columns
        panel_height = (height - top - _BOTTOM - (rows - 1) * _BETWEEN_ROWS) / rows
        panels = figure.subplots(rows, columns, sharex=True, sharey="col", squeeze=False)
        figure.subplots_adjust(
            left=_LEFT / width,
            right=1 - _RIGHT / width,
            top=1 - top / height,
            bottom=_BOTTOM / height,
            hspace=_BETWEEN_ROWS / panel_height,
            wspace=_BETWEEN_COLUMNS / panel_width,
        )
        for result, row in zip(results, panels, strict=True):
            above = row[0].get_position().y1 + 0.09 / height
            name = figure.text(_LEFT / width, above, result.control, weight="bold", size=10.5, va="bottom")
            verdict = _LEFT + name.get_window_extent().width / figure.dpi + 0.1
            figure.text(verdict / width, above, result.verdict, color=GREY, va="bottom")
            for axes in row:
                axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
                axes.margins(x=0)
        for axes, head in zip(panels[0], heads, strict=True):
            axes.set_title(head, size=9, weight="normal", color=GREY, pad=24)
        for axes in panels[-1]:
            axes.set_xlabel("seconds")
        return [list(row) for row in panels]

    def single(self, title: str, subtitle: str, head: str) -> Axes:
        """Begin a picture of one panel, with what goes up in it above."""
        height, top = self._begin(title, subtitle, 3.8)
        top += 0.3
        axes = self._figure.add_subplot()
        width = self._figure.get_figwidth()
        self._figure.subplots_adjust(
            left=_LEFT / width, right=1 - 0.4 / width, top=1 - top / height, bottom=_BOTTOM / height
        )
        axes.set_title(head, size=9, weight="normal", color=GREY, pad=8)
        return axes

    def speeds(self, axes: Axes, trace: Trace, named: Sequence[tuple[str, Series, str]], window: float) -> None:
        """Draw how fast bytes went, in MB/s: (name, bytes so far, colour). What was dropped joins them, if any was."""
        dropped = [("dropped", trace.drops(), RED)] if trace.dropped_bytes else []
        drawn = [(name, trace.rate(done, window) / 1e6, colour) for name, done, colour in (*named, *dropped)]
        self._curves(axes, trace, drawn)

    def in_flight(self, axes: Axes, trace: Trace, bound: float, label: str) -> None:
        """Draw what is in flight, in MB, and the bound it should keep."""
        self._curves(axes, trace, [("in flight", trace.in_flight() / 1e6, BLUE)], filled=True)
        self._level(axes, bound / 1e6, label)

    def moment(self, axes: Axes, seconds: float, label: str = "") -> None:
        """Mark a moment."""
        axes.axvline(seconds, color=LINE, linewidth=0.9, linestyle=(0, (1, 2)))
        _note(axes, label, seconds)

    def phase(self, axes: Axes, start: float, end: float, label: str = "") -> None:
        """Shade a stretch of time."""
        axes.axvspan(start, end, color="#f3eee0", zorder=0, linewidth=0)
        _note(axes, label, start)

    def finished(self) -> Figure:
        """Write the names at the ends of the curves, apart from each other, now that all scales are settled."""
        for axes, found in self._ends.items():
            ends = sorted(found, key=lambda end: end[1])
            height = axes.get_window_extent().height / self._figure.dpi * 72
            bottom, top = axes.get_ylim()
            places = apart([(value - bottom) / (top - bottom) * height for _, value, _, _ in ends], height)
            for place, (across, _, name, colour) in zip(places, ends, strict=True):
                at: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "bbox": _PAPER}
                axes.annotate(name, (across, 0), (4, place), size=8, va="center", color=colour, **at)
        return self._figure

    def _begin(self, title: str, subtitle: str, body: float) -> tuple[float, float]:
        """Begin a figure with its titles above a body so high; return its height, and how much the titles take."""
        if self._title is not None:
            title, subtitle = self._title, ""
        width = self._size[0] if self._size else _WIDTH
        title, subtitle = fill(title, int(8.7 * width)), fill(subtitle, int(13.9 * width))
        below_title = 0.18 + 0.22 * len(title.splitlines())
        top = below_title + 0.06 + 0.16 * len(subtitle.splitlines())
        height = self._size[1] if self._size else top + body + _BOTTOM
        self._figure = plots.figure(width, height, layout="none")
        self._figure.text(0.18 / width, 1 - 0.18 / height, title, size=12.5, weight="bold", va="top", linespacing=1.15)
        at = 1 - (below_title + 0.04) / height
        self._figure.text(0.18 / width, at, subtitle, size=8.5, color=GREY, va="top")
        return height, top

    def _curves(
        self, axes: Axes, trace: Trace, named: Sequence[tuple[str, Series, str]], *, filled: bool = False
    ) -> None:
        """Draw quantities over time, while the sources go on: (name, values, colour)."""
        shown = trace.seconds <= trace.until
        seconds = trace.seconds[shown]
        for name, values, colour in named:
            axes.plot(seconds, values[shown], color=colour, solid_capstyle="round")
            if filled:
                axes.fill_between(seconds, values[shown], color=colour, alpha=0.2, linewidth=0)
            end = float(seconds[-1]) / trace.until
            self._name(axes, end if end < 0.95 else 1.0, float(values[shown][-1]), name, colour)
        axes.set_xlim(0, trace.until)
        highest = max(float(values[shown].max()) for _, values, _ in named)
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.18 * highest, 1e-3))

    def _level(self, axes: Axes, value: float, label: str) -> None:
        """Mark a bound, which lies within the picture."""
        axes.set_ylim(top=max(axes.get_ylim()[1], value * 1.15))
        axes.axhline(value, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        self._name(axes, 1.0, value, label, INK)

    def _name(self, axes: Axes, across: float, value: float, name: str, colour: str) -> None:
        self._ends.setdefault(axes, []).append((across, value, name, colour))


def apart(places: Sequence[float], height: float) -> list[float]:
    """Move labels up and down, as little as it takes for none to cover another, and for all to stay within a height.

    Parameters
    ----------
    places
        Where the labels should be, in points, in order.
    height
        Points from the lowest place to the highest; if there is no room for all, those on top go beyond.
    """
    groups: list[tuple[float, int]] = []  # Middle and number of labels that stand close together.
    for place in places:
        middle, count = place, 1
        while groups and middle - groups[-1][0] < (count + groups[-1][1]) / 2 * _LABEL_POINTS:
            other, others = groups.pop()
            middle, count = (middle * count + other * others) / (count + others), count + others
        groups.append((middle, count))
    found = [
        middle + (position - (count - 1) / 2) * _LABEL_POINTS for middle, count in groups for position in range(count)
    ]
    for number in reversed(range(len(found))):
        found[number] = min(found[number], height - (len(found) - 1 - number) * _LABEL_POINTS)
    for number in range(len(found)):
        found[number] = max(found[number], number * _LABEL_POINTS)
    return found


def _note(axes: Axes, text: str, seconds: float) -> None:
    """Write below the upper edge, beside a moment, where there is more room."""
    side, align = (3, "left") if seconds <= sum(axes.get_xlim()) / 2 else (-3, "right")
    at: Any = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "bbox": _PAPER}
    axes.annotate(text, (seconds, 1), (side, -9), size=7.5, ha=align, color=GREY, **at)


_PAPER: Final = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.6}
"""Behind labels, so that lines which pass there do not cross them."""
_LABEL_POINTS: Final = 10.0
_WIDTH: Final = 9.2
_LEFT: Final = 0.65
_RIGHT: Final = 1.2
_BOTTOM: Final = 0.55
_ROW: Final = 1.35
_BETWEEN_ROWS: Final = 0.5
_BETWEEN_COLUMNS: Final = 1.6
_ABOVE_ROWS: Final = 0.55
"""Inches."""
