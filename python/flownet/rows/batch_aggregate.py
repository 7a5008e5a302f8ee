"""Custom aggregates of rows (UDAFs), which process many keys in one call."""

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
    """A custom aggregate (UDAF) of rows by key. Subclass it.

    ``accumulate`` computes *states* from rows, one for each group. ``merge`` combines several states into one.
    ``result`` computes values from states. A group is a set of rows with the same key and slice of time. Batches and
    parallelism decide which rows and states share a call, so results must not depend on that.

    Functions run in the workers. They take and return batches, as the function of `Rows.map_batches` does. An error
    ends the job and names the operator and the aggregate. The job also ends if returned columns, types or lengths
    differ from those that you declared.

    Notes
    -----
    Upstream of the exchange, flownet calls ``accumulate`` for each batch of at most 8,192 rows. It calls ``merge`` when
    groups have 8 states. Downstream it calls ``merge`` for each batch, and ``merge`` and ``result`` for each batch of
    results. Each row of a session, or of a window with a trigger, gets its own state. One call computes many of them.

    Without ``merge``, all values of a key and window stay in state until the result is due. Then ``accumulate`` gets
    them, in no particular order. `KeyedRows.running_agg` never drops a key, so it needs ``merge``.

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
    """Names and types of the columns of states: ``{"sum": "float64"}``. All types of rows work, lists too."""
    returns: Any
    """The type of results, such as ``"float64"`` or a type of pyarrow."""
    format: BatchFormat = "numpy"
    """Type of the functions' arguments and results. ``"numpy"`` is a dict of arrays, ``"arrow"`` a
    ``pyarrow.RecordBatch``, and ``"polars"`` and ``"pandas"`` are data frames. ``groups`` is an int64 array of that
    library, or a series ``"group"`` of polars. ``result`` returns an array or a series. Default: ``"numpy"``."""

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        """Compute the state of each group of rows.

        Parameters
        ----------
        rows
            The columns, by the names that you gave to `of`.
        groups
            The group of each row, an int64 from 0.
        count
            Number of groups. Each has at least one row. Return as many states, in the order of groups.
        """
        raise NotImplementedError(f"{type(self).__name__} must define accumulate(rows, groups, count)")

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        """Merge the states of each group into one state. Optional.

        Parameters
        ----------
        states
            The columns of states.
        groups, count
            As for `accumulate`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define merge(states, groups, count)")

    def result(self, states: Any) -> Any:
        """Compute one value for each state, in the order of states.

        Parameters
        ----------
        states
            The columns of states.
        """
        raise NotImplementedError(f"{type(self).__name__} must define result(states)")

    def of(self, *columns: str | Expr, **named: Any) -> AppliedAggregate:
        """Apply the aggregate to columns.

        Parameters
        ----------
        *columns
            Names of columns, or expressions. An expression's column gets the name of its first column, or the name
            that you give it with `Expr.alias`.
        **named
            Names of columns, or expressions, by the name that ``accumulate`` sees.

        Raises
        ------
        PlanError
            There are no columns, or the class lacks a function, ``state`` or ``returns``.
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
    """A custom aggregate and its input columns. Created by `BatchAggregate.of`."""

    aggregate: BatchAggregate
    """The custom aggregate."""
    values: list[dict[str, Any]] = field(repr=False)
    """The columns, in the form of a plan."""
    state: _flownet.RowSchema = field(repr=False)
    """Schema of states."""
    returns: _flownet.RowSchema = field(repr=False)
    """Schema of the result, which has one column."""

    @property
    def merges(self) -> bool:
        """Whether the aggregate defines ``merge``."""
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
    """Calls the aggregates of one operator, by their index."""

    def __init__(self, aggregates: list[BatchAggregate]) -> None:
        self._aggregates = aggregates

    def accumulate(self, place: int, rows: Any, groups: Any, count: int) -> Any:
        """Compute states from rows."""
        aggregate = self._aggregates[place]
        format = aggregate.format
        states = aggregate.accumulate(given(rows, format), _numbers(groups, format), count)
        return taken(states, format, _arrow_schema(aggregate.state, format))

    def merge(self, place: int, states: Any, groups: Any, count: int) -> Any:
        """Merge states."""
        aggregate = self._aggregates[place]
        format = aggregate.format
        merged = aggregate.merge(given(states, format), _numbers(groups, format), count)
        return taken(merged, format, _arrow_schema(aggregate.state, format))

    def result(self, place: int, states: Any) -> Any:
        """Compute a batch of one column from states."""
        aggregate = self._aggregates[place]
        return _column(aggregate.result(given(states, aggregate.format)), aggregate)


def _numbers(groups: Any, format: BatchFormat) -> Any:
    """Convert group numbers to a format."""
    if format == "polars":
        import polars

        return polars.DataFrame(groups).to_series()
    import pyarrow

    numbers = pyarrow.record_batch(groups).column(0)
    return numbers if format == "arrow" else numbers.to_numpy()


def _arrow_schema(schema: SchemaLike, format: BatchFormat) -> Any:
    """Return the schema for formats whose values may lack types; None for others."""
    if format not in ("numpy", "pandas"):
        return None
    import pyarrow

    return pyarrow.schema(schema_of("BatchAggregate", schema))


def _column(values: Any, aggregate: BatchAggregate) -> Any:
    """Create a batch from the values of a result, in a column with the name that the planner expects."""
    if aggregate.format == "polars":
        import polars

        return polars.DataFrame({"result": values})
    import pyarrow

    if aggregate.format != "arrow":
        schema = _arrow_schema({"result": aggregate.returns}, aggregate.format)
        values = pyarrow.array(values, schema.field(0).type, from_pandas=aggregate.format == "pandas")
    # pandas 3 stores strings in chunks, too.
    whole = values.combine_chunks() if isinstance(values, pyarrow.ChunkedArray) else values
    return pyarrow.record_batch([whole], names=["result"])
