"""How drawings look, on pages and in files: matplotlib with the colours, type and lines of flownet.

matplotlib belongs to the extras; it is loaded when something is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from .extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d")
"""Told apart by everybody (after Okabe and Ito), in the order of use."""

BLUE, RED, GREEN, PURPLE, ORANGE, SKY = COLOURS[:6]
INK: Final = "#1b1f24"
GREY: Final = "#5b6570"
"""What is said beside the matter."""
LINE: Final = "#8a939c"
"""Lines to compare with."""

MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Marks of points, in the order of use: colours are never the only difference."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in flownet's style inside the block."""
    with need("matplotlib", "drawing").rc_context(_STYLE):
        yield


def figure(width: float, height: float, layout: str = "constrained") -> Figure:
    """Begin a drawing of that many inches; in the block of `style`.

    Parameters
    ----------
    width, height
        Its size.
    layout
        Who places its parts: ``constrained`` is matplotlib, ``none`` whoever draws.
    """
    canvas = need("matplotlib.backends.backend_agg", "drawing").FigureCanvasAgg
    begun: Figure = need("matplotlib.figure", "drawing").Figure(figsize=(width, height), layout=layout)
    canvas(begun)
    return begun


def logarithmic(panel: Axes, axis: Axis) -> None:
    """Set steps of 1, 2 and 5, written as plain numbers, whether there are many decades or less than one."""
    ticker = need("matplotlib.ticker", "drawing")
    (panel.set_xscale if axis is panel.xaxis else panel.set_yscale)("log")
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=9))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def element(figure: Figure) -> str:
    """Write a drawing as an ``<svg>`` element for a page: its text stays text, to be found and copied."""
    text = _saved(figure, "svg", "none").decode()
    # What only a file of its own needs: the metadata names addresses, which a page that fetches nothing has no use for.
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL).strip()


def written(figure: Figure, kind: str, *, crop: bool = False) -> bytes:
    """Write a drawing as a file.

    Parameters
    ----------
    figure
        The drawing.
    kind
        ``png``, ``pdf`` or ``svg``, whose text is outlines, so that it looks alike everywhere.
    crop
        Whether to cut off what is empty around it.
    """
    return _saved(figure, kind, "path", crop)


def _saved(figure: Figure, kind: str, text: str, crop: bool = True) -> bytes:
    out = io.BytesIO()
    # The same drawing gives the same file.
    stamps = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with style(), need("matplotlib", "drawing").rc_context({"svg.fonttype": text}):
        figure.savefig(out, format=kind, dpi=160, bbox_inches="tight" if crop else None, metadata=stamps.get(kind))
    return out.getvalue()


_STYLE: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.grid": True,
    "axes.labelcolor": GREY,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 9.5,
    "grid.color": "#e6e9ed",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 5,
    "svg.hashsalt": "flownet",
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.major.pad": 5,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.color": GREY,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}
