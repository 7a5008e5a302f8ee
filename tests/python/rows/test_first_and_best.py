"""The first rows of keys and the best of windows: beside a loop over all, whatever parallelism, workers and batches."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet import state
from flownet.errors import PlanError, RestoreError

from .halves import ROWS, FailsOnce, Half, stop_on_the_way

Row = dict[str, Any]

SCHEMA = pa.schema([("key", pa.int64()), ("ms", pa.int64()), ("price", pa.float64()), ("tags", pa.list_(pa.string()))])
prices = st.none() | st.floats(-9, 9, width=16).map(lambda price: price + 0.0) | st.sampled_from([1.0, float("inf")])
keys = st.sampled_from([0, 1, -70, None])
# One row a time: of two of one time their bytes would say which is better.
rows_of_one_time = st.dictionaries(
    st.integers(0, 900), st.tuples(keys, prices, st.lists(st.text(max_size=3), max_size=2))
)
anywhere = st.fixed_dictionaries({"parallelism": st.integers(1, 4), "batch": st.sampled_from([1, 7, 100])})
several = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def best(
    rows: list[Row],
    window: Any,
    count: int,
    descending: bool,
    *,
    ties: bool = False,
    parallelism: int = 1,
    batch: int = 7,
) -> list[Row]:
    env = fn.Environment(parallelism=parallelism)
    reader = pa.Table.from_pylist(rows, schema=SCHEMA).to_reader(max_chunksize=batch)
    keyed = env.from_arrow(reader, event_time="ms", delay="10s").key_by("key")
    collected = keyed.window(window).top_n(count, "price", descending=descending, ties=ties).collect()
    env.execute(workers=0)
    found: list[Row] = collected.to_arrow().to_pylist()
    return found


def starts(window: Any, ms: int) -> list[int]:
    if isinstance(window, fn.EndOfInput):
        return [0]
    slide = window.slide_ms if isinstance(window, fn.Sliding) else window.size_ms
    return [at for at in range(-1000, 1000, slide) if at <= ms < at + window.size_ms]


@several
@given(
    rows_of_one_time,
    st.sampled_from([fn.Tumbling("100ms"), fn.Sliding("200ms", "100ms"), fn.EndOfInput()]),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    anywhere,
)
def test_the_best_rows_of_windows(
    drawn: dict[int, Any], window: Any, count: int, descending: bool, ties: bool, told: dict[str, int]
) -> None:
    rows = [{"key": key, "ms": ms, "price": price, "tags": tags} for ms, (key, price, tags) in drawn.items()]
    windows: dict[tuple[int, int | None], list[Row]] = {}
    for row in rows:
        for start in starts(window, row["ms"]):
            windows.setdefault((start, row["key"]), []).append(row)
    expected = []
    for in_window in windows.values():
        sign = -1 if descending else 1
        in_window.sort(key=lambda row: (row["price"] is None, sign * (row["price"] or 0), row["ms"]))
        last = in_window[:count][-1]["price"]
        del in_window[count + (sum(row["price"] == last for row in in_window[count:]) if ties else 0) :]
        expected += in_window
    found = best(rows, window, count, descending, ties=ties, **told)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    if isinstance(window, fn.EndOfInput):
        # Of a key the best comes first.
        for key in {row["key"] for row in rows}:
            assert [row for row in found if row["key"] == key] == windows[0, key]


def test_the_best_rows_have_the_time_of_their_window() -> None:
    env = fn.Environment(parallelism=2)
    table = pa.table({"item": ["a", "b", "a"], "ms": [100, 900, 1_100], "price": ["low", "mid", "up"]})
    best = env.from_arrow(table, event_time="ms").key_by("item").window(fn.Tumbling("1s")).top_n(1, "price")
    counts = best.key_by("price").window(fn.Tumbling("1s")).agg(n=fn.count()).collect()
    env.execute()
    found = {(row["price"], row["window_start"].timestamp()) for row in counts.to_arrow().to_pylist()}
    assert found == {("low", 0.0), ("mid", 0.0), ("up", 1.0)}


def rows_by_half(
    tmp_path: Path, parallelism: int = 2, pause_s: float = 0.005, **told: Any
) -> tuple[fn.Environment, fn.KeyedRows]:
    told = {"interval": "50ms", "storage": tmp_path / "checkpoints", **told}
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms", restart="fixed:3:10ms", max_parallelism=128)
    env.enable_checkpointing(**told)
    source = env.from_arrow(Half(pause_s), schema={"key": "int64", "ms": "int64", "n": "int64"}).set_parallelism(2)
    timed = source.uid("numbers").assign_timestamps("ms", delay="10ms").map_batches(FailsOnce(tmp_path))
    return env, timed.set_parallelism(2).with_columns(third=fn.col("n") // 3).key_by("third")


@pytest.mark.parametrize("told", [{}, {"unaligned": True}], ids=["aligned", "unaligned"])
def test_a_key_passes_once_behind_a_restart(told: dict[str, Any], tmp_path: Path) -> None:
    env, keyed = rows_by_half(tmp_path, **told)
    keyed.deduplicate().select("third").write_csv(tmp_path / "out", header=False)
    result = env.execute(workers=2 if told else 0)
    assert result.restarted == 1
    lines = [line for file in (tmp_path / "out").iterdir() for line in file.read_text().split()]
    assert sorted(map(int, lines)) == list(range((ROWS + 2) // 3))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_was_seen_goes_on_with_another_parallelism(parallelism: int, tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    env, keyed = rows_by_half(tmp_path, pause_s=0.1)
    keyed.deduplicate().uid("first").select("third").collect()
    keyed.window(fn.Tumbling("6s")).top_n(2, "n", descending=False).uid("best").collect()
    stop_on_the_way(env)
    env, keyed = rows_by_half(tmp_path, parallelism)
    first = keyed.deduplicate().uid("first").select("third").collect()
    best = keyed.window(fn.Tumbling("6s")).top_n(2, "n", descending=False).uid("best").collect()
    assert env.execute().resumed_from is not None
    found = first.to_arrow()["third"].to_pylist()
    assert len(set(found)) == len(found) < (ROWS + 2) // 3
    # The window that was open has what had come to it.
    by_key: dict[int, list[int]] = {}
    for row in best.to_arrow().to_pylist():
        by_key.setdefault(row["third"], []).append(row["n"])
    assert all(sorted(numbers) == [3 * key, 3 * key + 1][: len(numbers)] for key, numbers in by_key.items())
    assert len(by_key) > ROWS // 6


def test_what_is_kept_of_rows_can_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    env, keyed = rows_by_half(tmp_path, pause_s=0.1)
    keyed.deduplicate().uid("first").collect()
    keyed.window(fn.EndOfInput()).top_n(2, "n").uid("best").collect()
    keyed.window(fn.Session("6s")).agg(total=fn.sum("n")).uid("sums").collect()
    keyed.interval_join(keyed, "0s", "1s").uid("near").collect()
    keyed.join(keyed, fn.Tumbling("60s")).uid("both").collect()
    stop_on_the_way(env, checkpoints=2)
    found: dict[str | None, set[tuple[int, str]]] = {}
    for entry in state.read(tmp_path / "checkpoints").entries():
        if entry.key is not None and entry.what != "timer":
            found.setdefault(entry.uid, set()).add((entry.key, type(entry.value).__name__))
    keys = {key for key, _ in found["first"]}
    assert keys == set(range(len(keys))) != set()
    assert {kind for _, kind in found["first"]} == {"int"}
    for uid, kind in {"best": "list", "sums": "bytes", "near": "bytes", "both": "tuple"}.items():
        assert {kept for _, kept in found[uid]} == {kind}
        assert {key for key, _ in found[uid]} <= keys


def test_other_ranks_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    env, keyed = rows_by_half(tmp_path, pause_s=0.1)
    keyed.window(fn.EndOfInput()).top_n(2, "n").uid("best").collect()
    stop_on_the_way(env, checkpoints=1)
    env, keyed = rows_by_half(tmp_path)
    keyed.window(fn.EndOfInput()).top_n(2, "ms").uid("best").collect()
    with pytest.raises(RestoreError, match="top_n of 2 by n descending of .*top_n of 2 by ms descending of"):
        env.execute()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_of_many_keys_with_little_memory(workers: int) -> None:
    env = fn.Environment(
        parallelism=3, state_backend="disk", state_memory="1MiB", network_memory="1MiB", segment_size="4KiB"
    )
    numbers = [n % 50_000 for n in range(150_000)]
    table = pa.table({"key": pa.array(numbers), "text": [f"text {n}" for n in numbers]})
    first = env.from_arrow(table.to_reader(max_chunksize=1_000)).key_by("key").deduplicate().collect()
    env.execute(workers=workers)
    found = first.to_arrow().to_pylist()
    assert sorted(row["key"] for row in found) == list(range(50_000))
    assert all(row["text"] == f"text {row['key']}" for row in found)


def test_a_missing_key_is_a_key() -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.table({"a": pa.array([None, 1, None], pa.int64()), "b": [1, 1, 1]}))
    found = rows.key_by("a", "b").deduplicate().collect()
    env.execute()
    assert found.to_arrow().to_pylist() == [{"a": None, "b": 1}, {"a": 1, "b": 1}]


def test_rows_with_a_time_and_rows_without_one_pass_as_they_are() -> None:
    env = fn.Environment()
    timed = env.from_arrow(pa.table({"a": [1, 3]}), event_time="a")
    mixed = timed.union(env.from_arrow(pa.table({"a": [2]}))).key_by("a").deduplicate()
    found = mixed.collect()
    env.execute()
    assert sorted(found.to_arrow()["a"].to_pylist()) == [1, 2, 3]


def test_a_key_is_forgotten_after_a_time() -> None:
    schema = pa.schema([("key", pa.int64()), ("n", pa.int64())])

    passed: list[dict[str, int]] = []

    def batches() -> Any:
        for n in itertools.takewhile(lambda _: len(passed) < 2, itertools.count(step=2)):
            yield pa.record_batch({"key": [1, 1], "n": [n, n + 1]}, schema=schema)
            time.sleep(0.001)

    env = fn.Environment(buffer_timeout="0ms")
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    env.from_arrow(reader).key_by("key").deduplicate(ttl="200ms").to_objects().collect(into=passed)
    env.execute(workers=0)
    numbers = [row["n"] for row in passed]
    assert numbers[0] == 0
    # Time may pass between two rows of a batch: then the second is the one that its key is new with.
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert gaps
    assert all(gap > 1 for gap in gaps), "a row passed beside the one that its key was new with"


def test_what_cannot_be_ranked_is_refused_where_it_is_written() -> None:
    windows = fn.Environment().from_arrow(pa.table({"a": [1], "b": ["x"]})).key_by("a").window(fn.EndOfInput())
    with pytest.raises(PlanError, match="top_n: there is no column 'c'; there are 'a', 'b'"):
        windows.top_n(1, "c")
    with pytest.raises(PlanError, match=r"top_n\(0\): must be a number of records, at least 1"):
        windows.top_n(0, "b")
    with pytest.raises(PlanError, match=r"top_n\(\) goes by a column: .*with_columns\(\) before, not col\(\"b\"\)"):
        windows.top_n(1, fn.col("b"))  # type: ignore[arg-type]
