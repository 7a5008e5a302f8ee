"""Plots: the style of all pictures, and the pieces they are made of. The one module that imports matplotlib.

Colours are those of all drawings, which people with any kind of colour vision can tell apart; each also has a label
where the line ends, so that no picture needs its colours.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from textwrap import fill
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..plots import COLOURS
from .scenario import Result
from .trace import Series, Trace

BLUE, RED, GREEN, PURPLE, ORANGE, SKY = COLOURS[:6]
GREY: Final = "#6b6b6b"

STYLE: Final[Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#b0b0b0",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.8,
    "xtick.color": "#b0b0b0",
    "ytick.color": "#b0b0b0",
    "xtick.labelcolor": "#333333",
    "ytick.labelcolor": "#333333",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "svg.fonttype": "path",
    "figure.dpi": 100,
}


def grid(
    results: Sequence[Result], title: str, subtitle: str, heads: Sequence[str], row_inches: float = 1.35
) -> tuple[Figure, list[list[Axes]]]:
    """Begin a picture with a row for each control and a column for each quantity, over seconds.

    Above each row stands the control and its verdict.
    """
    with mpl.rc_context(STYLE):
        top, bottom, gap = 1.45, 0.55, 0.5
        width, height = _size(top + bottom + len(results) * (row_inches + gap) - gap + 0.1)
        row_inches = (height - 0.1 - top - bottom + gap) / len(results) - gap
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        _titles(figure, title, subtitle)
        panels = figure.subplots(len(results), len(heads), sharex=True, sharey="col", squeeze=False)
        figure.subplots_adjust(
            left=0.075,
            right=0.9,
            top=1 - top / height,
            bottom=bottom / height,
            hspace=gap / row_inches,
            wspace=0.32,
        )
        for result, row in zip(results, panels, strict=True):
            box = row[0].get_position()
            above = box.y1 + 0.09 / height
            name = figure.text(box.x0, above, result.control, weight="bold", size=10.5, va="bottom")
            name_width = name.get_window_extent().width / figure.dpi / width
            figure.text(box.x0 + name_width + 0.012, above, result.verdict, color=GREY, size=9.5, va="bottom")
            for axes in row:
                axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
                axes.margins(x=0)
        for axes, head in zip(panels[0], heads, strict=True):
            axes.set_title(head, loc="left", size=9, color=GREY, pad=24)
        for axes in panels[-1]:
            axes.set_xlabel("seconds", color=GREY)
    return figure, [list(row) for row in panels]


def single(title: str, subtitle: str, height: float = 4.4) -> tuple[Figure, Axes]:
    """Begin a picture of one panel."""
    with mpl.rc_context(STYLE):
        width, height = _size(height)
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        _titles(figure, title, subtitle)
        axes = figure.add_subplot()
        figure.subplots_adjust(left=0.09, right=0.95, top=1 - 1.05 / height, bottom=0.6 / height)
    return figure, axes


def speeds(axes: Axes, trace: Trace, named: Sequence[tuple[str, Series, str]], window: float) -> None:
    """Draw how fast bytes went, in MB/s: (name, bytes so far, colour). What was dropped joins them, if anything was."""
    dropped = [("dropped", trace.drops(), RED)] if trace.dropped_bytes else []
    curves(axes, trace, [(name, trace.rate(done, window) / 1e6, colour) for name, done, colour in (*named, *dropped)])


def in_flight(axes: Axes, trace: Trace, bound: float, label: str) -> None:
    """Draw what is in flight, in MB, and the bound it should keep."""
    curves(axes, trace, [("in flight", trace.in_flight() / 1e6, BLUE)], filled=True)
    level(axes, bound / 1e6, label)


def curves(axes: Axes, trace: Trace, named: Sequence[tuple[str, Series, str]], *, filled: bool = False) -> None:
    """Draw quantities over time, while the sources go on: (name, values, colour), the name where the line ends."""
    shown = trace.seconds <= trace.until
    seconds = trace.seconds[shown]
    for name, values, colour in named:
        axes.plot(seconds, values[shown], color=colour, linewidth=1.5, solid_capstyle="round")
        if filled:
            axes.fill_between(seconds, values[shown], color=colour, alpha=0.2, linewidth=0)
        end = float(seconds[-1]) / trace.until
        _ENDS.setdefault(axes, []).append((end if end < 0.95 else 1.0, float(values[shown][-1]), name, colour))
    axes.set_xlim(0, trace.until)
    highest = max(float(values[shown].max()) for _, values, _ in named)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1.18 * highest, 1e-3))


def level(axes: Axes, value: float, label: str) -> None:
    """Mark a bound, which lies within the picture."""
    axes.set_ylim(top=max(axes.get_ylim()[1], value * 1.15))
    axes.axhline(value, color="#333333", linewidth=0.9, linestyle=(0, (4, 3)))
    _note(axes, label, (0, value), ("axes fraction", "data"), (3, 2), "#333333")


def moment(axes: Axes, seconds: float, label: str = "") -> None:
    """Mark a moment."""
    axes.axvline(seconds, color="#8a8a8a", linewidth=0.9, linestyle=(0, (1, 2)))
    _note(axes, label, (seconds, 1), ("data", "axes fraction"), (3, -9), GREY)


def phase(axes: Axes, start: float, end: float, label: str = "") -> None:
    """Shade a stretch of time."""
    axes.axvspan(start, end, color="#f3eee0", zorder=0, linewidth=0)
    _note(axes, label, (start, 1), ("data", "axes fraction"), (3, -9), GREY)


@contextmanager
def sized(size: tuple[float, float] | None) -> Iterator[None]:
    """Draw the pictures of the block in this size, in inches; None: in the size that suits them."""
    before = _CHOSEN.set(size)
    try:
        yield
    finally:
        _CHOSEN.reset(before)


def written(figure: Figure, kind: str, title: str | None = None) -> bytes:
    """Write a finished picture.

    Parameters
    ----------
    figure
        As the functions above make it.
    kind
        ``png``, ``pdf`` or ``svg``, whose text is outlines so that it looks alike everywhere.
    title
        In place of what the picture says of itself; empty for a picture without, as where a caption stands below it.
    """
    _name_ends(figure)
    out = io.BytesIO()
    crop = None
    if title is not None:
        headline, below = figure.texts[:2]
        headline.set_text(title)
        below.set_visible(False)
        # What is not there takes no room.
        crop = "tight"
    stamps = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with mpl.rc_context(STYLE):
        figure.savefig(out, format=kind, dpi=160, facecolor="white", bbox_inches=crop, metadata=stamps.get(kind))
    return out.getvalue()


def _size(height: float) -> tuple[float, float]:
    return _CHOSEN.get() or (WIDTH_INCHES, height)


def _titles(figure: Figure, title: str, subtitle: str) -> None:
    width, height = figure.get_size_inches()
    share = width / WIDTH_INCHES
    title, subtitle = fill(title, max(20, int(80 * share))), fill(subtitle, max(30, int(128 * share)))
    below = 0.3 + 0.22 * (title.count("\n") + 1)
    figure.text(0.02, 1 - 0.18 / height, title, size=12.5, weight="bold", va="top", linespacing=1.15)
    figure.text(0.02, 1 - below / height, subtitle, size=8.5, color=GREY, va="top")


def _note(
    axes: Axes, text: str, place: tuple[float, float], coordinates: Any, offset: tuple[float, float], colour: str
) -> None:
    at: Any = {"xycoords": coordinates, "textcoords": "offset points", "size": 7.5, "bbox": _PAPER}
    axes.annotate(text, place, offset, color=colour, **at)


def _name_ends(figure: Figure) -> None:
    """Write the names at the ends of the curves, apart from each other; called when all scales are settled."""
    for axes in figure.axes:
        ends = sorted(_ENDS.pop(axes, []), key=lambda end: end[1])
        height = axes.get_window_extent().height / figure.dpi * 72
        bottom, top = axes.get_ylim()
        places = _apart([(value - bottom) / (top - bottom) * height for _, value, _, _ in ends])
        for place, (across, _, name, colour) in zip(places, ends, strict=True):
            at: Any = {
                "xycoords": "axes fraction",
                "textcoords": "offset points",
                "size": 8,
                "va": "center",
                "bbox": _PAPER,
            }
            axes.annotate(name, (across, 0), (4, place), color=colour, **at)


def _apart(places: list[float]) -> list[float]:
    """Move labels up and down, as little as it takes for none to cover another; ``places`` in order."""
    groups: list[tuple[float, int]] = []  # Middle and number of labels that stand close together.
    for place in places:
        middle, count = place, 1
        while groups and middle - groups[-1][0] < (count + groups[-1][1]) / 2 * _LABEL_POINTS:
            other, others = groups.pop()
            middle, count = (middle * count + other * others) / (count + others), count + others
        groups.append((middle, count))
    return [
        middle + (position - (count - 1) / 2) * _LABEL_POINTS for middle, count in groups for position in range(count)
    ]


_ENDS: Final[dict[Axes, list[tuple[float, float, str, str]]]] = {}
"""Place along the axis, value, name and colour of each curve of pictures that are not finished."""
_PAPER: Final = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.6}
"""Behind labels, so that lines which pass there do not cross them."""
_CHOSEN: Final[ContextVar[tuple[float, float] | None]] = ContextVar("size", default=None)
_LABEL_POINTS: Final = 10.0
WIDTH_INCHES: Final = 9.2
