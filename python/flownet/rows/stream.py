"""Streams of rows: handles on the rows that leave an operator, whose columns are known before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import _flownet, rows
from ..api.functions import OutputTag
from ..errors import PlanError
from ..internal import config
from ..internal.foreign_names import no_attribute
from ..planning import spec
from ..planning.dataflow import DataflowOwner, Node, Origin
from ..planning.graph import PartitionerName
from ..streams.stream import Stream
from .batches import BatchFormat, BatchFunction, known_format
from .event_time import bind_event_time, watermarks_of
from .expressions import Expr, col, named_columns
from .results import ToThisProcess
from .schemas import SchemaLike, checked, schema_of
from .sinks import RowSinks


class Rows(RowSinks, ToThisProcess):
    """Rows on their way through the dataflow, whose names and types of columns are known.

    Made by `Environment.from_arrow`, `Environment.read_parquet` and the like, and by `Stream.to_rows`. Operators work
    on batches of columns, in Rust and without the interpreter, but for `map_batches`. Types are ints, floats, bool,
    utf8, binary, dates, times, timestamps, durations, decimals, and lists and structs of these. Texts, bytes and lists
    of every kind come as one kind each, dictionaries as what they stand for.

    Examples
    --------
    >>> import pyarrow as pa
    >>> trades = pa.table({"symbol": ["A", "B", "A"], "price": [1.0, 2.0, 3.0]})
    >>> rows = env.from_arrow(trades)
    >>> print(rows)
    Rows from from_arrow
      symbol  utf8
      price   float64
    >>> totals = rows.key_by("symbol").window(fn.EndOfInput()).agg(n=fn.count(), total=fn.sum("price")).collect()
    >>> result = env.execute()
    >>> sorted(totals.to_arrow().to_pylist(), key=lambda row: row["symbol"])
    [{'symbol': 'A', 'n': 2, 'total': 4.0}, {'symbol': 'B', 'n': 1, 'total': 2.0}]
    """

    def __init__(
        self,
        env: DataflowOwner,
        origins: tuple[Origin, ...],
        schema: _flownet.RowSchema,
        sides: dict[str, _flownet.RowSchema] | None = None,
    ) -> None:
        super().__init__(env, origins)
        self._schema = schema
        self._sides = sides or {}

    def __str__(self) -> str:
        fields = self._schema.fields()
        width = max(len(name) for name, _, _ in fields)
        columns = [f"  {name:<{width}}  {kind}{'' if nullable else ' not null'}" for name, kind, nullable in fields]
        return "\n".join([f"Rows from {', '.join(origin.node.name for origin in self._origins)}", *columns])

    def uid(self, uid: str) -> Rows:
        """Give the operator a name that stays when the dataflow around it changes.

        Parameters
        ----------
        uid
            Unique in the dataflow. What an aggregation does in front of the exchange is called ``"<uid>/partial"``.

        Raises
        ------
        DuplicateUidError
            Another operator of this environment has the uid.

        Examples
        --------
        >>> import pyarrow as pa
        >>> users = env.from_arrow(pa.table({"user": ["a"]})).uid("users")
        >>> counts = users.group_by("user").agg(n=fn.count()).uid("counts")
        """
        super().uid(uid)
        (origin,) = self._origins
        if origin.node.role == "aggregate":
            self._env._dataflow.set_uid(origin.node.inputs[0].node, f"{uid}/partial")
        return self

    @property
    def schema(self) -> dict[str, str]:
        """Names and types of the columns, in their order."""
        return {name: kind for name, kind, _ in self._schema.fields()}

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in their order."""
        return list(self.schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def filter(self, *predicates: Expr) -> Rows:
        """Keep the rows for which all predicates are true; where a value is missing and nobody knows, a row goes.

        Examples
        --------
        >>> import pyarrow as pa
        >>> dear = env.from_arrow(pa.table({"price": [1.0, 3.0]})).filter(fn.col("price") > 2)
        """
        steps = [{"filter": _expression("filter", predicate)._tree()} for predicate in predicates]
        return self._project("filter", steps)

    def select(self, *columns: str | Expr, **named: Any) -> Rows:
        """Make rows of these columns, and no others.

        Parameters
        ----------
        *columns
            Names of columns, or expressions, which are called as their first column or by `Expr.alias`.
        **named
            Expressions or values, by the name of the column that they make.

        Examples
        --------
        >>> import pyarrow as pa
        >>> trades = env.from_arrow(pa.table({"price": [1.0, 3.0], "size": [2, 2]}))
        >>> print(trades.select("size", worth=fn.col("price") * fn.col("size")))
        Rows from select
          size   int64
          worth  float64
        """
        return self._project("select", [{"select": named_columns("select", columns, named)}])

    def with_columns(self, *columns: str | Expr, **named: Any) -> Rows:
        """Add columns, or put them in the place of those of the same name; all see the rows as they came.

        Parameters
        ----------
        *columns, **named
            As of `select`.
        """
        return self._project("with_columns", [{"with_columns": named_columns("with_columns", columns, named)}])

    def drop(self, *columns: str) -> Rows:
        """Make rows without these columns."""
        self._known("drop", columns)
        kept = [name for name in self.columns if name not in columns]
        return self._project("drop", [{"select": named_columns("drop", kept, {})}])

    def rename(self, names: dict[str, str]) -> Rows:
        """Call columns by other names.

        Parameters
        ----------
        names
            The new name of each column that gets one, by the old one.
        """
        self._known("rename", names)
        renamed = [names.get(name, name) for name in self.columns]
        for name in renamed:
            if renamed.count(name) > 1:
                raise PlanError(f"rename: two columns would be called {name!r}: rename or drop the other one, too")
        columns = [{"name": names.get(name, name), "value": col(name)._tree()} for name in self.columns]
        return self._project("rename", [{"select": columns}])

    def cast(self, types: dict[str, str]) -> Rows:
        """Give columns other types; a value that does not fit ends the job with its row.

        Parameters
        ----------
        types
            The new type of each column that gets one, by its name.
        """
        self._known("cast", types)
        columns = [{"name": name, "value": col(name).cast(kind)._tree()} for name, kind in types.items()]
        return self._project("cast", [{"with_columns": columns}])

    def explode(self, column: str) -> Rows:
        """Make a row of each item of the lists in a column; of an empty list, and of one that is missing, none.

        Examples
        --------
        >>> import pyarrow as pa
        >>> lines = env.from_arrow(pa.table({"line": ["to be or", "not to be"]}))
        >>> words = lines.select(word=fn.col("line").str.split(" ")).explode("word")
        >>> counts = words.key_by("word").window(fn.EndOfInput()).agg(n=fn.count()).collect()
        >>> result = env.execute()
        >>> sorted((row["word"], row["n"]) for row in counts.to_arrow().to_pylist())
        [('be', 2), ('not', 1), ('or', 1), ('to', 2)]
        """
        self._known("explode", [column])
        return self._project("explode", [{"explode": column}])

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        schema: SchemaLike | None = None,
        format: BatchFormat = "arrow",
    ) -> Rows:
        """Call a function with each batch: with what is there, up to 8,192 rows, never waited for.

        Parameters
        ----------
        function
            Returns rows of any number: a batch or table of pyarrow, polars or another library with the Arrow PyCapsule
            interface, a data frame of pandas, or for ``"numpy"`` a dict of arrays. It runs in the workers.
        schema
            The columns that it returns. Default: None, it is called with no rows once, here, to see.
        format
            What it is given: ``"arrow"``, a ``pyarrow.RecordBatch``; ``"polars"`` or ``"pandas"``, a data frame;
            ``"numpy"``, a dict of arrays by column. Default: ``"arrow"``.

        Notes
        -----
        Rows keep their event time where as many come out as went in. Elsewhere call `assign_timestamps` behind it.

        Examples
        --------
        >>> import pyarrow as pa, pyarrow.compute as pc
        >>> texts = env.from_arrow(pa.table({"text": ["to be", "or not"]}))
        >>> def lengths(batch):
        ...     return pa.record_batch({"length": pc.utf8_length(batch["text"])})
        >>> print(texts.map_batches(lengths, schema={"length": "int32"}))
        Rows from map_batches
          length  int32
        """
        known_format("map_batches", format)
        if not callable(function):
            raise PlanError(f"map_batches() needs a function of a batch, not {function!r:.60}")
        called = BatchFunction(function, format)
        try:
            output = _flownet.rows_schema(called, self._schema) if schema is None else _flownet.rows_schema(schema)
        except Exception as error:
            if schema is not None:
                raise PlanError(f"map_batches(schema=...): {error}") from error
            raise PlanError(
                f"map_batches() called its function with no rows, to see the columns it returns, and it failed with "
                f"{type(error).__name__}: {error}. Give schema={{'column': 'type'}}"
            ) from error
        settings: spec.RowsKind = {"map_batches": {"input": self._schema.planned(), "output": output.planned()}}
        return self._then("map_batches", settings, output, function=called)

    def assign_timestamps(
        self,
        column: str,
        *,
        delay: str | timedelta | None = None,
        idle_after: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
    ) -> Rows:
        """Take the event time of rows from a column, and say how far rows are out of order.

        Call it in front of the first exchange, also behind `Stream.to_rows`, `select` or `filter`: watermarks are then
        by file or split of the source. A `rebalance` in front of it moves behind it.

        Parameters
        ----------
        column
            A timestamp, which counts in UTC whatever its zone, a date, or an ``int64`` of milliseconds since 1970.
            Integers that are plainly in another unit end the job with an `OperatorError`: cast them to a timestamp
            before.
        delay
            A promise: a row comes at most so long after later rows of its file, row group, partition or table. Rows
            that break it may be late, which is counted and warned of. Default: None, nothing is promised, and no row
            is ever late. Event time then advances by what is known of unread input: the statistics of Parquet files,
            the rows ahead in a table. Over CSV and JSON it waits for the end of the input, so windows stay in state
            until then. Input that may have no end, such as a reader, a function or a topic, needs a delay.
        idle_after
            Do not wait for a subtask that has had no rows for so long. Default: None, wait.
        max_ahead
            A row further ahead of the others of its split does not move event time, as of
            `WatermarkStrategy.with_max_ahead`. It needs a delay. Default: None, every row does.

        Raises
        ------
        PlanError
            There is no such column, or none of event times; or ``delay`` is missing and the input may have no end.

        Examples
        --------
        >>> import pyarrow as pa
        >>> late_first = pa.table({"user": ["ann", "bob", "ann"], "ms": [61_000, 2_000, 1_000]})
        >>> timed = env.from_arrow(late_first).assign_timestamps("ms")
        >>> counts = timed.key_by("user").window(fn.Tumbling("60s")).agg(n=fn.count()).collect()
        >>> result = env.execute()
        >>> sorted((row["user"], row["n"]) for row in counts.to_arrow().to_pylist())
        [('ann', 1), ('ann', 1), ('bob', 1)]
        """
        checked(_flownet.rows_time, self._schema, config.text("column", column))
        strategy = watermarks_of(self._origins, column, delay, idle_after)
        if max_ahead is not None:
            if delay is None:
                raise PlanError(
                    f"max_ahead={max_ahead!r} bounds event time that follows the rows, and without delay= it does not: "
                    'give delay= with it, the most that a row comes after later ones, such as delay="5s"'
                )
            strategy = strategy.with_max_ahead(max_ahead)
        bind_event_time(self._origins, column)
        settings: spec.RowsKind = {
            "assign_timestamps": {
                "input": self._schema.planned(),
                "column": column,
                "watermarks": strategy.watermarks,
                "idle_after_ms": strategy.idle_after_ms,
                "max_ahead_ms": strategy.max_ahead_ms,
            }
        }
        return self._then("assign_timestamps", settings, self._schema)

    def key_by(self, *columns: str | Expr, **named: Any) -> rows.KeyedRows:
        """Say which columns are the key of rows: equal keys meet in one subtask, as those of objects do.

        Parameters
        ----------
        *columns
            Names of columns, or expressions, which are called as their first column or by `Expr.alias`. Of any type but
            lists, structs and decimals of a negative scale.
        **named
            Expressions, by the name of the column of results that they make.

        Raises
        ------
        PlanError
            If there is no such column, if its type makes no keys, or if two are called the same.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["a"], "page": ["x"], "spent": [1.5]}))
        >>> sums = rows.key_by("user", "page").window(fn.EndOfInput()).agg(spent=fn.sum("spent"))
        >>> totals = rows.key_by(initial=fn.col("user").str.slice(0, 1)).window(fn.EndOfInput()).agg(n=fn.count())
        """
        return self._keyed_by("key_by", columns, named)

    def group_by(self, *columns: str | Expr, **named: Any) -> rows.GroupedRows:
        """Group rows, for one result for each group when the input ends.

        The input has to end. For results of an endless stream, use windows: ``key_by(...).window(...)``.

        Parameters
        ----------
        *columns, **named
            The key, as for `key_by`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> sales = env.from_arrow(pa.table({"shop": ["x", "y", "x"], "price": [1.5, 2.0, 0.5]}))
        >>> totals = sales.group_by("shop").agg(total=fn.sum("price")).collect()
        >>> result = env.execute()
        >>> totals.to_arrow().sort_by("shop").to_pylist()
        [{'shop': 'x', 'total': 2.0}, {'shop': 'y', 'total': 2.0}]
        """
        return rows.GroupedRows(self._keyed_by("group_by", columns, named))

    def _keyed_by(self, method: str, columns: tuple[str | Expr, ...], named: dict[str, Any]) -> rows.KeyedRows:
        if not columns and not named:
            raise PlanError(f'{method}() needs names of columns or expressions, such as {method}("user")')
        made = named_columns(method, columns, named)
        keys = tuple(column["name"] for column in made)
        if len(set(keys)) < len(keys):
            raise PlanError(f"{method}: the key has two columns of one name: {', '.join(map(repr, keys))}")
        computed = [column for column in made if column["value"] != {"column": column["name"]}]
        for column in computed:
            if column["name"] in self.columns:
                raise PlanError(
                    f"{method}: there is a column {column['name']!r} already, which aggregates may want: call the key "
                    f"otherwise, as in {method}(x=...)"
                )
        keyed = self._project(method, [{"with_columns": computed}]) if computed else self
        checked(_flownet.rows_after_agg, keyed._schema, list(keys), [], None)
        return rows.KeyedRows(keyed, keys)

    def side_output(self, tag: OutputTag) -> Rows:
        """Read a side output of the operator.

        Parameters
        ----------
        tag
            What `WindowedRows.side_output_late_data` was given, or a join by its ``side_output_left_late_data=`` or
            ``side_output_right_late_data=``. Rows that nobody reads are dropped.

        Returns
        -------
        Rows
            The rows as they came to the windows or the join, with their event time.

        Raises
        ------
        PlanError
            The operator has no such side output.

        Examples
        --------
        >>> import pyarrow as pa
        >>> ticks = env.from_arrow(pa.table({"of": ["a", "a"], "ms": [9_000, 1]}), event_time="ms").key_by("of")
        >>> late = fn.OutputTag("late")
        >>> counts = ticks.window(fn.Tumbling("1s")).side_output_late_data(late).agg(n=fn.count())
        >>> too_late = counts.side_output(late)
        """
        if not isinstance(tag, OutputTag):
            raise PlanError(f"side_output() reads a flownet.OutputTag, not {type(tag).__name__}")
        node = self._node("side_output")
        if tag.name not in self._sides:
            raise PlanError(
                f"side_output({tag.name!r}): operator {node.name!r} has no such side output; windows of rows have "
                "one by side_output_late_data(tag), joins by side_output_left_late_data=tag and "
                "side_output_right_late_data=tag",
                operator=node.name,
            )
        return Rows(self._env, (Origin(node, tag=tag.name),), self._sides[tag.name])

    def union(self, *others: Rows) -> Rows:
        """Merge these rows with others of the same columns.

        Parameters
        ----------
        *others
            Rows with columns of the same names and types, in the same order. A column that may have nulls in one of
            them may have nulls in the result.

        Raises
        ------
        PlanError
            Their columns differ, or they belong to another environment.

        Examples
        --------
        >>> import pyarrow as pa
        >>> one, other = (env.from_arrow(pa.table({"user": [name]})) for name in ("ann", "bob"))
        >>> print(one.union(other))
        Rows from from_arrow, from_arrow
          user  utf8
        """
        for other in others:
            if not isinstance(other, Rows):
                raise PlanError(f"union() of rows merges rows, not {type(other).__name__}")
            if other._env is not self._env:
                raise PlanError("union() merges streams of one environment, and these belong to two")
            if list(other.schema.items()) != list(self.schema.items()):
                raise PlanError(f"union() merges rows of the same columns, and these differ:\n{self}\n{other}")
        merged = (self, *others)
        if any(other._schema != self._schema for other in others):
            merged = tuple(each._with_nulls(_columns_with_nulls(merged)) for each in merged)
        origins = tuple(origin for each in merged for origin in each._origins)
        return Rows(self._env, origins, merged[0]._schema)

    def rebalance(self) -> Rows:
        """Deal batches out evenly to the subtasks of what follows."""
        return self._by("rebalance")

    def broadcast(self) -> Rows:
        """Send all rows to every subtask of what follows."""
        return self._by("broadcast")

    def to_objects(self, *, as_dicts: bool = True) -> Stream[Any]:
        """Make a record of each row, for functions of one record, and for sinks.

        Values become what Python has for them: ``int``, ``float``, ``str``, ``datetime``, ``Decimal``, ...; of
        nanoseconds whole microseconds are left. Records keep the event time of their rows. A date, time or duration
        that Python has no object for, such as one of the year 10000, ends the job with an ``OverflowError`` that names
        the column.

        Parameters
        ----------
        as_dicts
            Whether records are dicts by name of column; else tuples. Default: True.

        Examples
        --------
        >>> import pyarrow as pa
        >>> records = env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).to_objects().collect()
        >>> result = env.execute()
        >>> list(records)
        [{'user': 'ann', 'spent': 1.5}]
        """
        settings: spec.RowsKind = {"to_objects": {"input": self._schema.planned(), "as_dicts": as_dicts}}
        return Stream(self._env, (Origin(self._add("to_objects", settings)),))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and name in vars(rows.KeyedRows):
                raise AttributeError(
                    f'{name}() works by key: call key_by() before it, such as .key_by("user").{name}(...), or '
                    f".key_by(all=fn.lit(0)).{name}(...) to take all rows together"
                )
            if not name.startswith("_") and hasattr(Stream, name):
                raise AttributeError(
                    f"{name}() is of streams of objects: rows.to_objects().{name}(...) has a record for each row; "
                    "map_batches() calls a function with many rows at a time"
                )
            raise no_attribute("Rows", name)

    @staticmethod
    def _of_records(env: DataflowOwner, origins: tuple[Origin, ...], schema: SchemaLike) -> Rows:
        """Make rows of the records of a stream."""
        found = schema_of("to_rows", schema)
        node = env._dataflow.add({"rows": {"to_rows": {"output": found.planned()}}}, name="to_rows", inputs=origins)
        return Rows(env, (Origin(node),), found)

    def _with_nulls(self, columns: list[str]) -> Rows:
        """Let these columns, and values inside them, be null."""
        # A cast that gives null for what does not fit has a nullable type, and everything fits here.
        made = [
            {"name": name, "value": col(name).cast(kind, strict=False)._tree()}
            for name, kind, nullable in self._schema.fields()
            if name in columns and (not nullable or kind.startswith(_NESTED))
        ]
        return self._project("union", [{"with_columns": made}]) if made else self

    def _known(self, method: str, columns: Iterable[str]) -> None:
        for column in columns:
            if column not in self.columns:
                shown = ", ".join(map(repr, self.columns))
                raise PlanError(f"{method}: there is no column {column!r}; there are {shown}")

    def _project(self, method: str, steps: list[dict[str, Any]]) -> Rows:
        if not steps:
            raise PlanError(f'{method}() needs at least one expression, such as fn.col("price") > 3')
        schema = checked(_flownet.rows_after_steps, self._schema, steps)
        return self._then(method, {"project": {"input": self._schema.planned(), "steps": steps}}, schema)

    def _then(self, name: str, settings: spec.RowsKind, schema: _flownet.RowSchema, **described: object) -> Rows:
        return Rows(self._env, (Origin(self._add(name, settings, **described)),), schema)

    def _add(self, name: str, settings: spec.RowsKind, **described: object) -> Node:
        return self._env._dataflow.add({"rows": settings}, name=name, inputs=self._origins, **described)

    def _by(self, partitioner: PartitionerName) -> Rows:
        origins = tuple(replace(origin, partitioner=partitioner, function=None) for origin in self._origins)
        return Rows(self._env, origins, self._schema)


def _expression(method: str, given: object) -> Expr:
    if not isinstance(given, Expr):
        raise PlanError(f'{method}() takes expressions such as fn.col("price") > 3, not {type(given).__name__}')
    return given


_NESTED = ("list", "struct")
"""What names of types begin with whose values hold others."""


def _columns_with_nulls(merged: tuple[Rows, ...]) -> list[str]:
    """Find the columns that need a type for nulls, so that rows of all inputs have one schema."""
    flags = zip(*([nullable for _, _, nullable in each._schema.fields()] for each in merged), strict=True)
    differ = [len(set(of_column)) > 1 for of_column in flags]
    kinds = merged[0].schema
    return [name for name, differs in zip(kinds, differ, strict=True) if differs or kinds[name].startswith(_NESTED)]
