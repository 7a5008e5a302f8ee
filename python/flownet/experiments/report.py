"""The report of an experiment: one page that opens from disk; what was found, how sure it is, and how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..internal.pages import Page
from ..internal.units import format_number, format_seconds, format_value, heading, scale
from . import analysis, drawings
from .analysis import LEVEL, Latency, Point, Ratio, Summary
from .execute import Row
from .store import names_in, rows_of


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows.

    Parameters
    ----------
    said
        The experiment's description.
    rows
        Its runs, in the order in which they began.
    cells, ratios, latencies, knees
        What `analysis` makes of them; empty where it does not apply.
    base
        The value of the compared parameter that the others are divided by.
    """

    said: dict[str, Any]
    rows: Sequence[Row]
    cells: dict[str, dict[int, Summary]]
    ratios: Sequence[Ratio]
    latencies: Sequence[Latency]
    knees: Sequence[Point]
    base: str | None

    def unit(self, figure: str) -> str:
        """Say the unit of a figure."""
        unit: str = self.said["figures"][figure]["unit"]
        return unit

    def summary(self, figure: str) -> dict[int, Summary]:
        """Summaries of a figure by the index of their cell."""
        return self.cells.get(figure, {})


def report(folder: str | Path, experiment: str | None = None) -> list[Path]:
    """Write a page for each experiment of a folder: ``NAME.html`` beside the results.

    Parameters
    ----------
    folder
        What ``flownet experiment run --out`` was given, as this machine sees it.
    experiment
        Only this one. Default: all in the folder.

    Returns
    -------
    list of Path
        The pages.

    Raises
    ------
    ConfigError
        There is no such experiment in the folder.
    FlownetError
        A package that it needs is not installed.
    """
    path = Path(folder).absolute()
    pages = list[Path]()
    for name in names_in(path, experiment):
        pages.append(path / f"{name}.html")
        _page(_find(rows_of(path, name))).write(pages[-1])
    return pages


def _find(rows: Sequence[Row]) -> ReportData:
    said: dict[str, Any] = json.loads(rows[-1]["description"])
    varied = said["varied"]
    base = None
    ratios: list[Ratio] = []
    if said["compare"]:
        base = min(rows, key=lambda row: row["cell_index"])["parameters"][said["compare"]]
        ratios = analysis.ratios(rows, said["compare"], base, varied)
    knees = analysis.knees(rows, said["axis"], said["knee"], varied) if said["knee"] else []
    return ReportData(said, rows, analysis.cells(rows), ratios, analysis.latencies(rows), knees, base)


def _page(found: ReportData) -> Page:
    said = found.said
    page = Page(said["title"], f"flownet experiment {said['name']}: {_workload(found)}")
    page.tiles(_tiles(found))
    _figures(page, found)
    _compared(page, found)
    _knee(page, found)
    _latency(page, found)
    _failures(page, found)
    _order(page, found)
    _repeat(page, found)
    return page


def _workload(found: ReportData) -> str:
    varied = ", ".join(found.said["varied"])
    return f"the workload {found.said['workload']} by {varied}"


def _tiles(found: ReportData) -> list[tuple[str, str]]:
    said = found.said
    failed = sum(row["status"] == "failed" for row in found.rows)
    planned = len(said["cells"]) * said["repetitions"]
    tiles = [
        ("cells", str(len(said["cells"]))),
        ("runs of " + str(planned) + (f", {failed} failed" if failed else ""), str(len(found.rows))),
        ("in runs", format_seconds(sum(row["run_seconds"] for row in found.rows))),
    ]
    headline = said["shown"][0]
    summary = found.summary(headline)
    if summary:
        better = max if said["figures"][headline]["higher_is_better"] else min
        best = better(summary, key=lambda index: summary[index].median)
        value = format_value(summary[best].median, found.unit(headline))
        tiles.append((f"best {headline}: {said['labels'][best]}", value))
    return tiles


def _figures(page: Page, found: ReportData) -> None:
    said = found.said
    page.section(
        "What was measured",
        "Points are runs; marks and lines are medians of the runs of a cell, bars and brackets their "
        f"{LEVEL:.0%} bootstrap intervals. "
        f"{'; '.join(_meaning(found, name) for name in said['shown'])}.",
    )
    page.drawing(drawings.figures(said, found.rows, found.cells), "each figure by the parameter on the axis")
    shown = list(said["shown"])
    scales = {name: scale(_largest(found, name), found.unit(name)) for name in shown}
    summaries = {name: found.summary(name) for name in shown}
    rows = []
    for index, label in enumerate(said["labels"]):
        runs = max((summaries[name][index].runs for name in shown if index in summaries[name]), default=0)
        cells = [label, str(runs)]
        cells += [_summary(summaries[name].get(index), scales[name][0]) for name in shown]
        rows.append(cells)
    page.table(["cell", "runs", *(heading(name, scales[name][1]) for name in shown)], rows)


