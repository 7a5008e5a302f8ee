"""Decimals in expressions, beside Python's own: exact, or an error."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet import errors

EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_EVEN)


def table(**columns: tuple[list[Any], pa.DataType]) -> pa.Table:
    return pa.table({name: pa.array(values, of) for name, (values, of) in columns.items()})


def column(rows: pa.Table, expression: fn.Expr) -> pa.ChunkedArray:
    """Work an expression out in a job."""
    env = fn.Environment()
    found = env.from_arrow(rows).select(found=expression).collect()
    env.execute()
    return found.to_arrow()["found"]


def values(digits: int, scale: int) -> st.SearchStrategy[Decimal | None]:
    most = 10**digits - 1
    return st.none() | st.integers(-most, most).map(lambda whole: Decimal(whole).scaleb(-scale, EXACT))


ROWS = st.lists(st.tuples(values(9, 2), values(12, 5), st.none() | st.integers(-(2**31), 2**31 - 1)), min_size=1)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda one, other: EXACT.add(one, other),
    "-": lambda one, other: EXACT.subtract(one, other),
    "*": lambda one, other: EXACT.multiply(one, other),
}


def apply(sign: str, one: Any, other: Any) -> Any:
    return {"+": lambda: one + other, "-": lambda: one - other, "*": lambda: one * other}[sign]()


def of_rows(rows: list[tuple[Decimal | None, Decimal | None, int | None]]) -> pa.Table:
    one, other, whole = (list(each) for each in zip(*rows, strict=True))
    return table(one=(one, pa.decimal128(9, 2)), other=(other, pa.decimal128(12, 5)), whole=(whole, pa.int32()))


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, sign=st.sampled_from(sorted(OPERATORS)))
def test_sums_and_products_are_exact(rows: list[tuple[Decimal | None, Decimal | None, int | None]], sign: str) -> None:
    given_rows = of_rows(rows)
    pairs: list[tuple[Any, Any, list[Any], list[Any]]] = [
        (fn.col("one"), fn.col("other"), [row[0] for row in rows], [row[1] for row in rows]),
        (fn.col("one"), fn.col("whole"), [row[0] for row in rows], [row[2] for row in rows]),
        (fn.col("one"), Decimal("0.908"), [row[0] for row in rows], [Decimal("0.908")] * len(rows)),
        (7, fn.col("other"), [7] * len(rows), [row[1] for row in rows]),
        (fn.col("whole"), fn.lit(Decimal("-1.5")), [row[2] for row in rows], [Decimal("-1.5")] * len(rows)),
    ]
    for left, right, lefts, rights in pairs:
        found = column(given_rows, apply(sign, left, right))
        assert pa.types.is_decimal(found.type)
        expected = [
            None if one is None or other is None else OPERATORS[sign](Decimal(one), Decimal(other))
            for one, other in zip(lefts, rights, strict=True)
        ]
        assert found.to_pylist() == expected


@settings(max_examples=15, deadline=None)
@given(rows=ROWS)
def test_they_are_compared_and_divided_to_wholes_and_rests(
    rows: list[tuple[Decimal | None, Decimal | None, int | None]],
) -> None:
    given_rows = of_rows(rows)
    for name, other in (("other", fn.col("other")), ("whole", fn.col("whole"))):
        at = {"other": 1, "whole": 2}[name]
        known = [None if row[0] is None or row[at] is None else (row[0], Decimal(row[at])) for row in rows]  # type: ignore[arg-type]
        assert column(given_rows, fn.col("one") < other).to_pylist() == [
            None if pair is None else pair[0] < pair[1] for pair in known
        ]
    divisor = Decimal("0.07")
    wholes = column(given_rows, fn.col("one") // divisor).to_pylist()
    rests = column(given_rows, fn.col("one") % divisor).to_pylist()
    for row, whole, rest in zip(rows, wholes, rests, strict=True):
        if row[0] is None:
            assert (whole, rest) == (None, None)
        else:
            assert EXACT.add(EXACT.multiply(whole, divisor), rest) == row[0]
            assert 0 <= rest < divisor


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(values(9, 3), min_size=1))
def test_they_are_rounded_as_python_rounds_them(rows: list[Decimal | None]) -> None:
    given_rows = table(one=(rows, pa.decimal128(12, 3)))
    one = fn.col("one")

    def expected(make: Callable[[Decimal], Decimal]) -> list[Decimal | None]:
        return [None if value is None else make(value) for value in rows]

    def to(places: str, rounding: str) -> Callable[[Decimal], Decimal]:
        return lambda value: value.quantize(Decimal(places), rounding)

    assert column(given_rows, one.round(1)).to_pylist() == expected(to("0.1", decimal.ROUND_HALF_EVEN))
    assert column(given_rows, one.round(5)).to_pylist() == rows
    assert column(given_rows, one.floor()).to_pylist() == expected(to("1", decimal.ROUND_FLOOR))
    assert column(given_rows, one.ceil()).to_pylist() == expected(to("1", decimal.ROUND_CEILING))
    assert column(given_rows, one.abs()).to_pylist() == expected(abs)
    assert column(given_rows, -one).to_pylist() == expected(lambda value: -value)


def test_types_are_those_of_sql() -> None:
    rows = table(
        a=([Decimal("1.50")], pa.decimal128(10, 2)), b=([Decimal("2")], pa.decimal128(20, 5)), i=([3], pa.int64())
    )
    types = [
        (fn.col("a") + fn.col("b"), pa.decimal128(21, 5)),
        (fn.col("a") * fn.col("b"), pa.decimal128(31, 7)),
        (fn.col("a") + 1, pa.decimal128(11, 2)),
        (fn.col("a") * Decimal("0.908"), pa.decimal128(14, 5)),
        (fn.col("a") + fn.col("i"), pa.decimal128(22, 2)),
        (fn.col("a") // fn.col("b"), pa.decimal128(20, 0)),
        (fn.col("a") / 4, pa.float64()),
        (fn.col("a") * 0.5, pa.float64()),
        (fn.col("a").sqrt(), pa.float64()),
    ]
    for expression, wanted in types:
        assert column(rows, expression).type == wanted, expression
    assert column(rows, fn.col("a") / 4).to_pylist() == [0.375]
    assert column(rows, fn.col("i") == Decimal("3.0")).to_pylist() == [True]


def test_what_does_not_fit_is_an_error_with_the_values() -> None:
    great = table(a=([Decimal(10) ** 37, Decimal(5)], pa.decimal128(38, 0)))
    with pytest.raises(errors.OperatorError, match=r'\(col\("a"\) \* col\("a"\)\).*in row 0 of a batch'):
        column(great, fn.col("a") * fn.col("a"))
    with pytest.raises(errors.OperatorError, match=r'\(col\("a"\) \* 20\).*in row 0 of a batch'):
        column(great, fn.col("a") * 20)
    with pytest.raises(errors.OperatorError, match="more than 2 digits"):
        column(table(a=([Decimal("9.9")], pa.decimal128(2, 1))), fn.col("a").ceil())
    with pytest.raises(errors.OperatorError, match="0000 and 0: division by zero"):
        column(great, fn.col("a") % 0)


def test_what_no_type_holds_is_refused_when_the_plan_is_made() -> None:
    fine = table(a=([Decimal(0)], pa.decimal128(38, 30)), i=([1], pa.int64()))
    rows = fn.Environment().from_arrow(fine)
    with pytest.raises(errors.PlanError, match="60 digits behind the point, and a decimal 38 at most"):
        rows.select(found=fn.col("a") * fn.col("a"))
    # Their common type has 49 digits: comparisons have them, and branches fail for a value that needs more than 38.
    assert column(fine, fn.col("a") < fn.col("i")).to_pylist() == [True]
    branch = fn.when(fn.col("a") < fn.col("i")).then(fn.col("i")).otherwise(fn.col("a"))
    assert column(fine, branch).to_pylist() == [Decimal(1)]
    for wrong in (Decimal("NaN"), Decimal("Infinity"), Decimal(1).scaleb(38), Decimal(1).scaleb(-39)):
        with pytest.raises(errors.PlanError, match="at most 38 digits"):
            fn.lit(wrong)


def test_they_are_written_and_found_among_others() -> None:
    assert repr(fn.col("a") * Decimal("0.908")) == "(col(\"a\") * Decimal('0.908'))"
    rows = table(a=([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(10, 2)))
    assert column(rows, fn.col("a").is_in([Decimal("1.5"), 2])).to_pylist() == [True, True, None]
    assert column(rows, fn.col("a").is_in([Decimal("1.505")])).to_pylist() == [False, False, None]
    assert column(rows, fn.when(fn.col("a") > 1.75).then(fn.col("a")).otherwise(Decimal("-1"))).to_pylist() == [
        Decimal(-1),
        Decimal(2),
        Decimal(-1),
    ]


def test_a_value_that_a_column_cannot_hold_is_none_of_its_values() -> None:
    rows = table(a=([1, 2], pa.int64()), t=([0, 1], pa.timestamp("s")))
    assert column(rows, fn.col("a").is_in([1.5, 2.0])).to_pylist() == [False, True]


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(values(9, 2), min_size=1, max_size=40))
def test_means_and_spreads_of_them_are_floats_as_in_polars(rows: list[Decimal | None]) -> None:
    given_rows = table(key=(["a"] * len(rows), pa.string()), x=(rows, pa.decimal128(9, 2)))
    env = fn.Environment(parallelism=2)
    keyed = env.from_arrow(given_rows.to_reader(max_chunksize=7)).key_by("key").window(fn.EndOfInput())
    found = keyed.agg(
        mean=fn.mean("x"), var=fn.var("x"), std=fn.std("x"), median=fn.approx_quantile("x", 0.5)
    ).collect()
    env.execute()
    frame = pl.DataFrame(given_rows)
    x = pl.col("x")
    wanted = frame.group_by("key").agg(
        mean=x.mean(), var=x.var(), std=x.std(), median=x.quantile(0.5, interpolation="nearest")
    )
    assert found.to_polars().schema == wanted.schema
    (row,), (expected,) = found.to_arrow().to_pylist(), wanted.to_dicts()
    known = [value for value in rows if value is not None]
    # Of the exact sum, and divided once.
    assert row["mean"] == (float(sum(known) * 100) / (100 * len(known)) if known else None)
    for name in ("mean", "var", "std"):
        assert row[name] == (None if expected[name] is None else pytest.approx(expected[name], rel=1e-9, abs=1e-9))
    if known:
        ranked, rank = sorted(known), 0.5 * (len(known) - 1)
        nearest = [float(ranked[at]) for at in (int(rank), int(rank + 0.5))]
        assert any(row["median"] == pytest.approx(value, rel=1 / 256, abs=1e-9) for value in nearest)
    else:
        assert row["median"] is None


def test_a_mean_has_the_digits_of_its_sum_whatever_there_was_on_the_way() -> None:
    most = Decimal("9" * 36 + ".99")
    prices = [*[most] * 3, *[most.copy_negate()] * 3, Decimal("0.01"), Decimal("0.02")]
    env = fn.Environment()
    of_price = table(key=(["a"] * len(prices), pa.string()), x=(prices, pa.decimal128(38, 2)))
    found = env.from_arrow(of_price).key_by("key").running_agg(mean=fn.mean("x")).collect()
    env.execute()
    assert found.to_arrow().to_pylist() == [{"key": "a", "mean": 0.03 / 8}]
    great = table(key=(["a"] * 3, pa.string()), x=([most, most, most], pa.decimal128(38, 2)))
    env = fn.Environment()
    kept = env.from_arrow(great).key_by("key").running_agg(mean=fn.mean("x")).collect()
    env.execute()
    # Three of them are no decimal any more.
    assert kept.to_arrow().to_pylist() == [{"key": "a", "mean": pytest.approx(1e36, rel=1e-15)}]


def test_what_has_no_mean_is_refused() -> None:
    rows = fn.Environment().from_arrow(table(key=(["a"], pa.string()), t=([0], pa.timestamp("s")))).key_by("key")
    with pytest.raises(errors.PlanError, match=r'm = mean\(col\("t"\)\) takes numbers, and'):
        rows.running_agg(m=fn.mean("t"))
