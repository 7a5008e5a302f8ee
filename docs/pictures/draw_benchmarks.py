"""Draws the chart of the README: ``python docs/pictures/draw_benchmarks.py`` writes ``throughput.svg`` beside itself.

The figures are those of the pages about performance. Each has the words by which a test finds it there: see
tests/python/docs/test_pictures.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bar:
    """One system's figure, in millions a second."""

    system: str
    millions: float
    source: str
    """Words of the documentation that have the figure."""


PANELS = {
    "Python functions: map, key_by, reduce (M records/s)": [
        Bar("flownet", 8.3, "8.3 M/s, 70 MB"),
        Bar("Bytewax", 0.85, "two processes 0.85 M/s"),
        Bar("PyFlink", 0.048, "PyFlink 0.016 to 0.048 M/s"),
    ],
    "Rows in memory: sums by key and window (M rows/s)": [
        Bar("flownet", 198, "198 [152-215] M rows/s"),
        Bar("Flink SQL", 3.9, "Flink SQL (3.9 [3.3-4.5]"),
    ],
    "Parquet to Parquet: sums by key and window (M rows/s)": [
        Bar("flownet", 31, "31 [27-34] M rows/s, 0.62 [0.53-0.69] of the speed of a lazy frame of polars"),
        Bar("polars", 50, "31 [27-34] M rows/s, 0.62 [0.53-0.69] of the speed of a lazy frame of polars"),
    ],
}
"""Each group of bars. The figure of polars is computed: 31 / 0.62."""

TITLE = "Throughput of flownet, Bytewax, PyFlink, Flink SQL and polars on two cores"
STYLE = """
text{font:14px system-ui,sans-serif;fill:#222}.head{font-weight:600}.own{fill:#2f6fd0}.other{fill:#8a93a5}
@media (prefers-color-scheme:dark){text{fill:#e8eaee}}
"""
WIDTH, LEFT, LONGEST, ROW, HEAD = 730, 100, 540, 24, 34


def chart() -> str:
    """Draw all groups below each other. In each, the longest bar fills the width."""
    shapes, y = [], 0
    for title, bars in PANELS.items():
        y += HEAD
        shapes.append(f'<text class="head" x="10" y="{y - 10}">{title}</text>')
        most = max(bar.millions for bar in bars)
        for bar in bars:
            css = "own" if bar.system == "flownet" else "other"
            width = max(LONGEST * bar.millions / most, 1.5)
            shapes.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{bar.system}</text>')
            shapes.append(f'<rect class="{css}" x="{LEFT}" y="{y + 2}" width="{width:.1f}" height="{ROW - 6}" rx="2"/>')
            shapes.append(f'<text x="{LEFT + width + 8:.1f}" y="{y + 15}">{bar.millions:g}</text>')
            y += ROW
        y += 8
    size = f'viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{TITLE}">'
    return "\n".join([head, f"<title>{TITLE}</title>", f"<style>{STYLE}</style>", *shapes, "</svg>", ""])


if __name__ == "__main__":
    (Path(__file__).parent / "throughput.svg").write_text(chart(), encoding="utf-8")
