"""What becomes of many rows of a key: one column of a result each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import PlanError
from .batch_aggregate import AppliedAggregate, BatchAggregate
from .expressions import Expr, column_or_expression

FunctionName = Literal[
    "count",
    "approx_count_distinct",
    "sum",
    "mean",
    "min",
    "max",
    "first",
    "last",
    "var",
    "std",
    "approx_quantile",
    "collect",
]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One column of what `WindowedRows.agg` gives. Made by `count`, `sum` and the others here."""

    function: FunctionName
    """What becomes of the values."""
    input: Expr | None
    """Which values; None where rows are counted."""
    q: float | None = None
    """Which quantile; None for what is none."""

    def __repr__(self) -> str:
        given = [repr(value) for value in (self.input, self.q) if value is not None]
        return f"{self.function}({', '.join(given)})"

    def _planned(self, name: str) -> dict[str, Any]:
        function = self.function if self.q is None else {self.function: self.q}
        return {"name": name, "function": function, "input": None if self.input is None else self.input._tree()}


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


def approx_count_distinct(column: str | Expr) -> Aggregate:
    """Count the values that differ, of those that are there: exactly up to 512 of them, and estimated beyond.

    What is kept of a key never exceeds 4 KiB, however many values there are. Estimates are by HyperLogLog, with a
    standard deviation of 1.6 percent. They do not depend on the order of rows, parallelism or batches.

    Parameters
    ----------
    column
        A column's name, or an expression: of numbers, bools, texts, bytes and times.

    Returns
    -------
    Aggregate
        An ``int64``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> visits = env.from_arrow(pa.table({"page": ["/", "/", "/a"], "user": [1, 2, 1]}))
    >>> users = visits.key_by("page").window(fn.EndOfInput()).agg(users=fn.approx_count_distinct("user"))
    """
    return Aggregate("approx_count_distinct", column_or_expression("approx_count_distinct", column))


def approx_quantile(column: str | Expr, q: float) -> Aggregate:
    """Take about the value that a part ``q`` of the values does not exceed: ``approx_quantile("ms", 0.99)``.

    It is that of rank ``q * (count - 1)``, to the nearest, and off by no more than 1/256 of itself (0.4 percent); whole
    numbers below 256 are exact. It does not depend on the order of rows, parallelism or batches.

    Parameters
    ----------
    column
        A column's name, or an expression: of numbers, decimals among them. NaN counts as greater than all others.
    q
        From 0, about the least, to 1, about the greatest; 0.5 is the median.

    Returns
    -------
    Aggregate
        A ``float64``; without any values there is none.

    Raises
    ------
    PlanError
        ``q`` is not between 0 and 1.

    Notes
    -----
    Values are counted in buckets, 128 of each power of two. What is kept of a key is some bytes for each bucket that
    has any: values from 1 ms to 10 s have at most 1,701.

    Examples
    --------
    >>> import pyarrow as pa
    >>> calls = env.from_arrow(pa.table({"path": ["/", "/", "/a"], "ms": [1.5, 80.0, 3.25]}))
    >>> slow = calls.key_by("path").window(fn.EndOfInput()).agg(p99=fn.approx_quantile("ms", 0.99))
    """
    if type(q) not in (int, float) or not 0 <= q <= 1:
        raise PlanError(f"approx_quantile(q={q!r:.60}): must be a number from 0 to 1, such as 0.99")
    return Aggregate("approx_quantile", column_or_expression("approx_quantile", column), float(q))


def collect(column: str | Expr) -> Aggregate:
    """Take all values that are there as a list: in event time, and of one time by what they are.

    Memory is that of the values, until the window has fired. Without event time, lists are in the order of values.

    Parameters
    ----------
    column
        A column's name, or an expression: of numbers, bools, texts, bytes and times.

    Returns
    -------
    Aggregate
        A list of the column's type; without any values it is empty.

    Examples
    --------
    >>> import pyarrow as pa
    >>> visits = pa.table({"user": [1, 1, 2], "ms": [5, 3, 4], "page": ["/b", "/", "/"]})
    >>> keyed = env.from_arrow(visits, event_time="ms").key_by("user")
    >>> paths = keyed.window(fn.Session("30min")).agg(path=fn.collect("page"))
    """
    return Aggregate("collect", column_or_expression("collect", column))


