"""Functions of expressions: each is compared with another engine on random columns, and its example is run."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import flownet as fn
from flownet.errors import OperatorError, PlanError

from .function_methods import documents, generated
from .test_expressions import EXPRESSIONS

LETTERS = st.text("aBcéßñ 0-,.%_\\x\U0001f600", max_size=8)
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, math.pi])
WHOLE = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])

COLUMNS = {
    "i": (WHOLE, pa.int64()),
    "j": (WHOLE, pa.int64()),
    "b": (st.integers(-128, 127), pa.int8()),
    "u": (st.integers(0, 2**64 - 1), pa.uint64()),
    "k": (st.integers(0, 12), pa.int64()),
    "n": (st.integers(-9, 9), pa.int64()),
    "code": (st.integers(1, 0xD7FF), pa.int64()),
    "x": (FLOATS, pa.float64()),
    "y": (FLOATS, pa.float64()),
    "z": (st.floats(-50, 50), pa.float64()),
    "f": (st.floats(width=32), pa.float32()),
    "s": (LETTERS, pa.string()),
    "p": (st.text("aB,-", max_size=2), pa.string()),
    "w": (ANY_TEXT, pa.string()),
    "t": (st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), pa.timestamp("us")),
    "v": (st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), pa.timestamp("us")),
    "d": (st.dates(date(1900, 1, 1), date(2200, 1, 1)), pa.date32()),
}
ROW = st.tuples(*(st.none() | values for values, _ in COLUMNS.values()))


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [pa.array([row[at] for row in rows], kind) for at, (_, kind) in enumerate(COLUMNS.values())]
    return pa.table(arrays, names=list(COLUMNS))


TABLES = st.lists(ROW, max_size=30).map(table_of)


def col(name: str) -> Any:
    return fn.col(name)


OF_POLARS: dict[str, tuple[Any, pl.Expr]] = {
    "log": (col("x").log(col("y")), pl.col("x").log() / pl.col("y").log()),
    "sinh": (col("z").sinh(), pl.col("z").sinh()),
    "cosh": (col("z").cosh(), pl.col("z").cosh()),
    "tanh": (col("x").tanh(), pl.col("x").tanh()),
    "degrees": (col("x").degrees(), pl.col("x").degrees()),
    "radians": (col("x").radians(), pl.col("x").radians()),
    "cbrt": (col("x").cbrt(), pl.col("x").cbrt()),
    "sign of floats": (col("x").sign(), pl.col("x").sign()),
    "sign": (col("i").sign(), pl.col("i").sign()),
    "sign of bytes": (col("b").sign(), pl.col("b").sign()),
    "bitwise_not": (col("b").bitwise_not(), ~pl.col("b")),
    "bitwise_not unsigned": (col("u").bitwise_not(), ~pl.col("u")),
    "bitwise_count_ones": (col("b").bitwise_count_ones(), pl.col("b").bitwise_count_ones()),
    # In polars, words end at digits; in SQL engines they do not.
    "str.initcap": (
        col("s").str.replace_all("0", "-").str.initcap(),
        pl.col("s").str.replace_all("0", "-").str.to_titlecase(),
    ),
    "str.strip_chars": (col("w").str.strip_chars(), pl.col("w").str.strip_chars()),
    "str.strip_chars_start": (col("w").str.strip_chars_start(), pl.col("w").str.strip_chars_start()),
    "str.strip_chars_end": (col("w").str.strip_chars_end(), pl.col("w").str.strip_chars_end()),
    "str.starts_with": (col("s").str.starts_with(col("p")), pl.col("s").str.starts_with(pl.col("p"))),
    "str.ends_with": (col("s").str.ends_with(col("p")), pl.col("s").str.ends_with(pl.col("p"))),
    "str.reverse": (col("s").str.reverse(), pl.col("s").str.reverse()),
    "str.count_matches": (col("s").str.count_matches("[a-c]"), pl.col("s").str.count_matches("[a-c]")),
    "str.replace": (col("s").str.replace("(a|B)", "<$1>"), pl.col("s").str.replace("(a|B)", "<$1>")),
    "str.replace literally": (
        col("s").str.replace(".", "$1", literal=True),
        pl.col("s").str.replace(".", "$1", literal=True),
    ),
    "str.extract_all": (col("s").str.extract_all("[a-c]+"), pl.col("s").str.extract_all("[a-c]+")),
    "fn.concat": (fn.concat(col("s"), "-", col("w")), pl.concat_str([pl.col("s"), pl.lit("-"), pl.col("w")])),
    "dt.iso_year": (col("t").dt.iso_year(), pl.col("t").dt.iso_year()),
    "dt.iso_year of dates": (col("d").dt.iso_year(), pl.col("d").dt.iso_year()),
    "dt.quarter": (col("d").dt.quarter(), pl.col("d").dt.quarter()),
    "dt.week": (col("t").dt.week(), pl.col("t").dt.week()),
    "dt.microsecond": (col("t").dt.microsecond(), pl.col("t").dt.microsecond()),
    "dt.nanosecond": (col("t").dt.nanosecond(), pl.col("t").dt.nanosecond()),
    "dt.epoch": (col("t").dt.epoch(), pl.col("t").dt.epoch("ms")),
}

OF_PYARROW: dict[str, tuple[Any, Callable[[pa.Table], Any]]] = {
    "sqrt": (col("x").sqrt(), lambda of: pc.sqrt(of["x"])),
    "exp": (col("x").exp(), lambda of: pc.exp(of["x"])),
    "ln": (col("x").ln(), lambda of: pc.ln(of["x"])),
    "ln of integers": (col("i").ln(), lambda of: pc.ln(of["i"].cast("float64", safe=False))),
    "log2": (col("x").log2(), lambda of: pc.log2(of["x"])),
    "log10": (col("x").log10(), lambda of: pc.log10(of["x"])),
    "log1p": (col("x").log1p(), lambda of: pc.log1p(of["x"])),
    "sin": (col("x").sin(), lambda of: pc.sin(of["x"])),
    "cos": (col("x").cos(), lambda of: pc.cos(of["x"])),
    "tan": (col("x").tan(), lambda of: pc.tan(of["x"])),
    "asin": (col("x").asin(), lambda of: pc.asin(of["x"])),
    "acos": (col("x").acos(), lambda of: pc.acos(of["x"])),
    "atan": (col("x").atan(), lambda of: pc.atan(of["x"])),
    "atan2": (col("y").atan2(col("x")), lambda of: pc.atan2(of["y"], of["x"])),
    "trunc": (col("x").trunc(), lambda of: pc.trunc(of["x"])),
    "trunc of float32": (col("f").trunc(), lambda of: pc.trunc(of["f"])),
    "trunc of integers": (col("i").trunc(), lambda of: of["i"]),
    "bitwise_and": (col("i").bitwise_and(col("j")), lambda of: pc.bit_wise_and(of["i"], of["j"])),
    "bitwise_or": (col("i").bitwise_or(col("b")), lambda of: pc.bit_wise_or(of["i"], of["b"].cast("int64"))),
    "bitwise_xor": (col("u").bitwise_xor(7), lambda of: pc.bit_wise_xor(of["u"], pa.scalar(7, pa.uint64()))),
    "bitwise_shift_left": (col("k").bitwise_shift_left(col("k")), lambda of: pc.shift_left(of["k"], of["k"])),
    "bitwise_shift_right": (col("i").bitwise_shift_right(col("k")), lambda of: pc.shift_right(of["i"], of["k"])),
}

OF_DUCKDB: dict[str, tuple[Any, str]] = {
    "nullif": (col("k").nullif(col("n")), "nullif(k, n)"),
    "nullif text": (col("s").nullif("a"), "nullif(s, 'a')"),
    "fn.greatest": (fn.greatest(col("x"), col("y"), 0.5), "greatest(x, y, 0.5)"),
    "fn.greatest of integers": (fn.greatest(col("i"), col("j")), "greatest(i, j)"),
    "fn.greatest of times": (fn.greatest(col("t"), col("v")), "greatest(t, v)"),
    "fn.least": (fn.least(col("x"), col("y")), "least(x, y)"),
    "fn.least of texts": (fn.least(col("s"), col("p"), "b"), "least(s, p, 'b')"),
    "str.left": (col("s").str.left(col("n")), "left(s, n)"),
    "str.right": (col("s").str.right(col("n")), "right(s, n)"),
    "str.lpad": (col("s").str.lpad(col("k"), "xé"), "lpad(s, k::int, 'xé')"),
    "str.rpad": (col("s").str.rpad(col("k"), "xé"), "rpad(s, k::int, 'xé')"),
    "str.repeat": (col("s").str.repeat(col("n")), "repeat(s, n)"),
    "str.position": (col("s").str.position(col("p")), "instr(s, p)"),
    "str.translate": (col("s").str.translate("aB,-a", "xy"), "translate(s, 'aB,-a', 'xy')"),
    "str.split_part": (col("s").str.split_part(",", col("n").nullif(0)), "split_part(s, ',', nullif(n, 0))"),
    "str.ascii": (col("w").str.ascii(), "ascii(w)"),
    "chr": (col("code").chr(), "chr(code::int)"),
    "fn.concat_ws": (fn.concat_ws("-", col("s"), None, col("w")), "concat_ws('-', s, null, w)"),
    "fn.concat_ws of columns": (fn.concat_ws(col("p"), col("s"), col("w")), "concat_ws(p, s, w)"),
    "str.md5": (col("w").str.md5(), "md5(w)"),
    "str.sha256": (col("w").str.sha256(), "sha256(w)"),
    "str.like": (col("s").str.like("_%a"), "s like '_%a'"),
    "str.like escaped": (col("s").str.like("%\\%%"), "s like '%\\%%' escape '\\'"),
    "str.ilike": (col("s").str.ilike("%b_"), "s ilike '%b_'"),
    **{
        f"dt.date_diff {unit}": (col("t").dt.date_diff(col("v"), unit), f"date_diff('{unit}', v, t)")
        for unit in ("year", "quarter", "month", "day", "hour", "minute", "second", "millisecond")
    },
    # Of a Sunday before 1970, DuckDB's own difference of weeks is wrong by one.
    "dt.date_diff week": (
        col("t").dt.date_diff(col("v"), "week"),
        "date_diff('day', date_trunc('week', v), date_trunc('week', t)) // 7",
    ),
    "dt.date_diff of dates": (col("d").dt.date_diff(col("t"), "day"), "date_diff('day', t::date, d)"),
}

ELSEWHERE = {"dt.truncate": "test_times.py", "round": "test_decimals.py"}
"""Functions that have an oracle in another file."""


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-300)
    return bool(one == other)


def compare(table: pa.Table, ours: dict[str, Any], expected: dict[str, list[Any]]) -> None:
    found = fn.Environment().from_arrow(table).select(**ours).to_arrow()
    for name in ours:
        values = found[name].to_pylist()
        assert len(values) == len(expected[name])
        for row, pair in enumerate(zip(values, expected[name], strict=True)):
            assert is_same(*pair), (name, table.slice(row, 1).to_pylist(), pair)


COMMON = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(table=TABLES)
@COMMON
def test_functions_are_those_of_polars(table: pa.Table) -> None:
    frame = pl.DataFrame(table).select(**{name: theirs for name, (_, theirs) in OF_POLARS.items()})
    ours = {name: ours for name, (ours, _) in OF_POLARS.items()}
    compare(table, ours, {name: frame[name].to_list() for name in ours})


@given(table=TABLES)
@COMMON
def test_functions_are_those_of_pyarrow(table: pa.Table) -> None:
    ours = {name: ours for name, (ours, _) in OF_PYARROW.items()}
    compare(table, ours, {name: theirs(table).to_pylist() for name, (_, theirs) in OF_PYARROW.items()})


@given(table=TABLES)
@COMMON
def test_functions_are_those_of_duckdb(table: pa.Table) -> None:
    ours = {name: ours for name, (ours, _) in OF_DUCKDB.items()}
    chosen = ", ".join(f'{sql} as "{name}"' for name, (_, sql) in OF_DUCKDB.items())
    with duckdb.connect() as connection:
        connection.register("given", table)
        theirs = connection.sql(f"select {chosen} from given").to_arrow_table()
    compare(table, ours, {name: theirs[name].to_pylist() for name in ours})


def test_every_function_is_compared() -> None:
    compared = {name.split(" ")[0] for peers in (OF_POLARS, OF_PYARROW, OF_DUCKDB) for name in peers}
    shown = " ".join(repr(make(fn)) for make in EXPRESSIONS.values())
    for function in documents():
        space, name = function["namespace"], function["name"]
        full = name if space == "value" else f"{space}.{name}"
        known = full in compared or full in ELSEWHERE or f".{full}(" in shown
        assert known, f"{full} has no entry in EXPRESSIONS or in this file"


def test_the_examples_of_the_registry_are_right() -> None:
    names = {"fn": fn, "date": date, "datetime": datetime}
    one_row = fn.Environment().from_arrow(pa.table({"a": [1]}))
    examples = {str(at): function for at, function in enumerate(documents())}
    made = {at: eval(function["example"], names) for at, function in examples.items()}
    found = one_row.select(**made).to_arrow().to_pylist()[0]
    for at, function in examples.items():
        assert repr(found[at]) == function["value"], function["example"]


def test_generated_files_are_those_of_the_registry() -> None:
    for path, text in generated().items():
        assert path.read_text() == text, f"{path.name} is old: run make functions"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: fn.col("s").sin(), r'col\("s"\).sin\(\): col\("s"\) is of type utf8, which has no such thing'),
        (lambda: fn.col("x").bitwise_not(), r'col\("x"\) is of type float64, and not an integer: col\("x"\).cast'),
        (lambda: fn.col("s").str.left("a"), r'"a" is of type utf8, and not an integer'),  # type: ignore[arg-type]
        (lambda: fn.col("s").str.like("a\\"), "ends with a backslash"),
        (lambda: fn.col("s").str.contains(fn.col("s")), r"pattern is one value for all rows, not col\(\"s\"\)"),  # type: ignore[arg-type]
        (lambda: fn.col("s").str.split(""), "a text is split by one that is not empty"),
        (lambda: fn.col("s").str.split(3), "by is a string, not 3"),  # type: ignore[arg-type]
        (lambda: fn.col("x").round(16), r"round\(16\): a float has 0 to 15 decimals"),
        (lambda: fn.col("s").str.slice(0, -1), r"str.slice\(0, -1\): a length is not below 0"),
        (lambda: fn.greatest(fn.col("x"), fn.col("s")), "float64 and utf8 have no type in common"),
        (lambda: fn.greatest(fn.col("x")), "it takes 2 or more arguments, not 1"),
        (lambda: fn.concat(fn.col("s"), fn.col("x")), r'col\("x"\) is of type float64, and not utf8'),
        (lambda: fn.col("d").dt.date_diff(date(2000, 1, 1), "days"), '"days" is no unit: take year'),
        (lambda: fn.col("t").dt.truncate("1us"), "a whole number of milliseconds, at least 1"),
    ],
)
def test_wrong_arguments_are_refused_by_the_plan(expression: Callable[[], fn.Expr], message: str) -> None:
    table = pa.table({"x": [1.0], "s": ["a"], "d": [date(2000, 1, 1)], "t": [datetime(2000, 1, 1)]})
    with pytest.raises(PlanError, match=message):
        fn.Environment().from_arrow(table).select(made=expression())


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (lambda: fn.col("n").bitwise_shift_left(62), r"in row 1 of a batch, of 2 and 62: .*more than Int64 can hold"),
        (lambda: fn.col("n").bitwise_shift_left(-1), r"in row 0 of a batch, of 1 and -1: a shift is by 0 to"),
        (lambda: fn.col("s").str.split_part(",", fn.col("n") - 2), "in row 1 of a batch, of b and 0: parts are"),
        (lambda: fn.col("s").str.repeat(2**40), "in row 0 .*: it makes 1099511627776 bytes of text"),
        (lambda: fn.col("s").str.lpad(5, ""), "in row 0 of a batch, of a and 5 and : an empty text fills nothing"),
        (lambda: (fn.col("n") + 0xD7FF).chr(), "in row 0 of a batch, of 55296: no character has this code point"),
        (lambda: fn.col("b").abs(), "in row 1 of a batch, of -128: it is more than Int8 can hold"),
    ],
)
def test_a_value_without_a_result_names_expression_row_and_values(
    expression: Callable[[], fn.Expr], message: str
) -> None:
    env = fn.Environment()
    table = pa.table({"n": [1, 2], "s": ["a", "b"], "b": pa.array([1, -128], pa.int8())})
    env.from_arrow(table).select(made=expression()).collect()
    with pytest.raises(OperatorError, match=message):
        env.execute(workers=0)


def test_a_call_is_shown_as_it_was_written() -> None:
    written = fn.greatest(fn.col("s").str.replace("a", "b", literal=True).str.slice(1), fn.col("p").str.left(2), "x")
    assert repr(written) == (
        "greatest(col(\"s\").str.replace('a', 'b', literal=True).str.slice(1), col(\"p\").str.left(2), 'x')"
    )
    with pytest.raises(PlanError) as raised:
        fn.Environment().from_arrow(pa.table({"s": ["a"], "p": ["b"]})).select(made=written + 1)
    assert 'greatest(col("s").str.replace("a", "b", literal=True).str.slice(1), col("p").str.left(2), "x")' in str(
        raised.value
    )


def test_nothing_but_null_is_null() -> None:
    one_row = fn.Environment().from_arrow(pa.table({"s": ["a"]}))
    found = one_row.select(joined=fn.concat(fn.col("s"), None), padded=fn.col("s").str.lpad(None, " ")).to_arrow()
    assert found.to_pylist() == [{"joined": None, "padded": None}]
