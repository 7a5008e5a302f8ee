"""The charts of the benchmarks are drawn from figures that the engineering log has."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[3] / "docs"
CHARTS = DOCS / "charts"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", CHARTS / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_charts_are_those_that_the_script_draws() -> None:
    drawn = script().charts()
    assert {path.name: path.read_text() for path in CHARTS.glob("*.svg")} == drawn, "run docs/charts/draw.py"


def test_the_page_shows_each_chart_with_its_title() -> None:
    shown = dict(re.findall(r"!\[(.+?)\]\(charts/(.+?)\.svg\)", (DOCS / "benchmarks.md").read_text()))
    figures = tomllib.loads((CHARTS / "figures.toml").read_text())
    assert shown == {chart["title"]: name for name, chart in figures.items()}


def test_the_figures_are_in_the_engineering_log() -> None:
    log = (DOCS / "internals" / "engineering-log.md").read_text()
    for chart in tomllib.loads((CHARTS / "figures.toml").read_text()).values():
        for bar in chart["bars"]:
            # A peer that others are compared with has no figure of its own.
            found = re.search(rf"(?<![\d.]){re.escape(str(bar['value']))}(?![\d.]\d)", log)
            assert bar["value"] == 1 or found, bar
