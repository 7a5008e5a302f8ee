"""`first` and `last` without event time, over rows of several subtasks: a warning, as results depend on timing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import flownet as fn
from flownet import errors

TABLE = pa.table({"k": [1, 2, 1, 2], "v": [1, 2, 3, 4], "ms": [10, 20, 30, 40]})


def files(env: fn.Environment, folder: Path) -> Any:
    for part in range(2):
        parquet.write_table(TABLE, folder / f"part-{part}.parquet")
    return env.read_parquet(str(folder / "*.parquet"))


def timed(env: fn.Environment, folder: Path) -> Any:
    return files(env, folder).assign_timestamps("ms")


def table(env: fn.Environment, folder: Path) -> Any:
    return env.from_arrow(TABLE)


def two_tables(env: fn.Environment, folder: Path) -> Any:
    return table(env, folder).union(table(env, folder))


def warnings_of(read: Callable[[fn.Environment, Path], Any], folder: Path, parallelism: int, **made: Any) -> list[str]:
    env = fn.Environment(parallelism=parallelism)
    read(env, folder).key_by("k").window(fn.EndOfInput()).agg(**made).collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        env.execute()
    return [str(warning.message) for warning in seen if warning.category is errors.UsageWarning]


@pytest.mark.parametrize(
    ("read", "parallelism", "several"), [(files, 2, "2 subtasks of 'read"), (two_tables, 1, "2 sources")]
)
def test_first_and_last_of_rows_of_several_subtasks_without_event_time_are_warned_of(
    read: Callable[[fn.Environment, Path], Any], parallelism: int, several: str, tmp_path: Path
) -> None:
    (text,) = warnings_of(read, tmp_path, parallelism, one=fn.first("v"), other=fn.last("v"), n=fn.count())
    assert text.startswith("'agg' takes the first or the last row of each key in 'one', 'other'")
    assert several in text
    assert "assign_timestamps()" in text


@pytest.mark.parametrize(
    ("read", "parallelism", "aggregate"),
    [(timed, 2, fn.first("v")), (files, 1, fn.last("v")), (files, 2, fn.max("v")), (table, 1, fn.first("v"))],
    ids=["event time", "one subtask", "no order", "one table"],
)
def test_results_that_depend_on_the_input_alone_are_not(
    read: Callable[[fn.Environment, Path], Any], parallelism: int, aggregate: Any, tmp_path: Path
) -> None:
    assert warnings_of(read, tmp_path, parallelism, one=aggregate) == []


@pytest.mark.parametrize("fold", [lambda keyed: keyed.reduce(max), lambda keyed: keyed.count()])
def test_folds_of_objects_of_several_subtasks_run_without_a_warning(fold: Callable[[Any], Any]) -> None:
    env = fn.Environment(parallelism=2)
    results = fold(env.from_collection([("a", 1), ("a", 2)]).key_by(0)).collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()
    assert len(list(results)) == 2
