"""Joins of rows: beside what a loop over all pairs finds, and polars, whatever parallelism, workers and batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet.errors import ConfigError, OperatorError, PlanError, RestoreError

from .halves import ROWS, FailsOnce, Half, stop_on_the_way

Row = dict[str, Any]

VALUES = pa.struct([("text", pa.string()), ("list", pa.list_(pa.float64()))])
LEFT = pa.schema([("key", pa.int64()), ("ms", pa.int64()), ("value", VALUES)])
RIGHT = pa.schema([("id", pa.int32()), ("ms", pa.int64()), ("value", pa.string())])


def side(schema: pa.Schema, values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Row]]:
    keys = st.sampled_from([0, 1, -70, None])
    row = st.tuples(keys, st.integers(-500, 500), values).map(lambda row: dict(zip(schema.names, row, strict=True)))
    return st.lists(row, max_size=30)


texts = st.none() | st.text(max_size=20)
lefts = side(LEFT, st.fixed_dictionaries({"text": texts, "list": st.none() | st.lists(st.floats(-9, 9), max_size=3)}))
rights = side(RIGHT, texts)

Join = Callable[[fn.KeyedRows, fn.KeyedRows], fn.Rows]


def joined(
    left: list[Row],
    right: list[Row],
    join: Join,
    *,
    parallelism: int = 1,
    workers: int = 0,
    batch: int = 7,
    **told: Any,
) -> list[Row]:
    env = fn.Environment(parallelism=parallelism, **told)

    def rows(rows: list[Row], schema: pa.Schema, key: str) -> fn.KeyedRows:
        reader = pa.Table.from_pylist(rows, schema=schema).to_reader(max_chunksize=batch)
        # No row is late.
        return env.from_arrow(reader, event_time="ms", delay="10s").key_by(key)

    collected = join(rows(left, LEFT, "key"), rows(right, RIGHT, "id")).collect()
    env.execute(workers=workers)
    return in_order(collected.to_arrow().to_pylist())


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def pair(left: Row, right: Row | None) -> Row:
    return {**left, "ms_right": right and right["ms"], "value_right": right and right["value"]}


def all_pairs(left: list[Row], right: list[Row], meet: Callable[[Row, Row], bool]) -> list[Row]:
    is_one = [(a, b) for a in left for b in right if a["key"] is not None and a["key"] == b["id"]]
    return in_order([pair(a, b) for a, b in is_one if meet(a, b)])


anywhere = st.fixed_dictionaries({"parallelism": st.integers(1, 4), "batch": st.sampled_from([1, 7, 100])})
several = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@several
@given(lefts, rights, st.integers(-300, 300), st.integers(0, 300), anywhere)
def test_rows_of_an_interval_meet(left: list[Row], right: list[Row], lower: int, width: int, told: Any) -> None:
    found = joined(left, right, lambda a, b: a.interval_join(b, f"{lower}ms", f"{lower + width}ms"), **told)
    assert found == all_pairs(left, right, lambda a, b: lower <= b["ms"] - a["ms"] <= lower + width)


@several
@given(lefts, rights, anywhere)
def test_without_a_window_all_rows_meet(left: list[Row], right: list[Row], told: Any) -> None:
    found = joined(left, right, lambda a, b: a.join(b), **told)
    assert found == all_pairs(left, right, lambda a, b: True)


@several
@given(lefts, rights, st.sampled_from(["inner", "left"]), anywhere)
def test_rows_meet_the_newest_version_before_them_as_in_polars(
    left: list[Row], right: list[Row], how: Any, told: Any
) -> None:
    versions = {(row["id"], row["ms"]): row for row in right}
    # In the order in which they come; of versions at one time the last one counts.
    expected = []
    for row in left:
        before = [
            version for version in versions.values() if version["id"] == row["key"] and version["ms"] <= row["ms"]
        ]
        newest = max(before, key=lambda version: version["ms"], default=None) if row["key"] is not None else None
        if newest is not None or how == "left":
            expected.append(pair(row, newest))
    found = joined(left, right, lambda a, b: a.as_of_join(b, how=how), **told)
    assert found == in_order(expected)
    if how == "left" and left and right:
        frames = [
            pl.from_arrow(pa.Table.from_pylist(rows, schema=schema)) for rows, schema in ((left, LEFT), (right, RIGHT))
        ]
        one, other = (frame for frame in frames if isinstance(frame, pl.DataFrame))
        other = other.drop_nulls("id").unique(("id", "ms"), keep="last", maintain_order=True)
        other = other.with_columns(pl.col("id").cast(pl.Int64), at=pl.col("ms")).sort("ms")
        polars = one.sort("ms").join_asof(
            other, left_on="ms", right_on="at", by_left="key", by_right="id", check_sortedness=False, coalesce=True
        )
        assert in_order(polars.select(*LEFT.names, "ms_right", "value_right").to_dicts()) == found


@several
@given(lefts, rights, st.sampled_from([fn.Tumbling("100ms"), fn.Sliding("200ms", "100ms"), fn.EndOfInput()]), anywhere)
def test_rows_of_a_window_meet(left: list[Row], right: list[Row], window: Any, told: Any) -> None:
    def shared(a: Row, b: Row) -> int:
        if isinstance(window, fn.EndOfInput):
            return 1
        slide = window.slide_ms if isinstance(window, fn.Sliding) else window.size_ms
        starts = [{at for at in range(-1000, 1000, slide) if at <= row["ms"] < at + window.size_ms} for row in (a, b)]
        return len(starts[0] & starts[1])

    found = joined(left, right, lambda a, b: a.join(b, window), **told)
    pairs = [(a, b, shared(a, b)) for a in left for b in right if a["key"] is not None and a["key"] == b["id"]]
    assert found == in_order([pair(a, b) for a, b, times in pairs for _ in range(times)])


def many(count: int) -> tuple[list[Row], list[Row]]:
    left = [{"key": n % 50, "ms": n, "value": {"text": "t" * (n % 3000), "list": [n / 2]}} for n in range(count)]
    return left, [{"id": n % 70, "ms": n, "value": None if n % 5 else f"v{n}"} for n in range(count)]


@pytest.mark.parametrize("window", [fn.Tumbling("1s"), fn.Sliding("500ms", "250ms"), None], ids=str)
def test_pairs_of_several_batches_are_each_with_each(window: Any) -> None:
    # One key alone has more pairs than a batch; the other has one row on one side.
    left: list[Row] = [{"key": n % 2, "ms": n, "value": {"text": f"t{n}", "list": None}} for n in range(260)]
    right: list[Row] = [{"id": int(n > 0), "ms": n, "value": "" if n % 3 else f"v{n}"} for n in range(130)]
    met = (
        all_pairs(left, right, lambda a, b: True)
        if not isinstance(window, fn.Sliding)
        else in_order(
            [
                pair(a, b)
                for a in left
                for b in right
                for start in (-250, 0, 250)
                if a["key"] == b["id"] and all(start <= ms < start + 500 for ms in (a["ms"], b["ms"]))
            ]
        )
    )
    assert len(met) > 8192
    for parallelism in (1, 2):
        assert (
            joined(left, right, lambda a, b: a.join(b, window) if window else a.join(b), parallelism=parallelism) == met
        )


@pytest.mark.parametrize("backend", ["memory", "disk"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("join", "meet"),
    [
        (lambda a, b: a.interval_join(b, "-100ms", "0ms"), lambda a, b: -100 <= b["ms"] - a["ms"] <= 0),
        (lambda a, b: a.join(b), lambda a, b: True),
    ],
    ids=["interval", "regular"],
)
def test_joins_hold_with_little_memory_for_state_and_for_buffers(
    join: Join, meet: Callable[[Row, Row], bool], backend: str, workers: int
) -> None:
    left, right = many(600)
    told: dict[str, Any] = {"state_backend": backend, "network_memory": "1MiB", "segment_size": "4KiB"}
    if backend == "disk":
        told["state_memory"] = "1MiB"
    found = joined(left, right, join, parallelism=3, workers=workers, **told)
    assert found == all_pairs(left, right, meet)


OfRows = Callable[[fn.Rows, fn.Rows], fn.Rows]


def halves(tmp_path: Path, join: OfRows, parallelism: int = 2, pause_s: float = 0.005, **told: Any) -> Any:
    told = {"interval": "50ms", "storage": tmp_path / "checkpoints", **told}
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms", restart="fixed:3:10ms", max_parallelism=128)
    env.enable_checkpointing(**told)
    schema = {"key": "int64", "ms": "int64", "n": "int64"}
    left, right = (
        env.from_arrow(Half(pause_s), schema=schema)
        .set_parallelism(2)
        .uid(name)
        .assign_timestamps("ms", delay="10ms")
        .set_parallelism(2)
        for name in ("left", "right")
    )
    left = left.map_batches(FailsOnce(tmp_path)).set_parallelism(2)
    collected = join(left, right.select("key", m=fn.col("n"))).select("n", "m").collect()
    return env, collected


def by_key(join: Join) -> OfRows:
    return lambda a, b: join(a.key_by("key"), b.key_by("key"))


JOINS: dict[str, tuple[OfRows, set[tuple[int, int]]]] = {
    "regular": (
        lambda a, b: a.key_by("n").join(b.with_columns(id=fn.col("m")).key_by("id")),
        {(n, n) for n in range(ROWS)},
    ),
    "interval": (
        by_key(lambda a, b: a.interval_join(b, "-150ms", "0s")),
        {(n, m) for n in range(ROWS) for m in (n, n - 100) if m >= 0},
    ),
    "as of": (by_key(lambda a, b: a.as_of_join(b)), {(n, n) for n in range(ROWS)}),
    "window": (
        by_key(lambda a, b: a.join(b, fn.Tumbling("200ms"))),
        {(n, m) for n in range(ROWS) for m in (n, n - 100 if n % 200 >= 100 else n + 100)},
    ),
}


def found_in(collected: fn.rows.CollectedRows) -> set[tuple[int, int]]:
    found = collected.to_arrow()
    return set(zip(found["n"].to_pylist(), found["m"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("told", [{}, {"unaligned": True}], ids=["aligned", "unaligned"])
def test_no_pair_is_lost_behind_a_restart(name: str, told: dict[str, Any], tmp_path: Path) -> None:
    join, expected = JOINS[name]
    env, collected = halves(tmp_path, join, **told)
    result = env.execute(workers=2 if told else 0)
    assert result.restarted == 1
    assert result.restarts[0].resumed_from is not None
    assert found_in(collected) == expected


@pytest.mark.parametrize("parallelism", [1, 3])
def test_joins_go_on_with_another_parallelism(parallelism: int, tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    join, expected = JOINS["interval"]
    env, before = halves(tmp_path, join, pause_s=0.1)
    stop_on_the_way(env)
    env, after = halves(tmp_path, join, parallelism)
    assert env.execute().resumed_from is not None
    assert len(found_in(before)) < len(expected)
    assert found_in(before) | found_in(after) == expected


def test_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    as_of = by_key(lambda a, b: a.as_of_join(b).uid("join"))
    stop_on_the_way(halves(tmp_path, as_of, pause_s=0.1)[0], checkpoints=1)
    with pytest.raises(RestoreError, match="as_of_join of.*regular join of"):
        halves(tmp_path, by_key(lambda a, b: a.join(b).uid("join")))[0].execute()


def test_rows_that_come_too_late_are_counted() -> None:
    schema = pa.schema([("id", pa.int64()), ("ms", pa.int64())])

    def batches() -> Any:
        for ms in (0, 10_000, 500, 10_500):
            yield pa.record_batch({"id": [1], "ms": [ms]}, schema=schema)
            # Watermarks are said every 200 ms.
            time.sleep(0.5)

    env = fn.Environment(buffer_timeout="0ms")
    slow = env.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()), event_time="ms", delay="0s")
    pairs = slow.key_by("id").interval_join(slow.key_by("id"), "0s", "0s").collect()
    result = env.execute(workers=0)
    assert sorted(pairs.to_arrow()["ms"].to_pylist()) == [0, 10_000, 10_500]
    assert sum(task.late_records for task in result.tasks) == 2


def test_a_pair_has_a_time_and_goes_on() -> None:
    env = fn.Environment(parallelism=2)
    table = pa.table({"id": [1, 2, 1], "ms": [0, 900, 1_500], "x": [1, 2, 4]})
    left, right = (env.from_arrow(table, event_time="ms").key_by("id") for _ in range(2))
    pairs = left.interval_join(right, "0s", "2s")
    sums = pairs.key_by("id").window(fn.Tumbling("1s")).agg(n=fn.count(), x=fn.sum("x_right")).collect()
    env.execute()
    rows = sums.to_arrow()
    assert sorted((row["id"], row["n"], row["x"]) for row in rows.to_pylist()) == [(1, 1, 1), (1, 2, 8), (2, 1, 2)]


@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, False)])
def test_a_pair_without_a_window_has_the_time_that_there_is(first: bool, second: bool) -> None:
    env = fn.Environment(parallelism=2)
    table = pa.table({"id": [1, 2], "ms": [0, 900]})
    left, right = (
        env.from_arrow(table, event_time="ms" if has_time else None).key_by("id") for has_time in (first, second)
    )
    pairs = left.join(right).key_by("id").window(fn.Tumbling("100ms", time="event"))
    counted = pairs.agg(n=fn.count()).select("id", "n", at=fn.col("window_start").dt.epoch()).collect()
    if not first:
        with pytest.raises(OperatorError, match="rows have no event time, which these windows go by"):
            env.execute()
        return
    env.execute()
    assert in_order(counted.to_arrow().to_pylist()) == [{"at": 0, "id": 1, "n": 1}, {"at": 900, "id": 2, "n": 1}]


def test_pairs_of_all_there_was_have_no_time() -> None:
    env = fn.Environment()
    table = pa.table({"id": [1, 2], "ms": [0, 900]})
    left, right = (env.from_arrow(table, event_time="ms").key_by("id") for _ in range(2))
    pairs = left.join(right, fn.EndOfInput())
    counts = pairs.key_by("id").window(fn.EndOfInput()).agg(n=fn.count()).collect()
    env.execute()
    assert in_order(counts.to_arrow().to_pylist()) == [{"id": 1, "n": 1}, {"id": 2, "n": 1}]
    pairs.key_by("id").window(fn.Tumbling("1s", time="event")).agg(n=fn.count()).collect()
    with pytest.raises(OperatorError, match="rows have no event time, which these windows go by"):
        env.execute()


def test_joins_are_named_in_the_plan_and_show_their_columns() -> None:
    env = fn.Environment()
    left = env.from_arrow(pa.table({"a": [1], "b": ["x"]})).assign_timestamps("a").key_by("a")
    right = env.from_arrow(pa.table({"b": ["x"], "c": [1], "a": [1]})).assign_timestamps("a").key_by("c")
    rows = left.as_of_join(right, how="left", suffix="_2")
    assert list(rows.schema.items()) == [("a", "int64"), ("b", "utf8"), ("b_2", "utf8"), ("a_2", "int64")]
    rows.collect()
    assert "as_of_join" in str(env.explain())


def test_what_cannot_be_joined_is_refused_where_it_is_written() -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.table({"a": [1], "b": ["x"], "b_right": ["y"], "ms": [1]}))
    timed = rows.assign_timestamps("ms")
    by_a = timed.key_by("a")
    with pytest.raises(PlanError, match=r"interval_join\(\) takes rows by key, other.key_by\(...\), not"):
        by_a.interval_join(timed, "0s", "1s")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"interval_join\('2s', '1s'\): the first must not be greater"):
        by_a.interval_join(by_a, "2s", "1s")
    with pytest.raises(ConfigError, match="lower=-5 needs a unit"):
        by_a.interval_join(by_a, -5, "1s")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="as_of_join.* goes by event time, and the second stream has none"):
        by_a.as_of_join(rows.key_by("a"))
    with pytest.raises(PlanError, match="join.* goes by event time, and the first stream has none"):
        rows.key_by("a").join(by_a, fn.Tumbling("1s"))
    with pytest.raises(ConfigError, match='must be "inner" or "left"'):
        by_a.as_of_join(by_a, how="right")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="'a' is of type int64 and 'b' of type utf8, which are never equal"):
        by_a.as_of_join(timed.key_by("b"))
    with pytest.raises(PlanError, match="two columns of the result are called 'b_right': say another suffix="):
        by_a.as_of_join(by_a)
    with pytest.raises(PlanError, match="leave the window out, and rows meet as they come"):
        by_a.join(by_a, fn.Global())
    other = fn.Environment().from_arrow(pa.table({"a": [1]})).assign_timestamps("a")
    with pytest.raises(PlanError, match="rows of the same environment"):
        by_a.as_of_join(other.key_by("a"))


def test_windows_of_the_wall_clock_need_no_event_time() -> None:
    env = fn.Environment()
    left = env.from_arrow(pa.table({"user": ["ann", "bob", None], "page": [1, 2, 3]}))
    right = env.from_arrow(pa.table({"who": ["ann", "ann", None], "city": ["Rome", "Oslo", "Bonn"]}))
    pairs = left.key_by("user").join(right.key_by("who"), fn.EndOfInput()).collect()
    env.execute()
    assert in_order(pairs.to_arrow().to_pylist()) == [
        {"user": "ann", "page": 1, "city": "Oslo"},
        {"user": "ann", "page": 1, "city": "Rome"},
    ]


def test_rows_that_lost_their_time_are_an_error_that_names_the_join() -> None:
    env = fn.Environment()
    timed = env.from_arrow(pa.table({"a": [1]})).assign_timestamps("a")
    mixed = timed.union(env.from_arrow(pa.table({"a": [2]})))
    timed.key_by("a").as_of_join(mixed.key_by("a")).collect()
    with pytest.raises(OperatorError, match="(?s)as_of_join.*a join by event time got a row without one"):
        env.execute()
