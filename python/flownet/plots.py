"""How drawings look, on pages and in files: matplotlib with the colours, type and lines of flownet.

matplotlib belongs to the extras; it is loaded when something is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#4d4d4d")
"""Told apart by everybody (after Okabe and Ito), in the order of use."""

MARKS: Final = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Marks of points, in the order of use: colours are never the only difference."""


@contextmanager
def style() -> Iterator[None]:
    """Draw in flownet's style inside the block."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def svg(figure: Figure) -> str:
    """Write a drawing as an ``<svg>`` element whose text stays text."""
    written = io.StringIO()
    figure.savefig(written, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = written.getvalue()
    element = text[text.index("<svg") :]
    # What only a file of its own needs: the metadata names addresses, which a page that fetches nothing has no use for.
    return re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL).strip()


_STYLE: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#8a939c",
    "axes.grid": True,
    "axes.labelcolor": "#1b1f24",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "grid.color": "#e6e9ed",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "svg.fonttype": "none",
    "svg.hashsalt": "flownet",
    "xtick.color": "#5b6570",
    "ytick.color": "#5b6570",
}
