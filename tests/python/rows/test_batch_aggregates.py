"""Aggregates of one's own: beside those of flownet, whatever windows, formats, workers and batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import flownet as fn
from flownet.errors import ConfigError, OperatorError, PlanError, RestoreError

from .halves import ROWS, FailsOnce, Half, stop_on_the_way
from .sums import Sums, collected
from .test_aggregates import WINDOWS, some_rows, table_of


class ArrowSums(Sums):
    format = "arrow"

    def accumulate(self, rows: pa.RecordBatch, groups: pa.Array, count: int) -> Any:
        return self.merge(rows.rename_columns(["sum"]), groups, count)

    def merge(self, states: pa.RecordBatch, groups: pa.Array, count: int) -> Any:
        table = pa.table({"group": groups, "sum": states["sum"]}).group_by("group").aggregate([("sum", "sum")])
        return table.sort_by("group").select(["sum_sum"]).rename_columns(["sum"])

    def result(self, states: pa.RecordBatch) -> Any:
        return pc.add(states["sum"], 0)


class PolarsSums(Sums):
    format = "polars"

    def accumulate(self, rows: pl.DataFrame, groups: pl.Series, count: int) -> Any:
        return self.merge(rows.rename({"n": "sum"}), groups, count)

    def merge(self, states: pl.DataFrame, groups: pl.Series, count: int) -> Any:
        return states.group_by(groups).agg(pl.col("sum").sum()).sort("group").drop("group").lazy()


class PandasSums(Sums):
    format = "pandas"

    def accumulate(self, rows: pd.DataFrame, groups: Any, count: int) -> Any:
        return self.merge(rows.rename(columns={"n": "sum"}), groups, count)

    def merge(self, states: pd.DataFrame, groups: Any, count: int) -> Any:
        return states.groupby(groups).sum()


class Medians(fn.BatchAggregate):
    """Of all values, which are kept: it has no merge."""

    state = {"median": "float64"}
    returns = pa.float64()

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        order = np.argsort(groups, kind="stable")
        parts = np.split(rows["n"][order], np.cumsum(np.bincount(groups, minlength=count))[:-1])
        return {"median": np.array([np.median(part) for part in parts])}

    def result(self, states: Any) -> Any:
        return states["median"]


class Lists(fn.BatchAggregate):
    """States that are lists, and a result that may be missing."""

    state = {"values": "list[int64]"}
    returns = "utf8"

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        return {"values": [rows["n"][groups == group].tolist() for group in range(count)]}

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        return {"values": [np.concatenate(states["values"][groups == group]).tolist() for group in range(count)]}

    def result(self, states: Any) -> Any:
        return [None if len(values) % 2 else ",".join(map(str, sorted(values))) for values in states["values"]]


@pytest.mark.parametrize("kind", [Sums, ArrowSums, PolarsSums, PandasSums])
@pytest.mark.parametrize("window", [*WINDOWS.values(), fn.EndOfInput()], ids=[*WINDOWS, "end of input"])
def test_sums_by_window_are_those_of_flownet(kind: type[Sums], window: Any) -> None:
    env = fn.Environment(parallelism=2)
    rows = env.from_arrow(table_of(some_rows(7)).to_reader(max_chunksize=250)).assign_timestamps("ms", delay="300ms")
    results = rows.rebalance().key_by("key").window(window)
    sums = results.agg(own=kind().of(n="value"), total=fn.sum("value"), n=fn.count()).collect()
    env.execute()
    found = collected(sums)
    assert found
    assert sum(row["n"] for row in found) >= 500
    assert [row["own"] for row in found] == [row["total"] for row in found]


def test_it_runs_in_workers_beside_others_of_its_kind(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    rows = env.from_arrow(table_of(some_rows(8)), event_time="ms").rebalance()
    results = (
        rows.key_by("key")
        .window(fn.Tumbling("1h"))
        .agg(
            own=Sums().of(n=fn.col("value") * 2),
            n=fn.count(),
            median=Medians().of(n="value"),
            total=fn.sum("value"),
            listed=fn.collect("value"),
            shown=Lists().of(n="value"),
        )
    )
    assert results.columns == ["key", "window_start", "window_end", "own", "n", "median", "total", "listed", "shown"]
    found = results.collect()
    env.execute(workers=workers)
    for row in collected(found):
        values = sorted(row["listed"])
        assert row["own"] == 2 * row["total"]
        assert row["median"] == np.median(values)
        assert row["shown"] == (None if len(values) % 2 else ",".join(map(str, values)))


@pytest.mark.parametrize("state_backend", ["memory", "disk"])
def test_running_sums_are_those_of_flownet(state_backend: Any, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, state_backend=state_backend)
    rows = env.from_arrow(table_of(some_rows(9)).to_reader(max_chunksize=50)).rebalance()
    sums = rows.key_by("key").running_agg(own=Sums().of(n="value"), total=fn.sum("value"), n=fn.count()).collect()
    env.execute()
    found = collected(sums)
    assert [row["own"] for row in found] == [row["total"] for row in found]
    assert max(row["n"] for row in found) > 100


class Counting(Sums):
    """Counts calls of all of its kind in this process: of an object subtasks have copies."""

    calls: ClassVar[Counter[str]] = Counter()

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        self.calls["accumulate"] += 1
        return super().accumulate(rows, groups, count)

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        self.calls["merge"] += 1
        return super().merge(states, groups, count)

    def result(self, states: Any) -> Any:
        self.calls["result"] += 1
        return super().result(states)


@pytest.mark.parametrize("window", [fn.Tumbling("1s"), fn.Sliding("2s", "1s"), fn.Session("1ms")])
def test_calls_are_of_batches(window: Any) -> None:
    Counting.calls.clear()
    table = pa.table({"key": np.arange(64_000) % 999, "ms": np.arange(64_000) // 16, "n": np.arange(64_000)})
    env = fn.Environment()
    rows = env.from_arrow(table.to_reader(max_chunksize=4_000))
    keyed = rows.assign_timestamps("ms", delay="0s").key_by("key").window(window)
    sums = keyed.agg(own=Counting().of("n"), total=fn.sum("n")).collect()
    env.execute(workers=0)
    found = collected(sums)
    assert [row["own"] for row in found] == [row["total"] for row in found]
    assert len(found) > 3_900
    assert 8 <= Counting.calls["accumulate"] <= 16
    assert Counting.calls["merge"] + Counting.calls["result"] <= 100


def test_what_cannot_be_is_refused_where_it_is_written() -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.table({"key": [1], "n": [2]}))
    keyed, unapplied = rows.key_by("key"), cast(Any, {"sum": Sums()})

    class Nothing(fn.BatchAggregate):
        pass

    class Stateless(Sums):
        state = {"sum": "complex"}

    class Unknown(Sums):
        format = "spark"  # type: ignore[assignment]

    class Untyped(fn.BatchAggregate):
        state = {"sum": "int64"}

        def accumulate(self, rows: Any, groups: Any, count: int) -> Any: ...

        def result(self, states: Any) -> Any: ...

    for made, said in [
        (lambda: Nothing().of("n"), r"Nothing must define accumulate\(\)"),
        (lambda: Untyped().of("n"), r'Untyped must say what returns is, such as "float64"'),
        (lambda: Stateless().of("n"), "column 'sum': complex is no type of rows"),
        (lambda: Sums().of(), r'Sums.of\(\) needs columns, such as Sums.of\("price"\)'),
        (
            lambda: keyed.running_agg(**unapplied),
            r'running_agg\(sum=...\): say of which columns, as in Sums\(...\).of\("price"\)',
        ),
        (lambda: keyed.running_agg(sum=Sums().of("m")), "there is no column 'm'"),
        (lambda: keyed.running_agg(sum=Sums().of("n", n=fn.col("key"))), "takes two columns that are called 'n'"),
        (lambda: keyed.running_agg(key=Sums().of("n")), "two columns of the result are called 'key'"),
        (lambda: keyed.running_agg(m=Medians().of("n")), r"without merge\(\) all values of a key are kept"),
    ]:
        with pytest.raises(PlanError, match=said):
            made()  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigError, match=r"Unknown.of\(format='spark'\)"):
        Unknown().of("n")


class Wrong(Sums):
    """Does one thing wrong."""

    def __init__(self, where: str, what: Any) -> None:
        self.where, self.what = where, what

    def _or_wrong(self, where: str, value: Any) -> Any:
        if where != self.where:
            return value
        return self.what(value)

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        return self._or_wrong("accumulate", super().accumulate(rows, groups, count))

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        return self._or_wrong("merge", super().merge(states, groups, count))

    def result(self, states: Any) -> Any:
        return self._or_wrong("result", super().result(states))


def _raise(_: Any) -> Any:
    raise RuntimeError("no such luck")


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("accumulate", _raise, r"(?s)partial agg.*own = Wrong\(n\): accumulate\(\): no such luck"),
        ("accumulate", lambda states: {"sum": states["sum"][1:]}, "returned: 2 values, where there are 3 groups"),
        ("accumulate", lambda states: states["sum"], "it returned ndarray, where a dict of arrays is wanted"),
        ("accumulate", lambda states: {"total": states["sum"]}, "accumulate.*sum"),
        ("result", lambda values: values + 0.5, r"own = Wrong\(n\): result\(\): .*[Ff]loat"),
        ("result", lambda values: values[:1], r"own = Wrong\(n\): result\(\) was given 3 rows.*1 values"),
        ("result", lambda values: list(map(str, values)), r"own = Wrong\(n\): result\(\)"),
    ],
)
def test_what_a_function_does_wrong_is_told_with_its_name(where: str, what: Any, said: str) -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.table({"key": [1, 2, 3], "n": [2, 3, 4]}))
    rows.key_by("key").window(fn.EndOfInput()).agg(own=Wrong(where, what).of("n")).collect()
    with pytest.raises(OperatorError, match=said):
        env.execute(workers=0)


def sums(
    tmp_path: Path, aggregate: fn.BatchAggregate, parallelism: int = 2, pause_s: float = 0.005, **given: Any
) -> Any:
    env = fn.Environment(parallelism=parallelism, restart="fixed:3:10ms", max_parallelism=128, **given)
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    source = env.from_arrow(Half(pause_s), schema={"key": "int64", "ms": "int64", "n": "int64"}).set_parallelism(2)
    timed = source.assign_timestamps("ms", delay="10ms").map_batches(FailsOnce(tmp_path)).set_parallelism(2)
    results = timed.key_by("key").window(fn.Tumbling("5s")).agg(own=aggregate.of("n"), total=fn.sum("n"))
    return env, results.collect()


def results_in(*rows: fn.rows.CollectedRows) -> set[tuple[int, int, float, int]]:
    found = [row for each in rows for row in each.to_arrow().to_pylist()]
    return {(row["key"], row["window_start"].timestamp(), row["own"], row["total"]) for row in found}


SUMS = {
    (key, start / 1000, sum(n for n in range(start, start + 5_000) if n % 100 == key))
    for key in range(100)
    for start in range(0, ROWS, 5_000)
}


@pytest.mark.parametrize("state_backend", ["memory", "disk"])
def test_rows_count_once_behind_a_restart(state_backend: Any, workers: int, tmp_path: Path) -> None:
    env, found = sums(tmp_path, Sums(), state_backend=state_backend)
    result = env.execute(workers=workers)
    assert result.restarted == 1
    assert results_in(found) == {(key, start, total, total) for key, start, total in SUMS}


@pytest.mark.parametrize("aggregate", [Sums(), Medians()], ids=["states", "values"])
def test_it_goes_on_with_another_parallelism_and_only_with_what_was_kept(
    aggregate: fn.BatchAggregate, tmp_path: Path
) -> None:
    (tmp_path / "failed").touch()
    env, before = sums(tmp_path, aggregate, pause_s=0.1)
    stop_on_the_way(env)
    other: fn.BatchAggregate = Medians() if isinstance(aggregate, Sums) else Sums()
    env, _ = sums(tmp_path, other)
    with pytest.raises(RestoreError, match="the dataflow was changed"):
        env.execute()
    env, behind = sums(tmp_path, aggregate, parallelism=3)
    result = env.execute()
    assert result.resumed_from is not None
    found = results_in(before, behind)
    assert {(key, start, total) for key, start, _, total in found} == SUMS
    # The numbers of a key and window are in steps of a hundred, 50 of them.
    assert {own for _, _, own, total in found if isinstance(aggregate, Sums) and own != total} == set()
    assert {own for _, _, own, total in found if isinstance(aggregate, Medians) and own != total / 50} == set()
