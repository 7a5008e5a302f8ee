"""Keyed and windowed rows: aggregates, top n, deduplication and joins."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import _flownet
from ..api.functions import OutputTag
from ..api.window import EndOfInput, Global, Session, Sliding, Tumbling, WindowAssigner, assign
from ..errors import PlanError
from ..internal import config
from ..planning import spec
from ..planning.dataflow import Origin, has_timestamps
from ..streams.checks import kind_of, number_of
from ..streams.joined import JoinKind, bounds_ms, keeps_unmatched
from ..streams.keyed import KeyedStream
from ..streams.windows import WindowSettings
from ..triggers import BuiltInTrigger, Trigger
from .aggregates import Aggregate, planned
from .batch_aggregate import AggregateCalls, AppliedAggregate
from .joined import joined
from .schemas import checked
from .stream import Rows


class KeyedRows:
    """Rows partitioned by key. Created by `Rows.key_by`."""

    def __init__(self, rows: Rows, keys: tuple[str, ...]) -> None:
        self._rows = rows
        self._keys = keys

    def __repr__(self) -> str:
        return f"<KeyedRows of {self._rows!r} by {', '.join(self._keys)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and hasattr(Rows, name):
                raise AttributeError(f"{name}() is of rows, not of rows by key: call it before key_by()")
            if not name.startswith("_") and hasattr(KeyedStream, name):
                raise AttributeError(
                    f"{name}() is of streams of objects: rows.to_objects().key_by(...).{name}(...) has a record for "
                    "each row"
                )
            if name == "agg":
                raise AttributeError(
                    "agg() needs groups that end: rows.group_by(...).agg(...) gives one row for each group when the "
                    "input ends, key_by(...).window(...).agg(...) one for each window. running_agg(...) gives new "
                    "results with each batch"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def window(self, window: WindowAssigner) -> WindowedRows:
        """Group the rows of each key by window.

        Parameters
        ----------
        window
            A `Tumbling`, `Sliding`, `Session`, `EndOfInput` or `Global` window, as for `KeyedStream.window`. If rows
            have event times, windows use them. Otherwise windows use the wall clock. `Global` needs a
            `WindowedRows.trigger`.

        Raises
        ------
        PlanError
            Rows have no such windows, for example sessions with a gap for each record.

        Examples
        --------
        >>> import pyarrow as pa
        >>> clicks = env.from_arrow(pa.table({"user": ["a", "a"], "ms": [1, 6_000]}), event_time="ms")
        >>> counts = clicks.key_by("user").window(fn.Tumbling("5s")).agg(n=fn.count())
        >>> counts.columns
        ['user', 'window_start', 'window_end', 'n']
        >>> counts.to_arrow()["n"].to_pylist()
        [1, 1]
        """
        return WindowedRows(self, WindowSettings.of(_known_window("window", window), self._rows._origins))

    def running_agg(self, **aggregates: Aggregate | AppliedAggregate) -> Rows:
        """Aggregate all rows of each key so far, with new results for each batch.

        Each batch of rows gives one row for each key in it. How many rows a key gets depends on how the input is cut
        into batches, so it may differ between runs. The last row of a key is always its final result. If you need only
        that one, use `Rows.group_by`.

        Parameters
        ----------
        **aggregates
            Aggregates by the name of their column: ``n=fn.count(), total=fn.sum("price")``, or a `BatchAggregate`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> bids = env.from_arrow(pa.table({"item": ["a", "a", "b"], "price": [3, 9, 1]}))
        >>> totals = bids.key_by("item").running_agg(total=fn.sum("price")).collect()
        >>> result = env.execute()
        >>> last = {row["item"]: row["total"] for row in totals.to_arrow().to_pylist()}
        >>> last
        {'a': 12, 'b': 1}
        """
        return _aggregated("running_agg", self, None, aggregates)

    def deduplicate(self, ttl: str | timedelta | None = None) -> Rows:
        """Drop duplicate rows: only the first row of each key passes.

        With ``ttl`` and event time the result depends only on the rows. Each row waits until the watermark reaches its
        time. It passes if no row of its key passed within ``ttl`` before it. If rows have the same key and time, one
        passes, the same one in any order. Late rows are dropped and counted.

        In all other cases rows pass at once. If the rows of a key come from several subtasks, timing decides which one
        is first.

        Parameters
        ----------
        ttl
            How long a key is remembered after a row passed. Later rows of the key count as new. Measured by event time
            if rows have one, otherwise by the wall clock. At least 1 ms. Default: None, for ever. Each key then needs
            memory.

        Examples
        --------
        >>> import pyarrow as pa
        >>> events = env.from_arrow(pa.table({"id": [7, 8, 7], "what": ["in", "in", "again"]}))
        >>> once = events.key_by("id").deduplicate().collect()
        >>> result = env.execute()
        >>> once.to_arrow().to_pylist()
        [{'id': 7, 'what': 'in'}, {'id': 8, 'what': 'in'}]
        """
        ttl_ms = None if ttl is None else max(1, config.duration_us("ttl", ttl) // 1000)
        in_event_time = ttl_ms is not None and has_timestamps(self._rows._origins)
        kept = [self._key_kinds(), *(["first rows by event time"] if in_event_time else [])]
        settings: spec.RowsKind = {
            "deduplicate": {
                "input": self._rows._schema.planned(),
                "ttl_ms": ttl_ms,
                "clock": "event" if in_event_time else "processing",
                "kept": kept,
            }
        }
        return self._kept("deduplicate", settings)

    def _key_kinds(self) -> str:
        """Describe the types of the keys. State by keys of other types would not be found.

        Numbers of all types compare as equal, and so do bools and numbers.
        """
        kinds = {"utf8": "text", "binary": "bytes"}
        types = (self._rows.schema[name].partition("(")[0] for name in self._keys)
        return f"keys of type {' and '.join(kinds.get(kind, 'number') for kind in types)}"

    def _kept(self, name: str, settings: spec.RowsKind, rank: spec.RowsRank | None = None) -> Rows:
        """Add an operator whose output has the schema of its input."""
        rows = self._rows
        inputs = (self._to_keys((rows.columns, rows._schema), keeps_null_keys=True, rank=rank),)
        node = rows._env._dataflow.add({"rows": settings}, name=name, inputs=inputs)
        return Rows(rows._env, (Origin(node),), rows._schema, _late(rows, rank and rank["window"]))

    def _to_keys(
        self,
        carried: tuple[list[str], _flownet.RowSchema],
        *,
        keeps_null_keys: bool,
        rank: spec.RowsRank | None = None,
        bundles: bool = False,
    ) -> Origin:
        """Send these columns to the subtask of their key, row by row or in mini-batches. The schema has their names."""
        columns, schema = carried
        settings: spec.RowsKind = {
            "key_rows": {
                "input": self._rows._schema.planned(),
                "keys": list(self._keys),
                "carried": columns,
                "output": schema.planned(),
                "keeps_null_keys": keeps_null_keys,
                "rank": rank,
                "bundles": bundles,
            }
        }
        return Origin(self._rows._add("key_by", settings), partitioner="key_group")

    def interval_join(
        self,
        other: KeyedRows,
        lower: str | timedelta,
        upper: str | timedelta,
        *,
        suffix: str = "_right",
        side_output_left_late_data: OutputTag | None = None,
        side_output_right_late_data: OutputTag | None = None,
    ) -> Rows:
        """Join with rows of the same key whose event times are near.

        A pair is emitted as soon as both rows have arrived. It has the time of the later row. Rows older than the
        watermark are late. They are dropped and counted as ``late_records``, unless you set a side output. Rows with a
        null in their key have no match.

        Parameters
        ----------
        other
            The second stream. Its key has as many columns.
        lower, upper
            How much later a row of the second stream may be, from ``lower`` to ``upper``, both included. Negative
            durations mean earlier: ``"-5s", "1min"``. In whole milliseconds. Times are compared to the nanosecond.
        suffix
            Suffix for columns of the second stream whose names exist in the first one, too. Default: ``"_right"``.
        side_output_left_late_data, side_output_right_late_data
            Tags for late rows of the first and of the second stream. Read them with `Rows.side_output` of the result.
            They have all columns and their times. Default: None, late rows are dropped and counted.

        Returns
        -------
        Rows
            The columns of the first stream, and the columns of the second one without its key.

        Examples
        --------
        >>> import pyarrow as pa
        >>> orders = env.from_arrow(pa.table({"id": [1, 2], "ms": [0, 10], "item": ["tea", "jam"]}), event_time="ms")
        >>> paid = env.from_arrow(pa.table({"id": [2, 1], "ms": [70, 9_000], "sum": [4, 3]}), event_time="ms")
        >>> soon = orders.key_by("id").interval_join(paid.key_by("id"), "0s", "1s").collect()
        >>> result = env.execute()
        >>> soon.to_arrow().to_pylist()
        [{'id': 2, 'ms': 10, 'item': 'jam', 'ms_right': 70, 'sum': 4}]
        """
        lower_ms, upper_ms = bounds_ms("interval_join", lower, upper)
        by: spec.RowsJoin = {"interval": {"lower_ms": lower_ms, "upper_ms": upper_ms}}
        late_tags = side_output_left_late_data, side_output_right_late_data
        return self._joined("interval_join", other, by, suffix, late_tags)

    def as_of_join(
        self,
        other: KeyedRows,
        *,
        how: JoinKind = "inner",
        suffix: str = "_right",
        side_output_left_late_data: OutputTag | None = None,
        side_output_right_late_data: OutputTag | None = None,
    ) -> Rows:
        """Join each row with the newest earlier version of its key.

        The version is the row of ``other`` with the same key and the greatest event time that is not later. Rows of a
        key are emitted in the order of their times, when the watermark reaches them. If several versions have the same
        time, the one that arrived last counts. Times are compared to the nanosecond. Late rows and null keys are
        handled as in `interval_join`.

        Parameters
        ----------
        other
            The versions. Their key has as many columns.
        how
            ``"inner"`` or ``"left"``. With ``"left"``, rows without a version are emitted, too, with nulls in the
            columns of ``other``. Default: ``"inner"``.
        suffix
            As of `interval_join`.
        side_output_left_late_data, side_output_right_late_data
            As of `interval_join`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> rates = env.from_arrow(pa.table({"of": ["usd", "usd"], "ms": [0, 70], "rate": [1.1, 1.2]}), event_time="ms")
        >>> sales = env.from_arrow(pa.table({"in": ["usd", "eur"], "ms": [50, 60], "sum": [10, 20]}), event_time="ms")
        >>> priced = sales.key_by("in").as_of_join(rates.drop("ms").key_by("of"), how="left").collect()
        >>> result = env.execute()
        >>> priced.to_arrow().sort_by("ms").to_pylist()
        [{'in': 'usd', 'ms': 50, 'sum': 10, 'rate': 1.1}, {'in': 'eur', 'ms': 60, 'sum': 20, 'rate': None}]
        """
        by: spec.RowsJoin = {"as_of": {"keeps_unmatched": keeps_unmatched(how)}}
        late_tags = side_output_left_late_data, side_output_right_late_data
        return self._joined("as_of_join", other, by, suffix, late_tags)

    def join(
        self,
        other: KeyedRows,
        window: WindowAssigner | None = None,
        *,
        suffix: str = "_right",
        side_output_left_late_data: OutputTag | None = None,
        side_output_right_late_data: OutputTag | None = None,
    ) -> Rows:
        """Join rows of equal keys, within windows or without limit.

        With a window, all pairs of the window are emitted when it ends. Their time is the last millisecond of the
        window. Late rows are handled as in `interval_join`. Without a window, a pair is emitted as soon as both rows
        have arrived. It has the time of the later row, if rows have times. Rows with a null in their key have no match.

        Parameters
        ----------
        other
            The second stream. Its key has as many columns.
        window
            As for `window`. Default: None, each row joins all rows of its key. Both streams then stay in state, which
            grows with them. If matching rows are near in time, use `interval_join`, which drops them after that time.
        suffix
            As for `interval_join`.
        side_output_left_late_data, side_output_right_late_data
            As for `interval_join`, for rows that are too late for all of their windows. An error without a window.

        Examples
        --------
        >>> import pyarrow as pa
        >>> left = env.from_arrow(pa.table({"user": ["ann", "bob"], "page": [1, 2]}))
        >>> right = env.from_arrow(pa.table({"user": ["ann", "ann"], "city": ["Rome", "Oslo"]}))
        >>> pairs = left.key_by("user").join(right.key_by("user"), fn.EndOfInput()).collect()
        >>> result = env.execute()
        >>> pairs.to_arrow().to_pylist()
        [{'user': 'ann', 'page': 1, 'city': 'Rome'}, {'user': 'ann', 'page': 1, 'city': 'Oslo'}]
        """
        second = _keyed_rows("join", other)
        late_tags = side_output_left_late_data, side_output_right_late_data
        if window is None:
            return self._joined("join", second, {"regular": {}}, suffix, late_tags)
        if isinstance(window, Global):
            raise PlanError(
                "join(flownet.Global()) would give nothing out: leave the window out, and rows meet as they come; or "
                "use flownet.EndOfInput(), which fires once"
            )
        known = WindowSettings.of(_known_window("join", window), (*self._rows._origins, *second._rows._origins))
        return self._joined("join", second, {"window": {"window": _planned("join", known)}}, suffix, late_tags)

    def _joined(
        self,
        method: str,
        other: object,
        by: spec.RowsJoin,
        suffix: str,
        late_tags: tuple[OutputTag | None, OutputTag | None],
    ) -> Rows:
        return joined(method, (self, _keyed_rows(method, other)), by, suffix, late_tags)


def _keyed_rows(method: str, given: object) -> KeyedRows:
    if not isinstance(given, KeyedRows):
        raise PlanError(f"{method}() takes rows by key, other.key_by(...), not {kind_of(given)}")
    return given


class WindowedRows:
    """Rows grouped by key and window. Created by `KeyedRows.window`."""

    def __init__(self, keyed: KeyedRows, cut: WindowSettings) -> None:
        self._keyed = keyed
        self._cut = cut

    def __repr__(self) -> str:
        return f"<WindowedRows of {self._keyed!r}, {self._cut.assigner}>"

    def trigger(self, trigger: Trigger[Any] | BuiltInTrigger) -> WindowedRows:
        """Set a trigger that decides when windows emit results.

        The default is to emit once, at the window's end. With a trigger each row crosses the exchange, because the
        trigger counts rows one by one.

        Parameters
        ----------
        trigger
            A built-in trigger that does not read values, such as ``CountTrigger(100)`` or
            ``ContinuousEventTimeTrigger("10s")``. A `PurgingTrigger` may wrap it.

        Raises
        ------
        PlanError
            The trigger is a custom one, or uses another clock than the windows.

        Examples
        --------
        >>> import pyarrow as pa
        >>> bids = env.from_arrow(pa.table({"item": ["a", "a", "a"], "price": [3, 9, 5]})).key_by("item")
        >>> every_second = fn.triggers.PurgingTrigger(fn.triggers.CountTrigger(2))
        >>> pairs = bids.window(fn.Global()).trigger(every_second).agg(sum=fn.sum("price"))
        >>> sums = pairs.collect()
        >>> result = env.execute()
        >>> sums.to_arrow().to_pylist()  # and what is left when the input ends
        [{'item': 'a', 'sum': 12}, {'item': 'a', 'sum': 5}]
        """
        cut = self._cut.with_trigger(trigger)
        if isinstance(cut.trigger, Trigger):
            raise PlanError(
                f"trigger({type(trigger).__name__}): windows of rows have no triggers that look at records; there are "
                "CountTrigger, EventTimeTrigger, ProcessingTimeTrigger, the continuous ones, PurgingTrigger of these"
            )
        return WindowedRows(self._keyed, cut)

    def allowed_lateness(self, lateness: str | timedelta) -> WindowedRows:
        """Accept late rows for this long after a window's end.

        The time after the end is measured by the watermark. Each accepted late row emits the results of its windows
        again.

        Parameters
        ----------
        lateness
            A duration such as ``"10s"``, in whole milliseconds. If you do not call this, all rows that arrive after
            the watermark passed the end of their windows are late.

        Examples
        --------
        >>> import pyarrow as pa
        >>> ticks = env.from_arrow(pa.table({"of": ["a", "a"], "ms": [9_000, 1]}), event_time="ms").key_by("of")
        >>> counts = ticks.window(fn.Tumbling("1s")).allowed_lateness("10s").agg(n=fn.count())
        """
        return WindowedRows(self._keyed, self._cut.with_lateness(lateness))

    def side_output_late_data(self, tag: OutputTag) -> WindowedRows:
        """Send late rows to a side output instead of dropping them.

        A row is late if it is too late for all of its windows. With this option each row crosses the exchange with all
        columns, because upstream tasks do not know which rows will be late.

        Parameters
        ----------
        tag
            The tag by which you read the rows, with `Rows.side_output` of the result.

        Examples
        --------
        >>> import pyarrow as pa
        >>> ticks = env.from_arrow(pa.table({"of": ["a", "a"], "ms": [9_000, 1]}), event_time="ms").key_by("of")
        >>> late = fn.OutputTag("late")
        >>> counts = ticks.window(fn.Tumbling("1s")).side_output_late_data(late).agg(n=fn.count())
        >>> too_late = counts.side_output(late)
        """
        return WindowedRows(self._keyed, self._cut.with_late_tag(tag))

    def agg(self, **aggregates: Aggregate | AppliedAggregate) -> Rows:
        """Aggregate the rows of each key and window.

        Upstream tasks aggregate first, by key and slice of time, so few rows cross the exchange. Late rows are dropped
        and counted, unless you use `side_output_late_data`.

        Parameters
        ----------
        **aggregates
            Aggregates by the name of their column: ``n=fn.count(), total=fn.sum("price")``, or a `BatchAggregate`.

        Returns
        -------
        Rows
            The columns of the key, ``window_start`` and ``window_end``, and one column for each aggregate. `EndOfInput`
            and `Global` windows have no ``window_start`` and ``window_end``. These columns are in UTC, or in the zone
            of `Tumbling`. The event time of a result is the last millisecond of its window.

        Examples
        --------
        >>> import pyarrow as pa
        >>> bids = env.from_arrow(pa.table({"item": ["a", "a"], "price": [3, 9]}))
        >>> totals = bids.key_by("item").window(fn.EndOfInput()).agg(n=fn.count(), total=fn.sum("price"))
        >>> totals.to_arrow().to_pylist()
        [{'item': 'a', 'n': 2, 'total': 12}]
        """
        return _aggregated("agg", self._keyed, _planned("agg", self._cut), aggregates)

    def top_n(self, n: int, by: str, *, descending: bool = True, ties: bool = False) -> Rows:
        """Emit the ``n`` rows with the greatest values of each key and window.

        The greatest value comes first, and nulls come last. If values are equal, the earlier row wins. If times are
        equal, too, the row whose values sort first as bytes wins. So the result depends only on the rows. Upstream
        tasks send only rows that may be among the top ``n``. Late rows among these are dropped and counted.

        Parameters
        ----------
        n
            Maximum number of rows.
        by
            The column to compare. To compare computed values, add a column with `Rows.with_columns` first.
        descending
            True for the greatest values, False for the smallest. Default: True.
        ties
            Whether to add all rows with the same value as the last one. Default: False.

        Returns
        -------
        Rows
            The columns of the input. The event time of a row is the last millisecond of its window.

        Examples
        --------
        >>> import pyarrow as pa
        >>> bids = env.from_arrow(pa.table({"item": ["a", "a", "b", "a"], "price": [3, 9, 1, 5]}))
        >>> best = bids.key_by("item").window(fn.EndOfInput()).top_n(2, "price").collect()
        >>> result = env.execute()
        >>> best.to_arrow().to_pylist()
        [{'item': 'a', 'price': 9}, {'item': 'a', 'price': 5}, {'item': 'b', 'price': 1}]
        """
        rows = self._keyed._rows
        count = number_of("top_n", n)
        if not isinstance(by, str):
            raise PlanError(f"top_n() goes by a column: name it, or make one by with_columns() before, not {by!r:.60}")
        rows._known("top_n", [by])
        window = _planned("top_n", self._cut)
        rank: spec.RowsRank = {"by": by, "descending": descending, "count": count, "ties": ties, "window": window}
        order = f"{by}{' descending' if descending else ''}{' with ties' if ties else ''}"
        kept = [f"{count} by {order} of {rows._schema.kept()}", self._keyed._key_kinds()]
        settings: spec.RowsKindTopN = {"input": rows._schema.planned(), "rank": rank, "kept": kept}
        return self._keyed._kept("top_n", {"top_n": settings}, rank)


def _known_window(method: str, window: object) -> WindowAssigner:
    if isinstance(window, Session) and window.gap_ms is None:
        raise PlanError("windows of rows are flownet.Tumbling, Sliding, Session with one gap, EndOfInput and Global")
    if not isinstance(window, Tumbling | Sliding | Session | EndOfInput | Global):
        raise PlanError(f"{method}() needs a window such as flownet.Tumbling('5s'), not {type(window).__name__}")
    return window


def _planned(method: str, cut: WindowSettings) -> spec.WindowSpec:
    if isinstance(cut.assigner, Global) and cut.trigger is None:
        raise PlanError(
            f"{method}() of flownet.Global() gives nothing out: say when, with trigger(...), or use "
            "flownet.EndOfInput(), which fires once"
        )
    return cut.planned()


class GroupedRows:
    """Grouped rows. Each group has one result when the input ends. Created by `Rows.group_by`."""

    def __init__(self, keyed: KeyedRows) -> None:
        self._keyed = keyed

    def __repr__(self) -> str:
        return f"<GroupedRows of {self._keyed._rows!r} by {', '.join(self._keyed._keys)}>"

    def agg(self, **aggregates: Aggregate | AppliedAggregate) -> Rows:
        """Aggregate the rows of each group, when the input ends.

        Parameters
        ----------
        **aggregates
            Aggregates by the name of their column: ``n=fn.count(), total=fn.sum("price")``, or a `BatchAggregate`.

        Returns
        -------
        Rows
            The columns of the key, and one column for each aggregate.

        Examples
        --------
        >>> import pyarrow as pa
        >>> bids = env.from_arrow(pa.table({"item": ["a", "a", "b"], "price": [3, 9, 1]}))
        >>> totals = bids.group_by("item").agg(total=fn.sum("price"), n=fn.count()).collect()
        >>> result = env.execute()
        >>> totals.to_arrow().sort_by("item").to_pylist()
        [{'item': 'a', 'total': 12, 'n': 2}, {'item': 'b', 'total': 1, 'n': 1}]
        """
        return self._keyed.window(EndOfInput()).agg(**aggregates)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and hasattr(KeyedRows, name):
                raise AttributeError(f"{name}() works by key: use key_by(...).{name}(...) instead of group_by(...)")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _aggregated(
    method: str,
    keyed: KeyedRows,
    window: spec.WindowSpec | None,
    aggregates: dict[str, Aggregate | AppliedAggregate],
) -> Rows:
    rows, keys = keyed._rows, keyed._keys
    made = planned(method, aggregates)
    own = {name: given for name, given in aggregates.items() if isinstance(given, AppliedAggregate)}
    for name, given in own.items():
        if window is None and not given.merges:
            raise PlanError(
                f"{method}({name}={type(given.aggregate).__name__}...): without merge() all values of a key are kept, "
                "and without a window that is for ever: define merge(), or use window(...)"
            )
    schema = checked(_flownet.rows_after_agg, rows._schema, list(keys), made, _zone_shown(window))
    # Windows describe their state themselves. Running aggregates have other state, which windows must not restore.
    kept = [*_flownet.rows_kept(rows._schema, made), keyed._key_kinds(), *(["so far"] if window is None else [])]
    described: spec.RowsKindAggregate = {
        "input": rows._schema.planned(),
        "keys": list(keys),
        "aggregates": made,
        "window": window,
        "kept": kept,
    }
    calls = AggregateCalls([given.aggregate for given in own.values()]) if own else None
    partial = rows._add("partial agg", {"partial": described}, function=calls)
    # Partial aggregates carry their key.
    inputs = (Origin(partial, partitioner="key_group"),)
    node = rows._env._dataflow.add({"rows": {"aggregate": described}}, name="agg", inputs=inputs, function=calls)
    return Rows(rows._env, (Origin(node),), schema, _late(rows, window))


def _zone_shown(window: spec.WindowSpec | None) -> str | None:
    """Return the time zone of ``window_start`` and ``window_end``; None if there are no such columns."""
    if window is None or window["assign"] in (assign(EndOfInput()), assign(Global())):
        return None
    cut = window["assign"]
    return cut["calendar"]["zone"] if not isinstance(cut, str) and "calendar" in cut else "UTC"


def _late(rows: Rows, window: spec.WindowSpec | None) -> dict[str, _flownet.RowSchema]:
    """Return the schema of late rows by side output."""
    tag = None if window is None else window.get("late_tag")
    return {} if tag is None else {tag: rows._schema}