def _compared(page: Page, found: ReportData) -> None:
    if not found.ratios:
        return
    said = found.said
    compare = said["compare"]
    page.section(
        f"Beside {compare}={found.base}",
        f"Ratios of cells that differ in {compare} only, each repetition by itself: both sides ran within the same "
        "round, so what else happened on the machine met both. An interval that does not hold 1 is a difference.",
    )
    page.drawing(drawings.ratios(said, found.ratios), "the ratios of the table below, with their intervals")
    pairs = dict.fromkeys((ratio.cell_index, ratio.context, ratio.value) for ratio in found.ratios)
    summary = {(ratio.cell_index, ratio.figure): ratio.summary for ratio in found.ratios}
    rows = [
        [context or "all", f"{compare}={value}", *(_summary(summary.get((index, name)), 1) for name in said["shown"])]
        for index, context, value in pairs
    ]
    page.table(["where", "what", *(heading(name, "ratio") for name in said["shown"])], rows)


def _knee(page: Page, found: ReportData) -> None:
    if not found.knees:
        return
    throughput, latency = found.said["knee"]
    page.section(
        "Where the knee is",
        f"The knee is the point of most power, {throughput} by {latency} (Kleinrock): left of it more load costs "
        "little latency, right of it latency buys little throughput. Its row is marked.",
    )
    page.drawing(drawings.knees(found.said, found.knees), f"{latency} over {throughput}, with the knee of each curve")
    units = [found.unit(name) for name in (throughput, latency)]
    rows = [
        [point.cell, format_value(point.throughput, units[0]), format_value(point.latency, units[1])]
        for point in found.knees
    ]
    marked = [place for place, point in enumerate(found.knees) if point.is_knee]
    page.table(["cell", throughput, latency], rows, marked)


def _latency(page: Page, found: ReportData) -> None:
    if not found.latencies:
        return
    page.section(
        "Latency of all records",
        "The histograms of all runs of a cell, added up: every record counts once, so rare ones stay rare.",
    )
    page.drawing(drawings.latencies(found.latencies), "latency over ever rarer records, a curve for each cell")
    rows = []
    for latency in found.latencies:
        of = latency.percentiles
        times = (of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us)
        rows.append([latency.cell, f"{of.samples:,}", *(format_value(us, "us") for us in times)])
    page.table(["cell", "records", "p50", "p90", "p99", "p99.9", "slowest"], rows)


def _failures(page: Page, found: ReportData) -> None:
    failed = [row for row in found.rows if row["status"] == "failed"]
    if failed:
        page.section("What failed", f"{len(failed)} of {len(found.rows)} runs; they count nowhere above.")
        rows = [[row["cell"], str(row["repetition"] + 1), row["error"]] for row in failed]
        page.table(["cell", "repetition", "error"], rows)


def _order(page: Page, found: ReportData) -> None:
    if len(found.rows) < 3:
        return
    headline = found.said["shown"][0]
    page.section(
        "In the order of time",
        f"{headline} of each run by the median of its cell. A trend would mean that the machine changed while it ran; "
        "the order of the cells is random, so it would not favour any.",
    )
    page.drawing(drawings.order(headline, found.rows, found.summary(headline)), "each run over time")


def _repeat(page: Page, found: ReportData) -> None:
    page.section("To repeat it")
    last = found.rows[-1]
    hosts = sorted({_host(row["host"]) for row in found.rows})
    commits = sorted({row["git_commit"] for row in found.rows if row["git_commit"]})
    modes = sorted({row["mode"] for row in found.rows})
    first, end = (row["started_at"].astimezone() for row in (found.rows[0], last))
    facts = [
        ("hosts", "; ".join(hosts)),
        ("versions", ", ".join(f"{name} {version}" for name, version in last["versions"].items())),
        ("git commit", ", ".join(commits) or "not run from a source tree"),
        ("distributed", ", ".join(modes)),
        ("seed", f"{found.said['seed']}, {found.said['repetitions']} repetitions"),
        ("when", f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}"),
    ]
    page.terms(facts)
    page.code("\n".join(f"cell {number}: {cell}" for number, cell in enumerate(found.said["cells"], start=1)))


def _host(host: dict[str, str]) -> str:
    memory = f"{int(host['memory_mb']) / 1000:.0f} GB"
    return f"{host['name']}: {host['cores']} cores of {host['cpu']}, {memory}, {host['system']}"


def _meaning(found: ReportData, name: str) -> str:
    figure = found.said["figures"][name]
    unit = f" ({figure['unit']})" if figure["unit"] else ""
    return f"{name}{unit}: {figure['doc']}, {'higher' if figure['higher_is_better'] else 'lower'} is better"


def _largest(found: ReportData, name: str) -> float:
    return max((summary.median for summary in found.summary(name).values()), default=1.0)


def _summary(summary: Summary | None, factor: float) -> str:
    """Write the median and its interval; of one run there is none."""
    if summary is None:
        return "-"
    median = format_number(summary.median / factor)
    if summary.runs < 2:
        return median
    return f"{median} [{format_number(summary.low / factor)} to {format_number(summary.high / factor)}]"
