"""The report of an experiment: one page that opens from disk; what was found, how sure it is, and how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages import Page
from . import analysis, drawings
from .analysis import LEVEL
from .units import format_number, format_seconds, format_value, heading, scale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True)
class Found:
    """Everything that a report shows, out of Spark and into plain rows.

    Parameters
    ----------
    said
        The experiment's description.
    rows
        Its runs, in the order in which they ran.
    cells, ratios, latencies, knees
        What `analysis` makes of them; empty where it does not apply.
    base
        The value of the compared parameter that the others are divided by.
    """

    said: dict[str, Any]
    rows: Sequence[Row]
    cells: Sequence[Row]
    ratios: Sequence[Row]
    latencies: Sequence[Row]
    knees: Sequence[Row]
    base: str | None

    def unit(self, figure: str) -> str:
        """Say the unit of a figure."""
        unit: str = self.said["figures"][figure]["unit"]
        return unit

    def summary(self, figure: str) -> dict[int, Row]:
        """Summaries of a figure by the index of their cell."""
        return {row.cell_index: row for row in self.cells if row.figure == figure}


def report(spark: SparkSession, folder: str | Path, experiment: str | None = None) -> list[Path]:
    """Write a page for each experiment of a folder: ``NAME.html`` beside the results.

    Parameters
    ----------
    spark
        A session.
    folder
        What ``flownet experiment run --out`` was given.
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
    """
    rows = analysis.read(spark, folder, experiment)
    names = [row.experiment for row in rows.select("experiment").distinct().orderBy("experiment").collect()]
    pages = list[Path]()
    for name in names:
        own = rows.where(rows["experiment"] == name).cache()
        try:
            page = _page(_find(spark, own))
        finally:
            own.unpersist()
        pages.append(Path(folder).absolute() / f"{name}.html")
        page.write(pages[-1])
    return pages


def _find(spark: SparkSession, rows: DataFrame) -> Found:
    kept = rows.drop("histogram", "details").orderBy("started_at").collect()
    said: dict[str, Any] = json.loads(kept[-1].description)
    varied = said["varied"]
    base = None
    ratios: list[Row] = []
    if said["compare"]:
        firsts = sorted(kept, key=lambda row: row.cell_index)
        base = firsts[0].parameters[said["compare"]]
        ratios = analysis.ratios(spark, rows, said["compare"], base, varied).collect()
    knees: list[Row] = []
    if said["knee"]:
        knees = analysis.knees(spark, rows, said["axis"], said["knee"], varied).collect()
    has_latencies = not rows.where("histogram IS NOT NULL").isEmpty()
    latencies = analysis.latencies(spark, rows).collect() if has_latencies else []
    return Found(said, kept, analysis.cells(spark, rows).collect(), ratios, latencies, knees, base)


def _page(found: Found) -> Page:
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


def _workload(found: Found) -> str:
    varied = ", ".join(found.said["varied"])
    return f"the workload {found.said['workload']} by {varied}"


def _tiles(found: Found) -> list[tuple[str, str]]:
    said = found.said
    failed = sum(row.status == "failed" for row in found.rows)
    planned = len(said["cells"]) * said["repetitions"]
    tiles = [
        ("cells", str(len(said["cells"]))),
        ("runs of " + str(planned) + (f", {failed} failed" if failed else ""), str(len(found.rows))),
        ("in runs", format_seconds(sum(row.run_seconds for row in found.rows))),
    ]
    headline = said["shown"][0]
    summary = found.summary(headline)
    if summary:
        better = max if said["figures"][headline]["higher_is_better"] else min
        best = better(summary.values(), key=lambda row: row.median)
        tiles.append((f"best {headline}: {best.cell}", format_value(best.median, found.unit(headline))))
    return tiles


def _figures(page: Page, found: Found) -> None:
    said = found.said
    page.section(
        "What was measured",
        "Points are runs; marks and lines are medians of the runs of a cell, bars and brackets their "
        f"{LEVEL:.0%} bootstrap intervals. "
        f"{'; '.join(_meaning(found, name) for name in said['shown'])}.",
    )
    page.drawing(drawings.figures(found.said, found.rows, found.cells))
    shown = list(said["shown"])
    scales = {name: scale(_largest(found, name), found.unit(name)) for name in shown}
    summaries = {name: found.summary(name) for name in shown}
    rows = []
    for index, label in enumerate(said["labels"]):
        runs = max((summaries[name][index].runs for name in shown if index in summaries[name]), default=0)
        cells = [label, str(runs)]
        for name in shown:
            row = summaries[name].get(index)
            cells.append(_summary(row, scales[name][0]))
        rows.append(cells)
    page.table(["cell", "runs", *(heading(name, scales[name][1]) for name in shown)], rows)


def _compared(page: Page, found: Found) -> None:
    if not found.ratios:
        return
    said = found.said
    compare = said["compare"]
    page.section(
        f"Beside {compare}={found.base}",
        f"Ratios of cells that differ in {compare} only, each repetition by itself: both sides ran within the same "
        "round, so what else happened on the machine met both. An interval that does not hold 1 is a difference.",
    )
    page.drawing(drawings.ratios(said, found.ratios))
    pairs = dict.fromkeys((row.cell_index, row.context, row.value) for row in found.ratios)
    ratio = {(row.cell_index, row.figure): row for row in found.ratios}
    rows = [
        [context or "all", f"{compare}={value}", *(_summary(ratio.get((index, name)), 1) for name in said["shown"])]
        for index, context, value in pairs
    ]
    page.table(["where", "what", *(heading(name, "ratio") for name in said["shown"])], rows)


def _knee(page: Page, found: Found) -> None:
    if not found.knees:
        return
    throughput, latency = found.said["knee"]
    page.section(
        "Where the knee is",
        f"The knee is the point of most power, {throughput} by {latency} (Kleinrock): left of it more load costs "
        "little latency, right of it latency buys little throughput. Its row is marked.",
    )
    page.drawing(drawings.knees(found.said, found.knees))
    units = [found.unit(name) for name in (throughput, latency)]
    rows = [
        [row.cell, format_value(row.throughput, units[0]), format_value(row.latency, units[1])] for row in found.knees
    ]
    marked = [place for place, row in enumerate(found.knees) if row.is_knee]
    page.table(["cell", throughput, latency], rows, marked)


def _latency(page: Page, found: Found) -> None:
    if not found.latencies:
        return
    page.section(
        "Latency of all records",
        "The histograms of all runs of a cell, added up: every record counts once, so rare ones stay rare.",
    )
    page.drawing(drawings.latencies(found.latencies))
    names = ("p50_us", "p90_us", "p99_us", "p999_us", "max_us")
    rows = [
        [row.cell, f"{row.samples:,}", *(format_value(row[name], "us") for name in names)] for row in found.latencies
    ]
    page.table(["cell", "records", "p50", "p90", "p99", "p99.9", "slowest"], rows)


def _failures(page: Page, found: Found) -> None:
    failed = [row for row in found.rows if row.status == "failed"]
    if failed:
        page.section("What failed", f"{len(failed)} of {len(found.rows)} runs; they count nowhere above.")
        page.table(["cell", "repetition", "error"], [[row.cell, str(row.repetition + 1), row.error] for row in failed])


def _order(page: Page, found: Found) -> None:
    if len(found.rows) < 3:
        return
    headline = found.said["shown"][0]
    page.section(
        "In the order of time",
        f"{headline} of each run by the median of its cell. A trend would mean that the machine changed while it ran; "
        "the order of the cells is random, so it would not favour any.",
    )
    page.drawing(drawings.order(headline, found.rows, found.summary(headline)))


def _repeat(page: Page, found: Found) -> None:
    page.section("To repeat it")
    last = found.rows[-1]
    hosts = sorted({_host(row.host) for row in found.rows})
    commits = sorted({row.git_commit for row in found.rows if row.git_commit})
    modes = sorted({row.mode for row in found.rows})
    when = f"{found.rows[0].started_at:%Y-%m-%d %H:%M} to {last.started_at:%Y-%m-%d %H:%M}"
    facts = [
        ("hosts", "; ".join(hosts)),
        ("versions", ", ".join(f"{name} {version}" for name, version in last.versions.items())),
        ("git commit", ", ".join(commits) or "not run from a source tree"),
        ("distributed", ", ".join(modes)),
        ("seed", f"{found.said['seed']}, {found.said['repetitions']} repetitions"),
        ("when", when),
    ]
    page.table(["what", "which"], facts)
    page.code("\n".join(f"cell {number}: {cell}" for number, cell in enumerate(found.said["cells"], start=1)))


def _host(host: dict[str, str]) -> str:
    memory = f"{int(host['memory_mb']) / 1000:.0f} GB"
    return f"{host['name']}: {host['cores']} cores of {host['cpu']}, {memory}, {host['system']}"


def _meaning(found: Found, name: str) -> str:
    figure = found.said["figures"][name]
    unit = f" ({figure['unit']})" if figure["unit"] else ""
    return f"{name}{unit}: {figure['doc']}, {'higher' if figure['higher_is_better'] else 'lower'} is better"


def _largest(found: Found, name: str) -> float:
    return max((row.median for row in found.summary(name).values()), default=1.0)


def _summary(row: Row | None, factor: float) -> str:
    """Write the median and its interval; of one run there is none."""
    if row is None:
        return "-"
    median = format_number(row.median / factor)
    if row.runs < 2:
        return median
    return f"{median} [{format_number(row.low / factor)} to {format_number(row.high / factor)}]"
