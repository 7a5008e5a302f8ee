"""Aggregates of one's own, of many keys at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import PlanError
from .batches import BatchFormat, given, known_format, taken
from .expressions import Expr, column_or_expression, named_columns
from .schemas import SchemaLike, schema_of

if TYPE_CHECKING:
    from .. import _flownet


class BatchAggregate:
    """Makes one value of the rows of a key, for many keys in one call. Subclass it.

    ``accumulate`` makes *states* of rows, one for each group; ``merge`` makes one state of several; ``result`` makes
    values of states. A group is what rows of one key, and of one slice of time, have come. Which rows and which states
    come together in a call depends on batches and parallelism, so what they come to must not.

    Functions run in the workers, and get and return batches as `Rows.map_batches` does; an error ends the job and names
    the operator and the aggregate, as does what they return if columns, types or lengths are other than declared.

    Notes
    -----
    In front of the exchange there is a call of ``accumulate`` for each batch of rows, up to 8,192 of them, and one of
    ``merge`` where groups have got 8 states; behind it one of ``merge`` for each batch, and one of ``merge`` and of
    ``result`` for each batch of results. Rows of sessions, and of windows with triggers, become states one by one, in
    one call.

    Without ``merge`` all values of a key and window are kept until its result is wanted: then ``accumulate`` gets them,
    in no order. `KeyedRows.agg`, which never forgets a key, refuses that.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> class WeightedMean(fn.BatchAggregate):
    ...     state = {"sum": "float64", "weight": "float64"}
    ...     returns = "float64"
    ...
    ...     def accumulate(self, rows, groups, count):
    ...         sums = np.bincount(groups, rows["value"] * rows["weight"], count)
    ...         return {"sum": sums, "weight": np.bincount(groups, rows["weight"], count)}
    ...
    ...     def merge(self, states, groups, count):
    ...         return {name: np.bincount(groups, column, count) for name, column in states.items()}
    ...
    ...     def result(self, states):
    ...         return states["sum"] / states["weight"]
    >>> trades = env.from_arrow(pa.table({"of": ["a", "a", "b"], "price": [1.0, 2.0, 5.0], "size": [1, 3, 1]}))
    >>> mean = WeightedMean().of(value="price", weight="size")
    >>> means = trades.key_by("of").window(fn.EndOfInput()).agg(price=mean).collect()
    >>> result = env.execute()
    >>> means.to_arrow().to_pylist()
    [{'of': 'a', 'price': 1.75}, {'of': 'b', 'price': 5.0}]
    """

    state: SchemaLike
    """The columns of states, by their names and types: ``{"sum": "float64"}``. Of types that rows have, lists too."""
    returns: Any
    """The type of results: ``"float64"``, or a type of pyarrow."""
    format: BatchFormat = "numpy"
    """What functions get and return: ``"numpy"``, dicts of arrays; ``"arrow"``, a ``pyarrow.RecordBatch``; ``"polars"``
    or ``"pandas"``, a data frame. ``groups`` are an array of int64 of that library, for ``"polars"`` a series called
    ``"group"``, and what ``result`` returns is an array or a series."""

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        """Return a state for each group.

        Parameters
        ----------
        rows
            Values, by the names that `of` gave them.
        groups
            Of each row, which group it is of, from 0.
        count
            How many groups there are; each has a row. As many states are returned, in the order of groups.
        """
        raise NotImplementedError(f"{type(self).__name__} must define accumulate(rows, groups, count)")

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        """Return a state for each group of states, as `accumulate` does for rows. May be left out."""
        raise NotImplementedError(f"{type(self).__name__} must define merge(states, groups, count)")

    def result(self, states: Any) -> Any:
        """Return a value for each state, in their order."""
        raise NotImplementedError(f"{type(self).__name__} must define result(states)")

    def of(self, *columns: str | Expr, **named: Any) -> AppliedAggregate:
        """Say which values it takes.

        Parameters
        ----------
        *columns
            Names of columns, or expressions, which are called as their first column or by `Expr.alias`.
        **named
            Names of columns, or expressions, by what functions are to find them as.

        Raises
        ------
        PlanError
            There are none, or the class lacks a function, ``state`` or ``returns``.
        """
        what = f"{type(self).__name__}.of"
        for name in ("accumulate", "result"):
            if getattr(type(self), name) is getattr(BatchAggregate, name):
                raise PlanError(f"{what}: {type(self).__name__} must define {name}()")
        known_format(what, self.format)
        for name in ("state", "returns"):
            if not hasattr(self, name):
                raise PlanError(f"{what}: {type(self).__name__} must say what {name} is, such as {_SAID[name]}")
        if not columns and not named:
            raise PlanError(f'{what}() needs columns, such as {what}("price")')
        values = named_columns(what, columns, {name: column_or_expression(what, named[name]) for name in named})
        state = schema_of(f"{what}: state", self.state)
        returns = schema_of(f"{what}: returns", {"result": self.returns})
        return AppliedAggregate(self, values, state, returns)


_SAID = {"state": '{"sum": "float64"}', "returns": '"float64"'}


@dataclass(frozen=True, slots=True)
class AppliedAggregate:
    """An aggregate of one's own and the columns that it takes. Made by `BatchAggregate.of`."""

    aggregate: BatchAggregate
    """What makes it."""
    values: list[dict[str, Any]] = field(repr=False)
    """The columns, as a plan has them."""
    state: _flownet.RowSchema = field(repr=False)
    """Of states."""
    returns: _flownet.RowSchema = field(repr=False)
    """Of the result, one column."""

    @property
    def merges(self) -> bool:
        """Whether states can be made one."""
        return type(self.aggregate).merge is not BatchAggregate.merge

    def _planned(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "function": type(self.aggregate).__name__,
            "columns": self.values,
            "state": self.state.planned(),
            "returns": self.returns.planned(),
            "merges": self.merges,
        }


