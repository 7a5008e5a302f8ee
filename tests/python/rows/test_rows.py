"""Streams of rows: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import itertools
import operator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import ConfigError, OperatorError, PlanError

TRADES = pa.table({"symbol": ["A", "B", "A", "C"], "price": [1.5, 2.5, 3.5, None], "size": [1, 2, 3, 4]})

ALL_TYPES = pa.table(
    {
        "i8": pa.array([1, None, -3], pa.int8()),
        "u64": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "f32": pa.array([0.5, None, float("inf")], pa.float32()),
        "bool": pa.array([True, None, False]),
        "text": pa.array(["größe", None, ""]),
        "large": pa.array(["a", None, "b" * 70_000], pa.large_string()),
        "view": pa.array(["a", None, "c"], pa.string_view()),
        "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
        "binary": pa.array([b"\0", None, b""], pa.binary()),
        "fixed": pa.array([b"1234", None, b"5678"], pa.binary(4)),
        "day": pa.array([1, None, -1], pa.date32()),
        "clock": pa.array([1, None, 2], pa.time64("us")),
        "naive": pa.array([1000, None, -1000], pa.timestamp("ns")),
        "zoned": pa.array([1, None, -1], pa.timestamp("ms", "Europe/Berlin")),
        "span": pa.array([1, None, 2], pa.duration("s")),
        "decimal": pa.array([1, None, 2], pa.decimal128(12, 2)),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    }
)


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_of_every_type_come_out_as_they_went_in(workers: int) -> None:
    env = fn.Environment()
    rows = env.from_arrow(ALL_TYPES)
    # To another subtask and back: over the exchange twice.
    collected = rows.rebalance().select(*rows.columns).set_parallelism(2).collect()
    env.execute(workers=workers)
    found = collected.to_arrow()
    assert [str(field.type) for field in found.schema][5:8] == ["string", "string", "string"]
    # A text that fills a buffer goes by itself, and so to another subtask.
    assert sorted(found.to_pylist(), key=repr) == sorted(ALL_TYPES.to_pylist(), key=repr)


def test_rows_come_from_any_library_with_the_arrow_interface() -> None:
    columns = {"a": [1, 2, 3], "b": ["x", "y", None]}
    given: list[Any] = [
        pa.table(columns),
        pa.table(columns).to_reader(),
        pl.DataFrame(columns),
        pd.DataFrame(columns),
    ]
    for source in given:
        env = fn.Environment()
        collected = env.from_arrow(source).collect()
        env.execute(workers=0)
        assert collected.to_arrow().to_pylist() == pa.table(columns).to_pylist(), type(source)


def test_rows_go_to_any_library() -> None:
    env = fn.Environment()
    collected = env.from_arrow(TRADES).collect()
    assert len(collected) == 0
    env.execute(workers=0)
    assert collected.to_arrow().equals(TRADES)
    assert collected.to_polars().equals(pl.DataFrame(TRADES))
    assert collected.to_pandas().equals(TRADES.to_pandas())
    assert sum(len(batch) for batch in collected.batches()) == len(collected) == 4
    assert repr(collected) == "CollectedRows(4 rows of symbol: utf8, price: float64, size: int64)"


def test_from_numpy_takes_the_fields_of_a_structured_array() -> None:
    env = fn.Environment()
    array = np.array([(1, 2.5, "a"), (2, 3.5, "b")], dtype=[("user", "i4"), ("spent", "f8"), ("name", "U1")])
    rows = env.from_numpy(array)
    assert rows.schema == {"user": "int32", "spent": "float64", "name": "utf8"}
    collected = rows.collect()
    env.execute(workers=0)
    assert collected.to_arrow()["spent"].to_pylist() == [2.5, 3.5]
    with pytest.raises(PlanError, match="a structured array of one dimension"):
        env.from_numpy(np.zeros(3))
    with pytest.raises(PlanError, match=r"from_numpy: field 'at' is of \[\('x', '<f4'\)\] in 0 dimensions: "):
        env.from_numpy(np.zeros(3, dtype=[("user", "i4"), ("at", [("x", "<f4")])]))
    with pytest.raises(PlanError, match="from_numpy: field 'three' is of float64 in 1 dimensions: "):
        env.from_numpy(np.zeros(3, dtype=[("three", "f8", 3)]))


def test_from_numpy_takes_numbers_in_any_order_of_bytes() -> None:
    env = fn.Environment()
    collected = env.from_numpy(np.array([(1, 0.5)], dtype=[("big", ">i4"), ("little", "<f8")])).collect()
    env.execute(workers=0)
    assert collected.to_arrow().to_pylist() == [{"big": 1, "little": 0.5}]


def test_from_numpy_takes_arrays_that_follow_each_other(workers: int) -> None:
    kind = np.dtype([("n", "i8"), ("half", "f8")])

    def array(first: int) -> np.ndarray[Any, Any]:
        return np.array([(n, n / 2) for n in range(first, first + 100)], dtype=kind)

    env = fn.Environment()
    listed = env.from_numpy([array(first) for first in range(0, 1000, 100)])
    assert listed.to_arrow(workers)["half"].to_pylist() == [n / 2 for n in range(1000)]
    assert listed.to_arrow(workers).num_rows == 1000, "and again"
    # As many as are wanted.
    with env.from_numpy(array(100 * chunk) for chunk in itertools.count()).execute_and_collect(workers) as batches:
        assert next(batches).schema.fields() == [("n", "int64", True), ("half", "float64", True)]
    once = env.from_numpy(iter([array(0)]))
    assert once.to_arrow().num_rows == 100
    with pytest.raises(OperatorError, match="read by the run before: give from_numpy.. a list"):
        once.to_arrow()
    with pytest.raises(OperatorError, match="has the fields n: int64, half: double, and a later one is of int64"):
        env.from_numpy([array(0), np.zeros(3, dtype="i8")]).to_arrow()
    texts = [np.array([(text,)], dtype=[("text", f"U{len(text)}")]) for text in ("a", "long")]
    assert env.from_numpy(texts).to_arrow()["text"].to_pylist() == ["a", "long"], "texts of any length"
    objects = np.array([("a",), ("long",)], dtype=[("text", "O")])
    assert dict(env.from_numpy(objects).schema) == {"text": "utf8"}
    with pytest.raises(PlanError, match="a structured array of one dimension"):
        env.from_numpy([])


def numbers(subtask: int, subtasks: int) -> Any:
    import pyarrow

    return pyarrow.table({"n": list(range(subtask, 30_000, subtasks))})


@pytest.mark.parametrize("workers", [0, 2])
def test_each_subtask_reads_what_a_function_makes_for_it(workers: int) -> None:
    env = fn.Environment(parallelism=3)
    collected = env.from_arrow(numbers, schema={"n": "int64"}).filter(fn.col("n") % 2 == 0).collect()
    env.execute(workers=workers)
    assert sorted(collected.to_arrow()["n"].to_pylist()) == list(range(0, 30_000, 2))


def test_columns_are_selected_renamed_dropped_and_cast() -> None:
    env = fn.Environment()
    rows = env.from_arrow(TRADES)
    assert rows.drop("size").columns == ["symbol", "price"]
    assert rows.rename({"size": "shares"}).columns == ["symbol", "price", "shares"]
    assert rows.cast({"size": "float32"}).schema["size"] == "float32"
    assert rows.select("size", fn.col("price").alias("p"), one=1).schema == {
        "size": "int64",
        "p": "float64",
        "one": "int64",
    }
    env = fn.Environment()
    rows = env.from_arrow(TRADES)
    made = rows.with_columns(size=fn.col("size") * 2, worth=fn.col("price") * fn.col("size")).collect()
    env.execute(workers=0)
    assert made.to_arrow().to_pydict() == {
        "symbol": ["A", "B", "A", "C"],
        "price": [1.5, 2.5, 3.5, None],
        "size": [2, 4, 6, 8],
        "worth": [1.5, 5.0, 10.5, None],
    }


def doubled(batch: Any) -> Any:
    import polars

    return batch.select(polars.col("size") * 2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("format", "function"),
    [
        (
            "arrow",
            lambda batch: batch.select(["size"]).set_column(
                0, "size", pa.array([2 * n for n in batch["size"].to_pylist()], pa.int64())
            ),
        ),
        ("polars", doubled),
        ("polars", lambda batch: doubled(batch.lazy())),
        ("pandas", lambda frame: frame[["size"]] * 2),
        ("numpy", lambda columns: {"size": columns["size"] * 2}),
    ],
)
def test_a_function_gets_batches_in_the_format_it_wants(workers: int, format: Any, function: Any) -> None:
    env = fn.Environment()
    collected = env.from_arrow(TRADES).map_batches(function, format=format).collect()
    env.execute(workers=workers)
    assert collected.to_arrow().to_pydict() == {"size": [2, 4, 6, 8]}


def test_what_a_function_returns_is_checked() -> None:
    def wrong(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"size": batch["size"].cast(pa.int32())})

    env = fn.Environment()
    env.from_arrow(TRADES).map_batches(wrong, schema={"size": "int64"}).collect()
    with pytest.raises(OperatorError, match="column 'size' is of type int32, where the schema says int64") as raised:
        env.execute(workers=0)
    assert raised.value.operator == "map_batches"

    env = fn.Environment()
    env.from_arrow(TRADES).map_batches(lambda batch: batch.select(["price"]), schema={"price": "float64!"}).collect()
    with pytest.raises(OperatorError, match="column 'price' has no value in row 3, where the schema says that all are"):
        env.execute(workers=0)

    env = fn.Environment()
    env.from_arrow(TRADES).map_batches(lambda batch: [batch] if len(batch) else batch).collect()
    with pytest.raises(OperatorError, match="it returned builtins.list, which is no batch|list"):
        env.execute(workers=0)


def test_an_exception_of_a_function_names_it() -> None:
    def fails(batch: Any) -> Any:
        raise KeyError("no such thing")

    env = fn.Environment()
    env.from_arrow(TRADES).map_batches(fails, schema={"a": "int64"}).name("score").collect()
    with pytest.raises(OperatorError, match="no such thing") as raised:
        env.execute(workers=0)
    assert raised.value.operator == "score"
    assert "fails" in str(raised.value.traceback)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda env: env.from_arrow([1, 2]), "takes a table or reader with the Arrow PyCapsule interface"),
        (lambda env: env.from_arrow(numbers), "needs schema="),
        (lambda env: env.from_arrow(TRADES, schema={"a": "int64"}), "says its own"),
        (lambda env: env.from_arrow(numbers, schema={"a": "int65"}), "int65 is no type of rows"),
        (
            lambda env: env.from_arrow(pa.table({"m": pa.array([], pa.month_day_nano_interval())})),
            "which rows cannot have",
        ),
        (lambda env: env.from_arrow(TRADES).filter(fn.col("size")), "a filter wants bool"),
        (lambda env: env.from_arrow(TRADES).filter(operator), "takes expressions"),
        (lambda env: env.from_arrow(TRADES).select(), "rows need at least one column"),
        (lambda env: env.from_arrow(TRADES).select("size", size=1), "two columns are called 'size'"),
        (lambda env: env.from_arrow(TRADES).select(fn.lit(1)), "has no column to be called by"),
        (
            lambda env: env.from_arrow(TRADES).rename({"size": "price"}),
            "rename: two columns would be called 'price': rename or drop the other one",
        ),
        (lambda env: env.from_arrow(TRADES).drop("sise"), "drop: there is no column 'sise'; there are 'symbol'"),
        (lambda env: env.from_arrow(TRADES).key_by("sise"), "there is no column 'sise'"),
        (
            lambda env: env.from_arrow(ALL_TYPES).key_by("list"),
            "keys are ints, floats, bool, utf8, binary, dates, times",
        ),
        (lambda env: env.from_arrow(TRADES).key_by(), "key_by\\(\\) needs names of columns"),
        (lambda env: env.from_arrow(TRADES).key_by("symbol", "symbol"), "two columns of one name: 'symbol', 'symbol'"),
        (lambda env: env.from_arrow(TRADES).key_by(fn.col("symbol").str.slice(0, 1)), "a column 'symbol' already"),
        (lambda env: env.from_arrow(TRADES).key_by("symbol").window("5s"), "window\\(\\) needs a window"),
        (
            lambda env: env.from_arrow(TRADES).key_by("symbol").window(fn.Global()).agg(n=fn.count()),
            "gives nothing out: .*EndOfInput",
        ),
        (lambda env: env.from_arrow(TRADES).key_by("symbol").running_agg(), "agg\\(\\) needs at least one column"),
        (lambda env: env.from_arrow(TRADES).key_by("symbol").running_agg(n=3), "takes an aggregate"),
        (
            lambda env: env.from_arrow(TRADES).key_by("symbol").running_agg(n=fn.sum("symbol")),
            "numbers, bools and durations",
        ),
        (
            lambda env: env.from_arrow(TRADES).key_by("symbol").running_agg(n=fn.sum("sise")),
            "there is no column 'sise'",
        ),
        (
            lambda env: env.from_arrow(TRADES).key_by("symbol").running_agg(symbol=fn.count()),
            "two columns of the result",
        ),
        (lambda env: env.from_arrow(TRADES, event_time="sise"), "there is no column 'sise'"),
        (lambda env: env.from_arrow(TRADES, event_time="symbol"), "event time is a timestamp"),
        (lambda env: env.from_arrow(TRADES).map_batches(3), "needs a function of a batch"),
        (lambda env: env.from_arrow(TRADES).map_batches(lambda batch: 3), "called its function with no rows"),
        (lambda env: env.from_arrow(TRADES).union(env.from_arrow(TRADES).drop("size")), "of the same columns"),
        (lambda env: env.from_arrow(TRADES).select(x="symbol"), r"write fn\.col\('symbol'\).*fn\.lit\('symbol'\)"),
    ],
)
def test_mistakes_are_told_before_anything_runs(env: fn.Environment, make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make(env)


@pytest.mark.parametrize(
    ("miss", "message"),
    [
        (
            lambda rows: rows.window(fn.Tumbling("1s")),
            r"window\(\) works by key: call key_by\(\) before it, such as .key_by",
        ),
        (lambda rows: rows.agg(n=fn.count()), r"group_by\(all=fn\.lit\(0\)\)\.agg\(\.\.\.\) to take all rows together"),
        (
            lambda rows: rows.key_by("symbol").agg(n=fn.count()),
            r"rows\.group_by\(\.\.\.\)\.agg\(\.\.\.\) gives one row",
        ),
        (lambda rows: rows.group_by("symbol").window(fn.EndOfInput()), r"use key_by\(\.\.\.\)\.window\(\.\.\.\)"),
        (lambda rows: rows.map(str), r"map\(\) is of streams of objects: rows\.to_objects\(\)\.map\(\.\.\.\)"),
        (lambda rows: rows.print(), r"rows\.to_objects\(\)\.print\(\.\.\.\)"),
        (lambda rows: rows.nothing(), "'Rows' object has no attribute 'nothing'"),
        (lambda rows: rows.key_by("size").filter(fn.col("size") > 1), r"filter\(\) is of rows.*before key_by\(\)"),
        (lambda rows: rows.key_by("size").count_window(3), r"rows\.to_objects\(\)\.key_by\(\.\.\.\)\.count_window"),
        (lambda rows: rows.key_by("size").nothing(), "'KeyedRows' object has no attribute 'nothing'"),
    ],
)
def test_what_rows_do_not_have_says_where_it_is(env: fn.Environment, miss: Any, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        miss(env.from_arrow(TRADES))


def test_two_columns_of_one_name_are_refused(env: fn.Environment) -> None:
    with pytest.raises(PlanError, match="two columns are called 'a'"):
        env.from_arrow(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_texts_that_pandas_and_numpy_have_as_objects_keep_their_type(env: fn.Environment) -> None:
    table = pa.table({"n": [1, 2], "text": pa.array([None, None], pa.string())})
    rows = env.from_arrow(table)
    frames = rows.map_batches(lambda frame: frame.assign(m=frame["n"] * 2), format="pandas")
    arrays = rows.map_batches(lambda arrays: {"text": arrays["text"]}, format="numpy")
    assert frames.schema["text"] == arrays.schema["text"] == "utf8"
    framed, arrayed = frames.collect(), arrays.collect()
    env.execute(workers=0)
    assert framed.to_arrow()["text"].to_pylist() == arrayed.to_arrow()["text"].to_pylist() == [None, None]


def test_a_format_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of 'arrow', 'polars', 'pandas', 'numpy'"):
        fn.Environment().from_arrow(TRADES).map_batches(len, format="spark")  # type: ignore[arg-type]


def test_a_stream_that_fails_names_the_source() -> None:
    def batches() -> Any:
        yield pa.record_batch({"n": [1]})
        raise OSError("the disk is gone")

    env = fn.Environment()
    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    env.from_arrow(reader).collect()
    with pytest.raises(OperatorError, match="batch behind row 1 of the stream: .*the disk is gone") as raised:
        env.execute(workers=0)
    assert raised.value.operator == "from_arrow"


def test_rows_without_a_time_name_row_and_column() -> None:
    env = fn.Environment()
    times = pa.table({"when": [datetime(2024, 1, 1, tzinfo=UTC), None]})
    env.from_arrow(times, event_time="when").collect()
    with pytest.raises(OperatorError, match="row 1 of a batch of 2 has no time in column 'when'"):
        env.execute(workers=0)


def test_rows_show_their_columns_and_the_plan_their_operators(env: fn.Environment) -> None:
    rows = env.from_arrow(TRADES).filter(fn.col("size") > 1)
    assert str(rows) == "Rows from filter\n  symbol  utf8\n  price   float64\n  size    int64"
    rows.key_by("symbol").running_agg(n=fn.count()).collect()
    plan = env.explain()
    assert "filter" in plan
    assert "partial agg" in plan
    assert "keyed" in plan


def test_several_readers_get_all_rows(env: fn.Environment) -> None:
    rows = env.from_arrow(TRADES)
    small, large = rows.filter(fn.col("size") < 3).collect(), rows.filter(fn.col("size") >= 3).collect()
    both = rows.union(rows).collect()
    env.execute(workers=0)
    assert (len(small), len(large), len(both)) == (2, 2, 8)


def test_rows_become_objects_of_every_type_with_their_times(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    records = env.from_arrow(ALL_TYPES).to_objects().collect()
    tuples = env.from_arrow(TRADES).to_objects(as_dicts=False).map(lambda row: row[0]).collect()
    env.execute(workers=workers)
    assert sorted(records, key=repr) == sorted(ALL_TYPES.to_pylist(), key=repr)
    assert sorted(tuples) == ["A", "A", "B", "C"]


def test_objects_made_of_rows_are_in_the_windows_of_their_time() -> None:
    env = fn.Environment()
    clicks = pa.table({"user": ["a", "a", "a"], "ms": [1_000, 2_000, 61_000]})
    records = env.from_arrow(clicks, event_time="ms").drop("ms").to_objects()
    collected = records.key_by(lambda row: row["user"]).window(fn.Tumbling("60s")).count().collect()
    env.execute(workers=0)
    assert sorted(collected) == [("a", 1), ("a", 2)]


def test_lists_are_exploded_into_rows_with_their_times() -> None:
    env = fn.Environment()
    lists = pa.table({"ms": [1, 2, 3, 4], "items": [[1, 2], [], None, [None, 3]]})
    exploded = env.from_arrow(lists, event_time="ms").explode("items")
    assert exploded.schema == {"ms": "int64", "items": "int64"}
    per_ms = exploded.key_by("ms").window(fn.Tumbling("1ms")).agg(n=fn.count()).collect()
    rows = exploded.collect()
    env.execute(workers=0)
    assert rows.to_arrow().to_pydict() == {"ms": [1, 1, 4, 4], "items": [1, 2, None, 3]}
    assert sorted(per_ms.to_arrow()["ms"].to_pylist()) == [1, 4]
    with pytest.raises(PlanError, match="column 'ms' is of type int64, and no list"):
        exploded.explode("ms")


def test_of_nanoseconds_whole_microseconds_are_left() -> None:
    env = fn.Environment()
    times = pa.table({"when": pa.array([1999, -1], pa.timestamp("ns"))})
    records = env.from_arrow(times).to_objects(as_dicts=False).collect()
    env.execute(workers=0)
    assert list(records) == [(datetime(1970, 1, 1, 0, 0, 0, 1),), (datetime(1969, 12, 31, 23, 59, 59, 999_999),)]


def test_keys_are_worked_out(workers: int) -> None:
    clicks = pa.table({"user": ["ann", "bob", "al", None], "n": [1, 2, 3, 4]})
    env = fn.Environment(parallelism=2)
    keyed = env.from_arrow(clicks).key_by(
        odd=fn.col("n") % 2, initial=fn.col("user").str.slice(0, 1).str.to_uppercase()
    )
    assert "initial" in repr(keyed)
    sums = keyed.window(fn.EndOfInput()).agg(total=fn.sum("n"), users=fn.count("user")).collect()
    env.execute(workers)
    found = {tuple(row.values()) for row in sums.to_arrow().to_pylist()}
    assert found == {(1, "A", 4, 2), (0, "B", 2, 1), (0, None, 4, 0)}


def test_a_notebook_shows_the_first_rows() -> None:
    env = fn.Environment(parallelism=1)
    texts = ["<b>", None, "x" * 200, *(str(number) for number in range(20))]
    collected = env.from_arrow(pa.table({"a&b": texts})).collect()
    assert "0 rows" in collected._repr_html_()
    env.execute(workers=0)
    shown = collected._repr_html_()
    assert "23 rows of a&amp;b: utf8" in shown
    assert "<td>&lt;b&gt;</td></tr><tr><td></td>" in shown
    assert f"<td>{'x' * 100}...</td>" in shown
    assert shown.count("<tr>") == 11
