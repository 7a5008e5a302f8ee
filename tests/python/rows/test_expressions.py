"""Expressions of rows, each beside the same one of polars on columns that nobody chose."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet.errors import OperatorError, PlanError
from flownet.rows.expressions import MOST_DEPTH

Make = Callable[[Any], Any]

COLUMNS = {
    "i": st.none() | st.integers(-1000, 1000),
    "j": st.none() | st.integers(-20, 20).filter(bool),
    "u": st.none() | st.integers(0, 255),
    "x": st.none() | st.floats(-1e6, 1e6),
    "y": st.none() | st.floats(0.5, 100),
    "b": st.none() | st.booleans(),
    "c": st.none() | st.booleans(),
    "s": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
    "t": st.none() | st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)),
}
TYPES = {
    "i": pa.int64(),
    "j": pa.int32(),
    "u": pa.uint8(),
    "x": pa.float64(),
    "y": pa.float64(),
    "b": pa.bool_(),
    "c": pa.bool_(),
    "s": pa.string(),
    "t": pa.timestamp("us"),
}
TABLES = st.lists(st.tuples(*COLUMNS.values()), min_size=0, max_size=40).map(
    lambda rows: pa.table({name: pa.array([row[at] for row in rows], TYPES[name]) for at, name in enumerate(COLUMNS)})
)


def both(of: Make) -> tuple[Any, Any]:
    """Make the expression of flownet's names, and of polars'."""
    return of(fn), of(pl)


EXPRESSIONS: dict[str, Make] = {
    "add": lambda m: m.col("i") + m.col("j"),
    "add written": lambda m: m.col("i") + 7,
    "subtract": lambda m: 3 - m.col("i"),
    "multiply": lambda m: m.col("i") * m.col("j") * 2,
    "mixed": lambda m: m.col("i") * m.col("x") + 1,
    "divide": lambda m: m.col("i") / m.col("y"),
    "divide ints": lambda m: m.col("i") / m.col("j"),
    "floor divide": lambda m: m.col("i") // m.col("j"),
    "floor divide floats": lambda m: m.col("x") // m.col("y"),
    "modulo": lambda m: m.col("i") % m.col("j"),
    "negate": lambda m: -m.col("i"),
    "abs": lambda m: m.col("i").abs(),
    "floor": lambda m: m.col("x").floor(),
    "ceil": lambda m: m.col("x").ceil(),
    "sqrt": lambda m: m.col("y").sqrt(),
    "compare": lambda m: m.col("i") < m.col("j"),
    "compare written": lambda m: m.col("x") >= 0.5,
    "compare int with float": lambda m: m.col("i") > 2.5,
    "compare texts": lambda m: m.col("s") < "m",
    "equal": lambda m: m.col("u") == 3,
    "equal texts": lambda m: m.col("s") == "",
    "unequal": lambda m: m.col("i") != m.col("u"),
    "and": lambda m: m.col("b") & m.col("c"),
    "or": lambda m: m.col("b") | m.col("c"),
    "xor": lambda m: m.col("b") ^ m.col("c"),
    "not": lambda m: ~m.col("b"),
    "null": lambda m: m.col("x").is_null(),
    "not null": lambda m: m.col("s").is_not_null(),
    "fill": lambda m: m.col("i").fill_null(-1),
    "fill from a column": lambda m: m.col("i").fill_null(m.col("j")),
    "is in": lambda m: m.col("i").is_in([1, 2, 3, 500]),
    "is in texts": lambda m: m.col("s").is_in(["", "a"]),
    "between": lambda m: m.col("i").is_between(-5, m.col("j")),
    "cast to float": lambda m: m.col("i").cast("float64" if m is fn else pl.Float64),
    "cast to text": lambda m: m.col("i").cast("utf8" if m is fn else pl.String),
    "cast loosely": lambda m: (
        m.col("s").cast("int64" if m is fn else pl.Int64, strict=False).is_null() & m.col("s").is_null()
    ),
    "coalesce": lambda m: (m.col("j") + 0).fill_null(m.col("i")),
    "when": lambda m: m.when(m.col("b")).then(m.col("i")).otherwise(m.col("j")),
    "when without otherwise": lambda m: m.when(m.col("i") > 0).then(m.col("x")),
    "when often": lambda m: (
        m.when(m.col("i") > 10)
        .then(1)
        .when(m.col("i") > 0)
        .then(2)
        .otherwise(m.lit(3).cast("int64" if m is fn else pl.Int64))
    ),
    "lower": lambda m: m.col("s").str.to_lowercase(),
    "upper": lambda m: m.col("s").str.to_uppercase(),
    "length": lambda m: m.col("s").str.len_chars(),
    "bytes": lambda m: m.col("s").str.len_bytes(),
    "contains": lambda m: m.col("s").str.contains("[a-e]+"),
    "contains literally": lambda m: m.col("s").str.contains(".", literal=True),
    "starts": lambda m: m.col("s").str.starts_with("a"),
    "ends": lambda m: m.col("s").str.ends_with("b"),
    "slice": lambda m: m.col("s").str.slice(1, 3),
    "slice from the end": lambda m: m.col("s").str.slice(-3, 2),
    "replace": lambda m: m.col("s").str.replace_all("[aeiou]", "<$0>"),
    "extract": lambda m: m.col("s").str.extract("([0-9])([a-z])", 2),
    "split": lambda m: m.col("s").str.split(" "),
    "year": lambda m: m.col("t").dt.year(),
    "month": lambda m: m.col("t").dt.month(),
    "day": lambda m: m.col("t").dt.day(),
    "hour": lambda m: m.col("t").dt.hour(),
    "minute": lambda m: m.col("t").dt.minute(),
    "second": lambda m: m.col("t").dt.second(),
    "millisecond": lambda m: m.col("t").dt.millisecond(),
    "weekday": lambda m: m.col("t").dt.weekday(),
    "ordinal day": lambda m: m.col("t").dt.ordinal_day(),
    "date": lambda m: m.col("t").dt.date(),
    "truncate": lambda m: m.col("t").dt.truncate("1h"),
    "later": lambda m: m.col("t") + timedelta(minutes=5),
    "span": lambda m: m.col("t") - datetime(2000, 1, 1),
    "compare times": lambda m: m.col("t") < datetime(2000, 1, 1),
}


def run(rows: fn.Rows, env: fn.Environment) -> pa.Table:
    collected = rows.collect()
    env.execute(workers=0)
    return collected.to_arrow()


@given(table=TABLES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_all_expressions_are_those_of_polars(table: pa.Table) -> None:
    made = {name: both(of) for name, of in EXPRESSIONS.items()}
    env = fn.Environment()
    rows = env.from_arrow(table).select(**{name: ours for name, (ours, _) in made.items()})
    found = run(rows, env)
    expected = pl.DataFrame(table).select(**{name: theirs for name, (_, theirs) in made.items()})
    assert found.num_rows == expected.height
    for name in made:
        ours, theirs = found[name].to_pylist(), expected[name].to_list()
        assert all(is_same(*pair) for pair in zip(ours, theirs, strict=True)), (name, ours, theirs)


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (
            math.isclose(one, other, rel_tol=1e-12)
            or (math.isnan(one) and math.isnan(other))
            or abs(one - other) < 1e-6
        )
    return bool(one == other)


@given(table=TABLES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_filter_keeps_what_polars_keeps(table: pa.Table) -> None:
    ours, theirs = both(lambda m: (m.col("i") > m.col("j")) | m.col("b"))
    env = fn.Environment()
    found = run(env.from_arrow(table).filter(ours), env)
    assert found.to_pylist() == pl.DataFrame(table).filter(theirs).to_dicts()


def test_an_expression_is_shown_as_it_was_written() -> None:
    shown = repr(fn.when(~(fn.col("a") * 0.5 > 3)).then(fn.col("t").dt.truncate("1h")).otherwise(None))
    assert shown == 'when(~((col("a") * 0.5) > 3)).then(col("t").dt.truncate(\'1h\')).otherwise(None)'


def test_an_expression_is_no_truth() -> None:
    with pytest.raises(TypeError, match="write & | ~ in place"):
        bool(fn.col("a") > 1)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: fn.col("z"), "there is no column 'z'; there are 'i', 's', 't'"),
        (lambda: fn.col("s") + 1, "there is no such thing of utf8 and int64: cast one of them"),
        (lambda: fn.col("i") & True, "is of type int64, and not bool: compare it"),
        (lambda: fn.col("i").str.len_chars(), "and not utf8"),
        (lambda: fn.col("s").dt.year(), "it takes timestamps and dates, not utf8"),
        (lambda: fn.col("s").str.contains("("), "unclosed group"),
        (lambda: fn.col("s").str.extract("(a)", 2), "groups 0 to 1, and no group 2"),
        (lambda: fn.col("i").cast("int65"), "'?int65\"? is no type of rows"),
        (lambda: fn.col("i").is_in(["a"]), "a value of type utf8 is never one of int64"),
        (lambda: fn.col("i").is_in(5), r"is_in\(\) takes a list of values, such as \[1, 2\], not 5"),  # type: ignore[arg-type]
        (lambda: fn.col("s").is_in("ab"), r"is_in\(\) takes a list of values, such as \[1, 2\], not 'ab'"),
        (lambda: fn.col("t") < datetime(2000, 1, 1, tzinfo=UTC), "never mix"),
        (lambda: fn.col("t").cast("timestamp[us, UTC]"), "by a cast"),
        (lambda: fn.col("t") * 2, "there is no such thing of timestamp"),
        (lambda: -fn.col("s"), "has no such thing"),
        (lambda: fn.lit(None), "of type Null"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(expression: Callable[[], fn.Expr], message: str) -> None:
    table = pa.table({"i": [1], "s": ["a"], "t": [datetime(2000, 1, 1)]})
    with pytest.raises(PlanError, match=message):
        fn.Environment().from_arrow(table).select(made=expression())


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: fn.col("i") + 1, r"\(col\(\"i\"\) \+ 1\) in row 2 of a batch, of 9223372036854775807 and 1: Overflow"),
        (lambda: fn.col("i") // fn.col("zero"), "in row 0 .*: .*[Dd]ivi"),
        (lambda: fn.col("s").cast("int64"), "in row 1 of a batch, of two: "),
        (lambda: fn.col("i").cast("int8"), "in row 2"),
    ],
)
def test_a_value_that_has_none_names_expression_row_and_values(expression: Callable[[], fn.Expr], message: str) -> None:
    table = pa.table({"i": [1, 2, 2**63 - 1], "zero": [0, 0, 0], "s": ["1", "two", "3"]})
    env = fn.Environment()
    env.from_arrow(table).select(made=expression()).collect()
    with pytest.raises(OperatorError, match=message) as raised:
        env.execute(workers=0)
    assert raised.value.operator == "select"


def test_a_branch_that_is_not_taken_cannot_fail() -> None:
    env = fn.Environment()
    table = pa.table({"a": [6, 7, None], "b": [3, 0, 1]})
    safe = fn.when(fn.col("b") != 0).then(fn.col("a") // fn.col("b")).otherwise(-1)
    assert run(env.from_arrow(table).select(safe=safe), env)["safe"].to_pylist() == [2, -1, None]


def test_written_values_take_the_type_of_what_they_stand_beside() -> None:
    env = fn.Environment()
    schema = pa.schema(
        [("small", pa.int8()), ("single", pa.float32()), ("day", pa.date32()), ("ms", pa.timestamp("ms"))]
    )
    table = pa.table([[1], [1.5], [date(2000, 1, 1)], [datetime(2000, 1, 1)]], schema=schema)
    rows = env.from_arrow(table).select(
        small=fn.col("small") + 1,
        wide=fn.col("small") + 1000,
        single=fn.col("single") * 0.9,
        day=fn.col("day") == date(2000, 1, 1),
        ms=fn.col("ms") + timedelta(seconds=1),
        us=fn.col("ms") + timedelta(microseconds=1),
    )
    assert rows.schema == {
        "small": "int8",
        "wide": "int64",
        "single": "float32",
        "day": "bool",
        "ms": "timestamp[ms]",
        "us": "timestamp[us]",
    }


def test_an_expression_that_nests_too_deep_is_refused_and_none_below_that_fails() -> None:
    rows = pa.table({"a": [1, 2]})

    def nested(depth: int) -> fn.Expr:
        expression = fn.col("a")
        for _ in range(depth - 1):
            expression = expression + 1
        return expression

    result = fn.Environment().from_arrow(rows).select(b=nested(MOST_DEPTH)).to_arrow()
    assert result.column("b").to_pylist() == [MOST_DEPTH, MOST_DEPTH + 1]
    wide = fn.col("a").is_in(list(range(10_000))) | (fn.col("a") > 3)
    assert fn.Environment().from_arrow(rows).filter(wide).to_arrow().num_rows == 2, "width is no depth"
    with pytest.raises(fn.errors.PlanError, match=rf"nests {MOST_DEPTH + 1} operations.*with_columns"):
        nested(4_000)
