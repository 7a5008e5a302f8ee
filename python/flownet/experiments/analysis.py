"""What the rows of an experiment say, in Spark SQL.

Medians come with percentile bootstrap intervals: a cell's runs are drawn with replacement, a thousand times; the middle
95 % of the medians of these draws is the interval. Draws are made by a hash, not by a generator, so that the same rows
always give the same interval, whatever the partitions. With few runs an interval is as wide as the runs lie apart.

Cells are compared repetition by repetition: both sides of a ratio ran within minutes of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import ConfigError
from . import histograms
from .store import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESAMPLES: Final = 1000
"""Draws of the bootstrap."""

LEVEL: Final = 0.95
"""Share of the draws whose medians lie inside an interval."""


def load(spark: SparkSession, folder: str | Path, experiment: str | None = None) -> DataFrame:
    """Read the rows of a folder of results: one a run, tidy.

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
    DataFrame
        ``experiment, workload, cell, repetition, status, error``; a column for each parameter, numbers with their unit
        in the name (``buffer_timeout_us``, ``segment_size_bytes``); a column for each figure; then what is needed to
        repeat the run: ``seed, git_commit, versions, host, started_at, description`` and the rest. A parameter or a
        figure that an experiment does not have is null. What would be called as another column gets ``parameter_`` or
        ``figure_`` in front.

    Raises
    ------
    ConfigError
        There is no such experiment in the folder.
    """
    rows = read(spark, folder, experiment)
    keys = [
        row.found
        for row in spark.sql(
            """
            SELECT DISTINCT explode(concat(
              transform(map_keys(numbers), key -> struct('numbers' AS map, key)),
              transform(map_keys(parameters), key -> struct('parameters' AS map, key)),
              transform(map_keys(figures), key -> struct('figures' AS map, key)))) AS found
            FROM {rows} ORDER BY found.map, found.key
            """,
            rows=rows,
        ).collect()
    ]
    numbers = {key.key for key in keys if key.map == "numbers"}
    taken = set(COLUMNS)
    wide = list[str]()
    for prefix, map_name in (("parameter", "numbers"), ("parameter", "parameters"), ("figure", "figures")):
        for key in (key.key for key in keys if key.map == map_name):
            if map_name == "parameters" and numbers & {key, f"{key}_us", f"{key}_bytes"}:
                continue
            name = f"{prefix}_{key}" if key in taken else key
            taken.add(name)
            wide.append(f"{map_name}['{key}'] AS `{name}`")
    first = ["experiment", "workload", "cell", "repetition", "status", "error"]
    rest = [name for name in COLUMNS if name not in {*first, *_MAPS}]
    return rows.selectExpr(*first, *wide, *rest)


def read(spark: SparkSession, folder: str | Path, experiment: str | None = None) -> DataFrame:
    """Read the rows as they are stored, with parameters and figures as maps."""
    path = Path(folder).absolute()
    names = sorted(part.name.partition("=")[2] for part in path.glob("experiment=*"))
    if not names or experiment not in (None, *names):
        there = f"; there are: {', '.join(names)}" if names else ""
        raise ConfigError(f"{path} has no results{f' of {experiment!r}' if experiment else ''}{there}")
    schema = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    rows = spark.read.schema(schema).parquet(str(path))
    return rows if experiment is None else rows.where(rows["experiment"] == experiment)


def cells(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Summarise each figure of each cell.

    Returns
    -------
    DataFrame
        ``cell_index, cell, figure, runs, median, low, high, least, greatest``, by cell and figure.
    """
    return spark.sql(
        f"""
        WITH grouped AS (
          SELECT cell_index, cell, figure, array_sort(collect_list(value)) AS found
          FROM (SELECT cell_index, cell, explode(figures) AS (figure, value) FROM {{rows}} WHERE status = 'ok')
          GROUP BY cell_index, cell, figure)
        SELECT cell_index, cell, figure, {_SUMMARY} FROM {_RESAMPLED} ORDER BY cell_index, figure
        """,
        rows=rows,
    )


