"""Rows and checkpoints: what is half put together when a job dies counts once when it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import OperatorError, RestoreError

from .halves import ROWS, FailsOnce, Half, stop_on_the_way

EXPECTED = {
    (key, start, sum(n for n in range(start, start + 5_000) if n % 100 == key), 50)
    for key in range(100)
    for start in range(0, ROWS, 5_000)
}


SLOWLY_S = 0.1


def sums(
    tmp_path: Path, window: fn.Tumbling | fn.Session, parallelism: int = 2, pause_s: float = 0.005, **settings: Any
) -> Any:
    settings = {"interval": "50ms", "storage": tmp_path / "checkpoints", **settings}
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms", restart="fixed:3:10ms", max_parallelism=128)
    env.enable_checkpointing(**settings)
    source = env.from_arrow(Half(pause_s), schema={"key": "int64", "ms": "int64", "n": "int64"}).set_parallelism(2)
    timed = source.assign_timestamps("ms", delay="10ms").map_batches(FailsOnce(tmp_path)).set_parallelism(2)
    results = timed.key_by("key").window(window).agg(total=fn.sum("n"), count=fn.count())
    collected = results.select("key", "total", "count", start=fn.col("window_start").dt.epoch()).collect()
    return env, collected


def found_in(collected: fn.rows.CollectedRows) -> set[tuple[int, int, int, int]]:
    rows = collected.to_arrow().to_pylist()
    return {(row["key"], row["start"], row["total"], row["count"]) for row in rows}


@pytest.mark.parametrize("settings", [{}, {"unaligned": True}], ids=["aligned", "unaligned"])
def test_rows_count_once_behind_a_restart(workers: int, settings: dict[str, Any], tmp_path: Path) -> None:
    env, collected = sums(tmp_path, fn.Tumbling("5s"), **settings)
    result = env.execute(workers=workers)
    assert result.restarted == 1
    assert result.restarts[0].resumed_from is not None
    # Results are collected at least once; none is of half of its rows, or of some twice.
    assert found_in(collected) == EXPECTED


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_go_on_with_another_parallelism(parallelism: int, tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    env, before = sums(tmp_path, fn.Tumbling("5s"), pause_s=SLOWLY_S)
    stop_on_the_way(env)
    assert len(before) < len(EXPECTED)
    env, collected = sums(tmp_path, fn.Tumbling("5s"), parallelism)
    result = env.execute()
    assert result.resumed_from is not None
    assert found_in(before) | found_in(collected) == EXPECTED


def test_a_savepoint_is_gone_on_from_by_another_dataflow(tmp_path: Path) -> None:
    def job(storage: str, **begin: Any) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment(parallelism=2)
        env.enable_checkpointing("50ms", storage=tmp_path / storage, **begin)
        source = Half() if begin else Half(SLOWLY_S)
        rows = env.from_arrow(source, schema={"key": "int64", "ms": "int64", "n": "int64"}).uid("numbers")
        if begin:
            rows = rows.filter(fn.col("n") >= 0)
        results = rows.key_by("key").window(fn.EndOfInput()).agg(total=fn.sum("n"), count=fn.count()).uid("sums")
        return env, results.collect()

    env, _ = job("before")
    with env.execute_async() as running:
        while running.status().checkpoints_made < 3:
            time.sleep(0.01)
        running.savepoint(tmp_path / "saved")
        running.stop(drain=False)
        running.wait()
    env, collected = job("after", restore_from=tmp_path / "saved")
    env.execute()
    found = {row["key"]: (row["total"], row["count"]) for row in collected.to_arrow().to_pylist()}
    assert found == {key: (sum(range(key, ROWS, 100)), ROWS // 100) for key in range(100)}


def test_other_aggregates_are_refused_by_name(tmp_path: Path) -> None:
    def job(**aggregates: fn.rows.Aggregate) -> fn.Environment:
        env = fn.Environment()
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        source = Half(SLOWLY_S)
        rows = env.from_arrow(source, schema={"key": "int64", "ms": "int64", "n": "int64"}).uid("numbers")
        rows.key_by("key").window(fn.EndOfInput()).agg(**aggregates).uid("sums").collect()
        return env

    stop_on_the_way(job(total=fn.sum("n")), checkpoints=1)
    with pytest.raises(RestoreError, match="agg of sum of ints.*agg of max of ints|agg of max of ints.*agg of sum of"):
        job(total=fn.max("n")).execute()


Operation = Callable[[fn.Rows], fn.Rows]

CHANGES: dict[str, tuple[Operation, Operation, str]] = {
    "key of an aggregate": (
        lambda rows: rows.key_by("key").window(fn.EndOfInput()).agg(n=fn.count()),
        lambda rows: rows.key_by("text").window(fn.EndOfInput()).agg(n=fn.count()),
        "keys of type number, windows to the end of the input and is .*agg of count, keys of type text, windows",
    ),
    "columns of a key": (
        lambda rows: rows.key_by("key").running_agg(n=fn.count()),
        lambda rows: rows.key_by("key", "text").running_agg(n=fn.count()),
        "keys of type number, so far and is .* keys of type number and text, so far now",
    ),
    "windows in place of all": (
        lambda rows: rows.key_by("key").running_agg(n=fn.count()),
        lambda rows: rows.key_by("key").window(fn.EndOfInput()).agg(n=fn.count()),
        "agg of count, .*, so far and is .*agg of count, .*, windows to the end of the input now",
    ),
    "key of a rank": (
        lambda rows: rows.key_by("key").window(fn.EndOfInput()).top_n(1, "n"),
        lambda rows: rows.key_by("text").window(fn.EndOfInput()).top_n(1, "n"),
        "keys of type number, windows to the end of the input and is top_n .*, keys of type text, windows",
    ),
    "key of a join": (
        lambda rows: rows.key_by("key").join(rows.key_by("key"), fn.Tumbling("1h")),
        lambda rows: rows.key_by("text").join(rows.key_by("text"), fn.Tumbling("1h")),
        "keys of type number, windows of 3600000 ms and is join .* keys of type text, windows of 3600000 ms now",
    ),
    "key of what was seen": (
        lambda rows: rows.key_by("key").deduplicate(),
        lambda rows: rows.key_by("text").deduplicate(),
        "deduplicate of keys of type number and is deduplicate of keys of type text now",
    ),
    "sessions in place of a grid": (
        lambda rows: rows.key_by("key").window(fn.Tumbling("1h")).agg(n=fn.count()),
        lambda rows: rows.key_by("key").window(fn.Session("1h")).agg(n=fn.count()),
        "keys of type number, windows of 3600000 ms and is .*agg of count, .*, windows by key by sessions now",
    ),
}


@pytest.mark.parametrize(("before", "after", "message"), CHANGES.values(), ids=CHANGES)
def test_what_would_find_nothing_of_what_was_kept_is_refused(
    before: Operation, after: Operation, message: str, tmp_path: Path
) -> None:
    def job(operation: Operation) -> fn.Environment:
        env = fn.Environment()
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        schema = {"key": "int64", "ms": "int64", "n": "int64"}
        source = env.from_arrow(Half(SLOWLY_S), schema=schema).uid("numbers")
        rows = source.assign_timestamps("ms", delay="0s").uid("times")
        operation(rows.with_columns(text=fn.col("key").cast("utf8"))).uid("kept").collect()
        return env

    stop_on_the_way(job(before), checkpoints=1)
    with pytest.raises(RestoreError, match=message):
        job(after).execute()


def test_keys_of_another_number_type_are_the_same_keys(tmp_path: Path) -> None:
    def job(kind: str) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment()
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        rows = env.from_arrow(Half(SLOWLY_S), schema={"key": "int64", "ms": "int64", "n": "int64"})
        keyed = rows.cast({"key": kind}).key_by("key")
        return env, keyed.window(fn.EndOfInput()).agg(n=fn.count()).collect()

    env, _ = job("int64")
    stop_on_the_way(env, checkpoints=1)
    env, collected = job("float64")
    env.execute()
    assert {row["key"]: row["n"] for row in collected.to_arrow().to_pylist()} == dict.fromkeys(range(100), ROWS // 100)


def test_a_source_of_functions_goes_on_with_the_parallelism_that_it_had(tmp_path: Path) -> None:
    def job(parallelism: int) -> fn.Environment:
        env = fn.Environment()
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        schema = {"key": "int64", "ms": "int64", "n": "int64"}
        env.from_arrow(Half(SLOWLY_S), schema=schema).set_parallelism(parallelism).collect()
        return env

    stop_on_the_way(job(2), checkpoints=1)
    with pytest.raises(RestoreError, match="its streams were made for another parallelism than 3"):
        job(3).execute()


def test_a_reader_that_cannot_be_read_again_is_refused(tmp_path: Path) -> None:
    env = fn.Environment()
    env.enable_checkpointing("1s", storage=tmp_path / "checkpoints")
    env.from_arrow(pa.table({"a": [1]}).to_reader()).collect()
    with pytest.raises(fn.errors.PlanError, match="from_arrow"):
        env.execute()


def test_a_failure_without_checkpoints_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "epochs" / "1").mkdir(parents=True)
    env = fn.Environment()
    source = env.from_arrow(Half(), schema={"key": "int64", "ms": "int64", "n": "int64"})
    source.map_batches(FailsOnce(tmp_path)).collect()
    with pytest.raises(OperatorError, match="once"):
        env.execute()