def sum(column: str | Expr) -> Aggregate:
    """Add up the values of a column that are there; without any the sum is 0.

    Sums of integers and bools are ``int64`` (of ``uint64`` themselves), of decimals ``decimal(38, ...)``; one that does
    not fit ends the job with an `OverflowError` that names the column and the key. Whether it fits depends on the sum
    alone and not on the order of rows. Sums of floats are ``float64``, added up to more than a hundred bits.
    """
    return Aggregate("sum", column_or_expression("sum", column))


def mean(column: str | Expr) -> Aggregate:
    """Take the mean of the values that are there, a ``float64``; without any there is none.

    Of decimals it is a ``float64`` too, as in polars: their exact sum, divided once. SQL has dialects where it is a
    decimal of some digits more; for that divide the sum by the count, rounded as wanted.
    """
    return Aggregate("mean", column_or_expression("mean", column))


def min(column: str | Expr) -> Aggregate:
    """Take the least of the values that are there: of numbers, bools, texts, bytes and times. NaN counts only alone."""
    return Aggregate("min", column_or_expression("min", column))


def max(column: str | Expr) -> Aggregate:
    """Take the greatest of the values that are there, of the types of `min`. NaN counts only alone."""
    return Aggregate("max", column_or_expression("max", column))


def first(column: str | Expr) -> Aggregate:
    """Take the value of the first row that has one, in event time.

    Rows of one exact time keep the order of their file or partition. If they lie in several, the one that arrives first
    counts: give them times that differ, or rank them by a column (`top_n`). Without event time the order is that of
    arrival; if several subtasks race for it, a ``UsageWarning`` says so.
    """
    return Aggregate("first", column_or_expression("first", column))


def last(column: str | Expr) -> Aggregate:
    """Take the value of the last row that has one, in event time.

    Rows of one exact time keep the order of their file or partition. If they lie in several, the one that arrives last
    counts: give them times that differ, or rank them by a column (`top_n`). Without event time the order is that of
    arrival; if several subtasks race for it, a ``UsageWarning`` says so.
    """
    return Aggregate("last", column_or_expression("last", column))


def var(column: str | Expr) -> Aggregate:
    """Take the variance of a sample, of the values that are there; of fewer than two there is none.

    Decimals count as the ``float64`` that they cast to; the result is one, as in polars.
    """
    return Aggregate("var", column_or_expression("var", column))


def std(column: str | Expr) -> Aggregate:
    """Take the standard deviation of a sample, of the values that are there; of fewer than two there is none.

    Decimals are as of `var`.
    """
    return Aggregate("std", column_or_expression("std", column))


def planned(method: str, aggregates: dict[str, Aggregate | AppliedAggregate]) -> list[dict[str, Any]]:
    """Write aggregates down as the planner takes them.

    Raises
    ------
    PlanError
        There is none, or one is something else.
    """
    if not aggregates:
        raise PlanError(f'{method}() needs at least one column: {method}(n=fn.count(), total=fn.sum("price"))')
    for name, aggregate in aggregates.items():
        if isinstance(aggregate, BatchAggregate):
            of = f'{type(aggregate).__name__}(...).of("price")'
            raise PlanError(f"{method}({name}=...): say of which columns, as in {of}")
        if not isinstance(aggregate, Aggregate | AppliedAggregate):
            raise PlanError(
                f"{method}({name}=...) takes an aggregate such as fn.sum({name!r}), not {type(aggregate).__name__} "
                f"{aggregate!r:.60}"
            )
    return [aggregate._planned(name) for name, aggregate in aggregates.items()]
