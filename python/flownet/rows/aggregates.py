"""What becomes of many rows of a key: one column of a result each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import PlanError
from .expressions import Expr, column_or_expression

FunctionName = Literal["count", "sum", "mean", "min", "max", "first", "last", "var", "std"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One column of what `WindowedRows.agg` gives. Made by `count`, `sum` and the others here."""

    function: FunctionName
    """What becomes of the values."""
    input: Expr | None
    """Which values; None where rows are counted."""

    def __repr__(self) -> str:
        return f"{self.function}({'' if self.input is None else self.input!r})"

    def _planned(self, name: str) -> dict[str, Any]:
        return {"name": name, "function": self.function, "input": None if self.input is None else self.input._tree()}


def count(column: str | Expr | None = None) -> Aggregate:
    """Count rows, or the values of a column that are there.

    Parameters
    ----------
    column
        A column's name, or an expression. Default: None, rows.

    Returns
    -------
    Aggregate
        An ``int64``.
    """
    return Aggregate("count", None if column is None else column_or_expression("count", column))


def sum(column: str | Expr) -> Aggregate:
    """Add up the values of a column that are there; without any the sum is 0.

    Sums of integers and bools are ``int64`` (of ``uint64`` themselves); one that does not fit ends the job with an
    `OverflowError` that names the column and the key. Whether it fits depends on the sum alone and not on the order of
    rows. Sums of floats are ``float64``, added up to more than a hundred bits.
    """
    return Aggregate("sum", column_or_expression("sum", column))


def mean(column: str | Expr) -> Aggregate:
    """Take the mean of the values that are there, a ``float64``; without any there is none."""
    return Aggregate("mean", column_or_expression("mean", column))


def min(column: str | Expr) -> Aggregate:
    """Take the least of the values that are there: of numbers, bools, texts, bytes and times. NaN counts only alone."""
    return Aggregate("min", column_or_expression("min", column))


def max(column: str | Expr) -> Aggregate:
    """Take the greatest of the values that are there, of the types of `min`. NaN counts only alone."""
    return Aggregate("max", column_or_expression("max", column))


def first(column: str | Expr) -> Aggregate:
    """Take the value of the first row that has one: in event time, and of one millisecond as they came."""
    return Aggregate("first", column_or_expression("first", column))


def last(column: str | Expr) -> Aggregate:
    """Take the value of the last row that has one: in event time, and of one millisecond as they came."""
    return Aggregate("last", column_or_expression("last", column))


def var(column: str | Expr) -> Aggregate:
    """Take the variance of a sample, of the values that are there; of fewer than two there is none."""
    return Aggregate("var", column_or_expression("var", column))


def std(column: str | Expr) -> Aggregate:
    """Take the standard deviation of a sample, of the values that are there; of fewer than two there is none."""
    return Aggregate("std", column_or_expression("std", column))


def planned(aggregates: dict[str, Aggregate]) -> list[dict[str, Any]]:
    """Write aggregates down as the planner takes them.

    Raises
    ------
    PlanError
        There is none, or one is something else.
    """
    if not aggregates:
        raise PlanError('agg() needs at least one column: agg(n=fn.count(), total=fn.sum("price"))')
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise PlanError(
                f"agg({name}=...) takes an aggregate such as fn.sum({name!r}), not {type(aggregate).__name__} "
                f"{aggregate!r:.60}"
            )
    return [aggregate._planned(name) for name, aggregate in aggregates.items()]