class AggregateCalls:
    """The aggregates of one operator, as its subtasks call them: by their place."""

    def __init__(self, aggregates: list[BatchAggregate]) -> None:
        self._aggregates = aggregates

    def accumulate(self, place: int, rows: Any, groups: Any, count: int) -> Any:
        """Make states of rows."""
        aggregate = self._aggregates[place]
        format = aggregate.format
        states = aggregate.accumulate(given(rows, format), _numbers(groups, format), count)
        return taken(states, format, _arrow_schema(aggregate.state, format))

    def merge(self, place: int, states: Any, groups: Any, count: int) -> Any:
        """Make states of states."""
        aggregate = self._aggregates[place]
        format = aggregate.format
        merged = aggregate.merge(given(states, format), _numbers(groups, format), count)
        return taken(merged, format, _arrow_schema(aggregate.state, format))

    def result(self, place: int, states: Any) -> Any:
        """Make a batch of one column of states."""
        aggregate = self._aggregates[place]
        return _column(aggregate.result(given(states, aggregate.format)), aggregate)


def _numbers(groups: Any, format: BatchFormat) -> Any:
    """Give the numbers of groups as a format has them."""
    if format == "polars":
        import polars

        return polars.DataFrame(groups).to_series()
    import pyarrow

    numbers = pyarrow.record_batch(groups).column(0)
    return numbers if format == "arrow" else numbers.to_numpy()


def _arrow_schema(schema: SchemaLike, format: BatchFormat) -> Any:
    """Give a schema that values without types are to be of."""
    if format not in ("numpy", "pandas"):
        return None
    import pyarrow

    return pyarrow.schema(schema_of("BatchAggregate", schema))


def _column(values: Any, aggregate: BatchAggregate) -> Any:
    """Make a batch of the values of a result, in a column of the name that the planner gave none."""
    if aggregate.format == "polars":
        import polars

        return polars.DataFrame({"result": values})
    import pyarrow

    if aggregate.format != "arrow":
        schema = _arrow_schema({"result": aggregate.returns}, aggregate.format)
        values = pyarrow.array(values, schema.field(0).type, from_pandas=aggregate.format == "pandas")
    # A series of strings of pandas 3 is one of chunks, too.
    whole = values.combine_chunks() if isinstance(values, pyarrow.ChunkedArray) else values
    return pyarrow.record_batch([whole], names=["result"])
