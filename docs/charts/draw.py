"""Draws the charts of docs/benchmarks.md from figures.toml: `python docs/charts/draw.py`."""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
WIDTH = 730
NAMES_WIDTH = 220
VALUES_WIDTH = 60
ROW_HEIGHT = 30
BAR_HEIGHT = 18
LEAST_BAR = 2
STYLE = """text{font:14px system-ui,sans-serif;fill:#222}.title{font-weight:600}.bar{fill:#8a93a5}.ours{fill:#2f6fd0}
@media (prefers-color-scheme:dark){text{fill:#e8eaee}.bar{fill:#a3abb8}.ours{fill:#5b93ea}}"""


def drawn(chart: dict[str, Any]) -> str:
    """Return a chart of horizontal bars on one linear scale as SVG."""
    bars: list[dict[str, Any]] = chart["bars"]
    title = escape(chart["title"])
    height = ROW_HEIGHT * (len(bars) + 1) + 10
    scale = (WIDTH - NAMES_WIDTH - VALUES_WIDTH) / max(bar["value"] for bar in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<text x="0" y="18" class="title">{title}</text>',
    ]
    for number, bar in enumerate(bars, start=1):
        top = ROW_HEIGHT * number + 4
        width = max(bar["value"] * scale, LEAST_BAR)
        kind = "ours" if bar.get("ours") else "bar"
        lines += [
            f'<text x="{NAMES_WIDTH - 10}" y="{top + 14}" text-anchor="end">{escape(bar["name"])}</text>',
            f'<rect class="{kind}" x="{NAMES_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>',
            f'<text x="{NAMES_WIDTH + width + 8:.1f}" y="{top + 14}">{bar["value"]}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def charts() -> dict[str, str]:
    """Return the SVG of each chart by its file name."""
    figures = tomllib.loads((FOLDER / "figures.toml").read_text())
    return {f"{name}.svg": drawn(chart) for name, chart in figures.items()}


def main() -> None:
    """Write all charts."""
    for name, svg in charts().items():
        (FOLDER / name).write_text(svg)


if __name__ == "__main__":
    main()
