"""Names that users of other systems try, and what the error says to use instead."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import flownet as fn
from flownet.internal import foreign_names
from flownet.state import MapState
from flownet.streams import AllWindowedStream, ConnectedStreams

OWNERS: dict[str, type[Any]] = {
    "Environment": fn.Environment,
    "KeyedStream": fn.KeyedStream,
    "MapState": MapState,
    "ProcessContext": fn.ProcessContext,
    "Rows": fn.Rows,
    "Stream": fn.Stream,
}

# Where a method of a hint may be.
PLACES: tuple[type[Any], ...] = (
    *OWNERS.values(),
    AllWindowedStream,
    ConnectedStreams,
    fn.KeyedRows,
    fn.rows.GroupedRows,
    fn.rows.RowResults,
    fn.rows.WindowedRows,
    fn.streams.WindowedStream,
    fn.TimerService,
    fn.Expr,
)


def hints() -> list[tuple[str, str, str]]:
    return [(owner, name, text) for owner, table in foreign_names._HINTS.items() for name, text in table.items()]


def test_a_hint_is_for_a_name_that_the_class_does_not_have() -> None:
    assert [f"{owner}.{name}" for owner, name, _ in hints() if hasattr(OWNERS[owner], name)] == []


def test_a_hint_names_methods_that_exist() -> None:
    known = {name for place in PLACES for name in dir(place)} | set(dir(fn)) | {"max", "min", "range", "fn"}
    wrong = [
        (owner, name, word)
        for owner, name, text in hints()
        for word in re.findall(r"\b([A-Za-z_]+)\(", text)
        if word not in known
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("of", "name", "hint"),
    [
        (lambda env: env, "add_source", "use from_source"),
        (lambda env: env.from_collection([1]), "add_sink", "use sink_to"),
        (lambda env: env.from_collection([1]), "branch", "use filter"),
        (lambda env: env.from_collection([1]).key_by(lambda x: x), "max_by", "use reduce"),
        (lambda env: env.from_arrow(pa.table({"x": [1]})), "head", "use top_n"),
        (lambda env: env.from_arrow(pa.table({"x": [1]})), "agg", "use group_by"),
    ],
)
def test_names_of_other_systems_say_ours(env: fn.Environment, of: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': {re.escape(hint)}"):
        getattr(of(env), name)


def test_an_unknown_name_is_an_ordinary_error(env: fn.Environment) -> None:
    for of in (env, env.from_collection([1]), env.from_arrow(pa.table({"x": [1]}))):
        with pytest.raises(AttributeError, match=r"has no attribute 'frobnicate'$"):
            getattr(of, "frobnicate")  # noqa: B009
        assert not hasattr(of, "__array__")


class CountByBroadcastState(fn.KeyedProcessFunction[Any, Any, Any]):
    def process(self, record: Any, ctx: Any) -> Any:
        yield str(pytest.raises(AttributeError, lambda: ctx.get_broadcast_state("rules")).value)


class PutIntoMapState(fn.KeyedProcessFunction[Any, Any, Any]):
    def open(self, ctx: fn.OpenContext) -> None:
        self.seen: Any = ctx.get_map_state(fn.MapStateDescriptor("seen"))

    def process(self, record: Any, ctx: Any) -> Any:
        yield str(pytest.raises(AttributeError, lambda: self.seen.put("x", 1)).value)


@pytest.mark.parametrize(
    ("function", "hint"), [(CountByBroadcastState, "use broadcast_state"), (PutIntoMapState, "use state[key] = value")]
)
def test_contexts_and_state_say_our_names_too(env: fn.Environment, function: Any, hint: str) -> None:
    texts = env.from_collection([1]).key_by(lambda x: x).process(function()).collect()
    env.execute()
    assert [text.partition(": ")[2] for text in texts] == [hint]


def test_a_name_given_to_execute_is_refused_with_its_place(env: fn.Environment) -> None:
    env.from_collection([1]).collect()
    with pytest.raises(fn.errors.ConfigError, match=r"number of workers.*Environment\(name='word count'\)"):
        env.execute("word count")  # type: ignore[arg-type]


def test_groups_give_one_row_each_when_the_input_ends(env: fn.Environment) -> None:
    source = pa.table({"k": [3, 1, 3, 2, 3], "v": [1.0, 2.0, 4.0, 8.0, 16.0]})
    rows = env.from_arrow(source.to_reader(max_chunksize=2))
    sums = rows.group_by("k").agg(total=fn.sum("v"), n=fn.count()).collect()
    env.execute()
    expected = source.group_by("k").aggregate([("v", "sum"), ("v", "count")]).rename_columns(["k", "total", "n"])
    assert sums.to_arrow().sort_by("k").to_pylist() == expected.sort_by("k").to_pylist()
