"""Aggregate functions of rows. Each one makes a column of the result."""

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
    """One column in the result of `WindowedRows.agg`. Created by `count`, `sum` and the others here."""

    function: FunctionName
    """Name of the aggregate function."""
    input: Expr | None
    """Values to aggregate; None to count rows."""
    q: float | None = None
    """The quantile; None for other functions."""

    def __repr__(self) -> str:
        given = [repr(value) for value in (self.input, self.q) if value is not None]
        return f"{self.function}({', '.join(given)})"

    def _planned(self, name: str) -> dict[str, Any]:
        function = self.function if self.q is None else {self.function: self.q}
        return {"name": name, "function": function, "input": None if self.input is None else self.input._tree()}


def count(column: str | Expr | None = None) -> Aggregate:
    """Count rows, or the values of a column that are not null.

    Parameters
    ----------
    column
        A column's name, or an expression. Default: None, count rows.

    Returns
    -------
    Aggregate
        An ``int64``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> visits = env.from_arrow(pa.table({"page": ["/", "/"], "user": [1, None]})).group_by("page")
    >>> visits.agg(rows=fn.count(), users=fn.count("user")).to_arrow().to_pylist()
    [{'page': '/', 'rows': 2, 'users': 1}]
    """
    return Aggregate("count", None if column is None else column_or_expression("count", column))


def approx_count_distinct(column: str | Expr) -> Aggregate:
    """Estimate the number of distinct values of a column (HyperLogLog).

    Nulls do not count. Up to 512 distinct values the result is exact. Beyond that it is an estimate with a standard
    deviation of 1.6 percent. State is at most 4 KiB per key. The result does not depend on the order of rows, on
    parallelism or on batches.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers, bools, strings, bytes or times.

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
    """Estimate the ``q``-quantile of a column, such as ``approx_quantile("ms", 0.99)``.

    The result is the value of rank ``q * (count - 1)``, rounded to the nearest rank. Its error is at most 1/256 of the
    value (0.4 percent). Whole numbers below 256 are exact. The result does not depend on the order of rows, on
    parallelism or on batches.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers or decimals. NaN counts as greater than all other values.
    q
        From 0, about the minimum, to 1, about the maximum. 0.5 is the median.

    Returns
    -------
    Aggregate
        A ``float64``, null if there are no values.

    Raises
    ------
    PlanError
        ``q`` is not between 0 and 1.

    Notes
    -----
    Values are counted in buckets, 128 for each power of two. State has a few bytes for each bucket that is not empty.
    Values from 1 ms to 10 s fill at most 1,701 buckets per key.

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
    """Collect all values of a column as a list, without nulls.

    Lists are sorted by event time, and by value if times are equal. Without event time they are sorted by value. All
    values stay in state until the window fires.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers, bools, strings, bytes or times.

    Returns
    -------
    Aggregate
        A list of the column's type, empty if there are no values.

    Examples
    --------
    >>> import pyarrow as pa
    >>> visits = pa.table({"user": [1, 1, 2], "ms": [5, 3, 4], "page": ["/b", "/", "/"]})
    >>> keyed = env.from_arrow(visits, event_time="ms").key_by("user")
    >>> paths = keyed.window(fn.Session("30min")).agg(path=fn.collect("page"))
    """
    return Aggregate("collect", column_or_expression("collect", column))


def sum(column: str | Expr) -> Aggregate:
    """Sum the values of a column. Without values the sum is 0.

    Nulls are ignored. Sums of integers and bools are ``int64``, but sums of ``uint64`` are ``uint64``. Sums of decimals
    are ``decimal(38, ...)``. A sum that does not fit ends the job with an `OverflowError` that names the column and the
    key. Only the final sum has to fit, in any order of rows. Sums of floats are ``float64`` and are computed with more
    than a hundred bits.

    Parameters
    ----------
    column
        A column's name, or an expression.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sales = env.from_arrow(pa.table({"shop": ["x", "x"], "price": [1.5, 0.5]}))
    >>> sales.group_by("shop").agg(total=fn.sum("price")).to_arrow().to_pylist()
    [{'shop': 'x', 'total': 2.0}]
    """
    return Aggregate("sum", column_or_expression("sum", column))


def mean(column: str | Expr) -> Aggregate:
    """Compute the mean of a column as ``float64``; null without values.

    Nulls are ignored. As in polars, the mean of decimals is a ``float64``, too: their exact sum, divided once. Some SQL
    dialects return a decimal with more digits. If you need that, divide the sum by the count and round it.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sales = env.from_arrow(pa.table({"shop": ["x", "x"], "price": [1.5, 0.5]}))
    >>> sales.group_by("shop").agg(mean=fn.mean("price")).to_arrow().to_pylist()
    [{'shop': 'x', 'mean': 1.0}]
    """
    return Aggregate("mean", column_or_expression("mean", column))


def min(column: str | Expr) -> Aggregate:
    """Find the minimum of a column.

    Nulls are ignored. The result is NaN only if all values are NaN, and null if there are no values.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers, bools, strings, bytes or times.
    """
    return Aggregate("min", column_or_expression("min", column))


def max(column: str | Expr) -> Aggregate:
    """Find the maximum of a column.

    Nulls are ignored. The result is NaN only if all values are NaN, and null if there are no values.

    Parameters
    ----------
    column
        A column's name, or an expression, of the types of `min`.
    """
    return Aggregate("max", column_or_expression("max", column))


def first(column: str | Expr) -> Aggregate:
    """Return the first value of a column that is not null, by event time.

    Rows with equal times keep the order of their file or partition. If such rows come from several files or partitions,
    the one that arrives first counts. To avoid this, use distinct times, or rank rows by a column with `top_n`. Without
    event time, rows are ordered by arrival. A ``UsageWarning`` reports if that order depends on timing between
    subtasks.

    Parameters
    ----------
    column
        A column's name, or an expression.
    """
    return Aggregate("first", column_or_expression("first", column))


def last(column: str | Expr) -> Aggregate:
    """Return the last value of a column that is not null, by event time.

    Rows with equal times keep the order of their file or partition. If such rows come from several files or partitions,
    the one that arrives last counts. To avoid this, use distinct times, or rank rows by a column with `top_n`. Without
    event time, rows are ordered by arrival. A ``UsageWarning`` reports if that order depends on timing between
    subtasks.

    Parameters
    ----------
    column
        A column's name, or an expression.
    """
    return Aggregate("last", column_or_expression("last", column))


def var(column: str | Expr) -> Aggregate:
    """Compute the sample variance of a column.

    Nulls are ignored. The result is a ``float64``, null for fewer than two values. Decimals are cast to ``float64``, as
    in polars.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers.
    """
    return Aggregate("var", column_or_expression("var", column))


def std(column: str | Expr) -> Aggregate:
    """Compute the sample standard deviation of a column.

    Nulls are ignored. The result is a ``float64``, null for fewer than two values. Decimals are cast to ``float64``.

    Parameters
    ----------
    column
        A column's name, or an expression, of numbers.
    """
    return Aggregate("std", column_or_expression("std", column))


def planned(method: str, aggregates: dict[str, Aggregate | AppliedAggregate]) -> list[dict[str, Any]]:
    """Convert aggregates to the form of a plan.

    Raises
    ------
    PlanError
        There are no aggregates, or one has another type.
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
