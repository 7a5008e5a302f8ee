"""The rows of a folder of results as a DataFrame of Spark, tidy: a column for each parameter and each figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..internal.parameter import columns_of
from .store import COLUMNS, names_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    path = Path(folder).absolute()
    names_in(path, experiment)
    schema = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    rows = spark.read.schema(schema).parquet(str(path))
    return _wide(spark, rows if experiment is None else rows.where(rows["experiment"] == experiment))


def _wide(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Give each key of the maps a column of its own."""
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
            if map_name == "parameters" and numbers & columns_of(key):
                continue
            name = f"{prefix}_{key}" if key in taken else key
            taken.add(name)
            wide.append(f"{map_name}['{key}'] AS `{name}`")
    first = ["experiment", "workload", "cell", "repetition", "status", "error"]
    rest = [name for name in COLUMNS if name not in {*first, *_MAPS}]
    return rows.selectExpr(*first, *wide, *rest)


_MAPS: Final = ("parameters", "numbers", "figures")