def ratios(spark: SparkSession, rows: DataFrame, compare: str, against: str, varied: Sequence[str]) -> DataFrame:
    """Compare cells that differ in one parameter only, each repetition by itself.

    Parameters
    ----------
    spark
        A session.
    rows
        Of one experiment, as `read` returns them.
    compare
        The parameter.
    against
        Its value, as written, that the others are divided by.
    varied
        Parameters that are not the same in all cells.

    Returns
    -------
    DataFrame
        ``cell_index, context, value, figure, runs, median, low, high, least, greatest`` of the ratio: ``context`` is
        what both sides share.
    """
    return spark.sql(
        f"""
        WITH sides AS (
          SELECT cell_index, repetition, parameters[:compare] AS value, figure, figure_value,
                 {_labelled("entry.key <> :compare")} AS context
          FROM (SELECT *, explode(figures) AS (figure, figure_value) FROM {{rows}} WHERE status = 'ok')),
        grouped AS (
          SELECT other.cell_index, context, other.value, figure,
                 array_sort(collect_list(other.figure_value / base.figure_value)) AS found
          FROM sides AS other JOIN sides AS base USING (context, repetition, figure)
          WHERE base.value = :against AND other.value <> :against AND base.figure_value <> 0
          GROUP BY other.cell_index, context, other.value, figure)
        SELECT cell_index, context, value, figure, {_SUMMARY} FROM {_RESAMPLED} ORDER BY cell_index, figure
        """,
        args={"compare": compare, "against": against, "varied": ",".join(varied)},
        rows=rows,
    )


def latencies(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Merge the histograms of each cell's runs and read the percentiles of all its records.

    Returns
    -------
    DataFrame
        ``cell_index, cell, runs, samples, p50_us, p90_us, p99_us, p999_us, max_us, curve``; ``curve`` is a list of
        ``(quantile, us)`` from the median to the slowest record.
    """
    spark.udf.register("flownet_merged", histograms.merged, histograms.SCHEMA)
    return spark.sql(
        """
        SELECT cell_index, cell, runs, latency.* FROM (
          SELECT cell_index, cell, count(*) AS runs, flownet_merged(collect_list(histogram)) AS latency
          FROM {rows} WHERE status = 'ok' AND histogram IS NOT NULL GROUP BY cell_index, cell)
        ORDER BY cell_index
        """,
        rows=rows,
    )


def knees(spark: SparkSession, rows: DataFrame, axis: str, figures: Sequence[str], varied: Sequence[str]) -> DataFrame:
    """Find the knee of each throughput/latency curve: the point of most *power*, throughput by latency (Kleinrock).

    Left of the knee, more load costs little latency; right of it, latency buys little throughput.

    Parameters
    ----------
    spark
        A session.
    rows
        Of one experiment, as `read` returns them.
    axis
        The parameter along a curve; cells that differ in others are on other curves.
    figures
        A throughput and a latency.
    varied
        Parameters that are not the same in all cells.

    Returns
    -------
    DataFrame
        ``series, cell_index, cell, throughput, latency, is_knee``, along each curve by throughput; medians.
    """
    return spark.sql(
        f"""
        WITH points AS (
          SELECT {_labelled("entry.key <> :axis")} AS series, cell_index, cell,
                 median(figures[:throughput]) AS throughput, median(figures[:latency]) AS latency
          FROM {{rows}} WHERE status = 'ok' GROUP BY ALL)
        SELECT *, row_number() OVER (PARTITION BY series ORDER BY throughput / latency DESC, throughput) = 1 AS is_knee
        FROM points WHERE latency > 0 ORDER BY series, throughput
        """,
        args={"axis": axis, "throughput": figures[0], "latency": figures[1], "varied": ",".join(varied)},
        rows=rows,
    )


def _labelled(which: str) -> str:
    """Write in SQL the varied parameters of a row for which ``which`` holds, as text."""
    return f"""
        array_join(transform(filter(map_entries(parameters),
          entry -> {which} AND array_contains(split(:varied, ','), entry.key)),
          entry -> concat(entry.key, '=', entry.value)), ', ')
    """


def _middle(values: str) -> str:
    """Write in SQL the median of an ascending array; of an even number of values, the middle of those two."""
    # A lambda over an array of one is SQL's way to give a value a name.
    return f"transform(array({values}), a -> (a[(size(a) - 1) div 2] + a[size(a) div 2]) / 2)[0]"


_MAPS: Final = ("parameters", "numbers", "figures")
_DRAWN: Final = "array_sort(transform(sequence(1, size(found)), i -> found[pmod(xxhash64(draw, i), size(found))]))"
_RESAMPLED: Final = f"""
    (SELECT *, array_sort(transform(sequence(1, {RESAMPLES}), draw -> {_middle(_DRAWN)})) AS medians FROM grouped)
"""
_SUMMARY: Final = f"""
    size(found) AS runs, {_middle("found")} AS median,
    medians[{round(RESAMPLES * (1 - LEVEL) / 2)}] AS low,
    medians[{RESAMPLES - 1 - round(RESAMPLES * (1 - LEVEL) / 2)}] AS high,
    found[0] AS least, found[size(found) - 1] AS greatest
"""
