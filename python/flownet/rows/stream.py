"""`Rows`, a stream of rows with named and typed columns. Columns are checked before a job runs."""

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
    """A stream of rows with named and typed columns: a streaming data frame.

    Sources such as `Environment.from_arrow` and `Environment.read_parquet` create rows, and so does `Stream.to_rows`.
    Operators process batches of columns in Rust. Only `map_batches` calls Python.

    Column types are ints, floats, bool, utf8, binary, dates, times, timestamps, durations and decimals. Lists and
    structs of these work, too. All Arrow types of strings are read as ``utf8``, all types of bytes as ``binary``, and
    all types of lists as one list type. Dictionary columns are read as their values.

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
        """Set the operator's stable ID, by which a savepoint finds its state.

        Parameters
        ----------
        uid
            Unique in the dataflow. The partial aggregation upstream of the exchange gets ``"<uid>/partial"``.

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
        """Names and types of the columns, in order.

        Examples
        --------
        >>> import pyarrow as pa
        >>> env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).schema
        {'user': 'utf8', 'spent': 'float64'}
        """
        return {name: kind for name, kind, _ in self._schema.fields()}

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order.

        Examples
        --------
        >>> import pyarrow as pa
        >>> env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).columns
        ['user', 'spent']
        """
        return list(self.schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def filter(self, *predicates: Expr) -> Rows:
        """Keep only rows for which all predicates are true.

        `filter` drops rows for which a predicate is false or null.

        Parameters
        ----------
        *predicates
            Expressions of type bool, at least one.

        Raises
        ------
        PlanError
            There is no predicate, or one is not an expression.

        Examples
        --------
        >>> import pyarrow as pa
        >>> dear = env.from_arrow(pa.table({"price": [1.0, 3.0]})).filter(fn.col("price") > 2)
        >>> dear.to_arrow().to_pylist()
        [{'price': 3.0}]
        """
        steps = [{"filter": _expression("filter", predicate)._tree()} for predicate in predicates]
        return self._project("filter", steps)

    def select(self, *columns: str | Expr, **named: Any) -> Rows:
        """Select or compute columns, and drop all others.

        Parameters
        ----------
        *columns
            Names of columns, or expressions. An expression's column gets the name of its first column, or the name
            that you give it with `Expr.alias`.
        **named
            Expressions or values, by the name of their column.

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
        """Add columns, or replace columns of the same name.

        All expressions read the input columns, so none sees a column that the same call adds.

        Parameters
        ----------
        *columns, **named
            As for `select`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> trades = env.from_arrow(pa.table({"price": [1.0, 3.0], "size": [2, 2]}))
        >>> trades.with_columns(worth=fn.col("price") * fn.col("size")).columns
        ['price', 'size', 'worth']
        """
        return self._project("with_columns", [{"with_columns": named_columns("with_columns", columns, named)}])

    def drop(self, *columns: str) -> Rows:
        """Drop columns.

        Parameters
        ----------
        *columns
            Names of columns.

        Raises
        ------
        PlanError
            There is no such column.

        Examples
        --------
        >>> import pyarrow as pa
        >>> env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).drop("spent").columns
        ['user']
        """
        self._known("drop", columns)
        kept = [name for name in self.columns if name not in columns]
        return self._project("drop", [{"select": named_columns("drop", kept, {})}])

    def rename(self, names: dict[str, str]) -> Rows:
        """Rename columns.

        Parameters
        ----------
        names
            The new names of columns, by their old names. Other columns keep their names.

        Raises
        ------
        PlanError
            There is no such column, or two columns would get the same name.

        Examples
        --------
        >>> import pyarrow as pa
        >>> env.from_arrow(pa.table({"user": ["ann"], "spent": [1.5]})).rename({"spent": "total"}).columns
        ['user', 'total']
        """
        self._known("rename", names)
        renamed = [names.get(name, name) for name in self.columns]
        for name in renamed:
            if renamed.count(name) > 1:
                raise PlanError(f"rename: two columns would be called {name!r}: rename or drop the other one, too")
        columns = [{"name": names.get(name, name), "value": col(name)._tree()} for name in self.columns]
        return self._project("rename", [{"select": columns}])

    def cast(self, types: dict[str, str]) -> Rows:
        """Convert columns to other types.

        A value that does not fit its new type ends the job. The error shows the row. To get null instead, use
        `Expr.cast` with ``strict=False``.

        Parameters
        ----------
        types
            The new types by name of column, such as ``{"price": "float64"}``. Other columns keep their types.

        Raises
        ------
        PlanError
            There is no such column or type.

        Examples
        --------
        >>> import pyarrow as pa
        >>> env.from_arrow(pa.table({"user": ["ann"], "spent": [1]})).cast({"spent": "float64"}).schema
        {'user': 'utf8', 'spent': 'float64'}
        """
        self._known("cast", types)
        columns = [{"name": name, "value": col(name).cast(kind)._tree()} for name, kind in types.items()]
        return self._project("cast", [{"with_columns": columns}])

    def explode(self, column: str) -> Rows:
        """Make one row for each item of the lists in a column.

        Empty lists and nulls give no row.

        Parameters
        ----------
        column
            Name of a column of lists.

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
        """Call a Python function with each batch of at most 8,192 rows.

        A batch holds the rows that are ready, so its size depends on timing. flownet never waits to fill a batch.

        Parameters
        ----------
        function
            Takes a batch and returns any number of rows. It may return a batch or table of pyarrow, polars or another
            library with the Arrow PyCapsule interface, or a data frame of pandas. With format ``"numpy"`` it returns a
            dict of arrays. It runs in the workers.
        schema
            The columns that the function returns. Default: None, ``map_batches`` finds them by calling the function
            once, immediately, with a batch of no rows.
        format
            The type of the argument. ``"arrow"`` is a ``pyarrow.RecordBatch``, ``"polars"`` and ``"pandas"`` are data
            frames, and ``"numpy"`` is a dict of arrays by column. Default: ``"arrow"``.

        Raises
        ------
        PlanError
            ``function`` is not callable, or flownet cannot find out its columns.

        Notes
        -----
        If the function returns as many rows as it got, rows keep their event times. Otherwise call
        `assign_timestamps` on the result.

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
        """Take event times from a column and generate watermarks.

        Call it upstream of the first exchange. It may follow `Stream.to_rows`, `select` or `filter`. Each file or split
        of the source then has its own watermark. A `rebalance` upstream of it moves downstream of it.

        Parameters
        ----------
        column
            A timestamp of any time zone, a date, or an ``int64`` of milliseconds since 1970, in UTC. Integers that are
            clearly in another unit end the job with an `OperatorError`. Cast these to a timestamp first.
        delay
            The most that a row arrives after later rows of its file, row group, partition or table. Rows that break
            this bound may be late. Late rows are counted, and a warning reports them. Default: None, there is no bound,
            and no row is ever late. Event time then advances by the statistics of unread Parquet files and by the
            rows ahead in a table. Over CSV and JSON it waits for the end of the input, and windows stay in state until
            then. Input that may have no end needs a delay, such as a reader, a function or a topic.
        idle_after
            Stop waiting for a subtask after it has had no rows for this long. Default: None, always wait.
        max_ahead
            A row that is further than this ahead of the others of its split does not advance event time. See
            `WatermarkStrategy.with_max_ahead`. It needs a delay. Default: None, every row advances event time.

        Raises
        ------
        PlanError
            There is no such column, or it cannot hold event times. Or ``delay`` is missing and the input may have no
            end.

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
        """Partition rows by key. Rows with equal keys go to the same subtask.

        Parameters
        ----------
        *columns
            Names of columns, or expressions. An expression's column gets the name of its first column, or the name
            that you give it with `Expr.alias`. Lists, structs and decimals of a negative scale cannot be keys.
        **named
            Expressions, by the name of their column in results.

        Raises
        ------
        PlanError
            There is no such column, its type cannot be a key, or two columns have the same name.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rows = env.from_arrow(pa.table({"user": ["a"], "page": ["x"], "spent": [1.5]}))
        >>> sums = rows.key_by("user", "page").window(fn.EndOfInput()).agg(spent=fn.sum("spent"))
        >>> totals = rows.key_by(initial=fn.col("user").str.slice(0, 1)).window(fn.EndOfInput()).agg(n=fn.count())
        """
        return self._keyed_by("key_by", columns, named)

    def group_by(self, *columns: str | Expr, **named: Any) -> rows.GroupedRows:
        """Group rows of bounded input, for one result per group.

        Results are emitted when the input ends. For an endless stream use windows: ``key_by(...).window(...)``.

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
        """Read late rows from a side output of the operator.

        Rows of a side output that you do not read are dropped.

        Parameters
        ----------
        tag
            The tag that you gave to `WindowedRows.side_output_late_data`, or to a join as
            ``side_output_left_late_data=`` or ``side_output_right_late_data=``.

        Returns
        -------
        Rows
            The rows as they reached the windows or the join, with their event times.

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
        """Merge streams of rows that have the same columns.

        Parameters
        ----------
        *others
            Rows with columns of the same names and types, in the same order. If a column may be null in one stream, it
            may be null in the result.

        Raises
        ------
        PlanError
            The columns differ, or the streams belong to different environments.

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
        """Distribute batches evenly to the subtasks of the next operator.

        Examples
        --------
        >>> import pyarrow as pa
        >>> even = env.from_arrow(pa.table({"price": [1.0, 3.0]})).rebalance().filter(fn.col("price") > 2)
        """
        return self._by("rebalance")

    def broadcast(self) -> Rows:
        """Send all rows to every subtask of the next operator.

        Examples
        --------
        >>> import pyarrow as pa
        >>> everywhere = env.from_arrow(pa.table({"price": [1.0, 3.0]})).broadcast().filter(fn.col("price") > 2)
        """
        return self._by("broadcast")

    def to_objects(self, *, as_dicts: bool = True) -> Stream[Any]:
        """Convert each row to a Python record, a dict or a tuple.

        Values become Python objects: ``int``, ``float``, ``str``, ``datetime``, ``Decimal`` and so on. Nanoseconds are
        cut to microseconds. Records keep the event times of their rows. A time that Python cannot represent, such as
        one of the year 10000, ends the job with an ``OverflowError`` that names the column.

        Parameters
        ----------
        as_dicts
            True for dicts by name of column, False for tuples. Default: True.

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
        """Create rows from the records of a stream."""
        found = schema_of("to_rows", schema)
        node = env._dataflow.add({"rows": {"to_rows": {"output": found.planned()}}}, name="to_rows", inputs=origins)
        return Rows(env, (Origin(node),), found)

    def _with_nulls(self, columns: list[str]) -> Rows:
        """Make these columns, and the values inside them, nullable."""
        # A cast with strict=False has a nullable type. Here every value fits, so it changes nothing else.
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
"""Prefixes of the names of nested types."""


def _columns_with_nulls(merged: tuple[Rows, ...]) -> list[str]:
    """Find the columns that must become nullable so that all inputs have the same schema."""
    flags = zip(*([nullable for _, _, nullable in each._schema.fields()] for each in merged), strict=True)
    differ = [len(set(of_column)) > 1 for of_column in flags]
    kinds = merged[0].schema
    return [name for name, differs in zip(kinds, differ, strict=True) if differs or kinds[name].startswith(_NESTED)]
