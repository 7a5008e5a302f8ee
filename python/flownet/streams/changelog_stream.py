"""`ChangelogStream`, a stream of the changes of a table."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from ..api.changes import Change, RowKind, identity_of
from ..errors import ConfigError, PlanError, RetractionError
from ..planning import spec
from .changelog import (
    ChangelogJoin,
    GroupAggregate,
    RetractableCount,
    RetractableExtreme,
    RetractableMean,
    RetractableSum,
    TopRows,
    UserAggregate,
)
from .checks import function_of, key_of, kind_of, number_of
from .connected import ConnectedStreams
from .handle import OperatorHandle
from .keyed import KeyedStream
from .stream import Stream

if TYPE_CHECKING:
    from .collected import CollectedRecords
    from .handle import StreamSink
    from .sinks import SupportsExtend

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")

ChangeJoinKind = Literal["inner", "left", "right", "full"]
"""Tables whose rows without a match are in the result, with None: none, the first, the second, or both."""


class ChangelogStream(OperatorHandle, Generic[T]):
    """A changelog: the changes of a table with rows of type ``T``. Created by `Stream.as_changelog`.

    ``INSERT`` and ``UPDATE_AFTER`` add a row. ``UPDATE_BEFORE`` and ``DELETE`` remove a row. Operators turn changes of
    their input into changes of their result. At any time, the sum of these changes is the result over the current rows.

    An update is an ``UPDATE_BEFORE`` and then an ``UPDATE_AFTER`` of the same key. Aggregates, `top_n` and joins
    process it as one step. They emit only rows that differ. For operators that do not support retractions, `to_stream`
    returns the changes as records.
    """

    def map(self, function: Callable[[T], R]) -> ChangelogStream[R]:
        """Apply a function to each row.

        Parameters
        ----------
        function
            Called when a row is added, and again when it is removed. It must return the same result both times.

        Examples
        --------
        >>> rows = env.from_collection([("ann", 7)]).as_changelog().map(lambda row: row[0])
        """
        return self._of("map", _MapChange(function_of("map", function)))

    def filter(self, predicate: Callable[[T], object]) -> ChangelogStream[T]:
        """Keep only rows for which ``predicate`` is true.

        Parameters
        ----------
        predicate
            Called when a row is added, and again when it is removed. It must return the same result both times.

        Examples
        --------
        >>> rows = env.from_collection([("ann", 7)]).as_changelog().filter(lambda row: row[1] > 5)
        """
        return self._of("filter", _FilterChange(function_of("filter", predicate)))

    def union(self, *others: ChangelogStream[T]) -> ChangelogStream[T]:
        """Merge tables, as SQL's UNION ALL. A row of two tables appears twice.

        Parameters
        ----------
        *others
            Changelogs of the same environment.

        Examples
        --------
        >>> one, other = (env.from_collection([name]).as_changelog() for name in ("ann", "bob"))
        >>> both = one.union(other)
        """
        for other in others:
            if not isinstance(other, ChangelogStream):
                raise PlanError(f"union() merges streams of changes, not {kind_of(other)}: call as_changelog() on it")
        return _changes(self.to_stream().union(*(other.to_stream() for other in others)))

    def key_by(self, key: Callable[[T], Any] | int | str | tuple[int | str, ...]) -> KeyedChangelogStream[Any, T]:
        """Partition changes by key. All changes of a key go to the same subtask.

        Parameters
        ----------
        key
            The key of a row, as for `Stream.key_by`.

        Examples
        --------
        >>> by_name = env.from_collection([("ann", 7)]).as_changelog().key_by(0)
        """
        return KeyedChangelogStream(self.to_stream().key_by(_KeyOfRow(key_of("key_by", key))))

    def join(
        self, other: ChangelogStream[U] | Stream[U], how: ChangeJoinKind = "inner", ttl: str | timedelta | None = None
    ) -> ChangeJoin[T, U]:
        """Join two tables by key.

        The result changes when rows of either table change. As in SQL and in joins of rows, None is not equal to None.
        The same holds for tuples with a None.

        Parameters
        ----------
        other
            The other table. Records of a stream that is not a changelog are inserts.
        how
            Rows without a match that are in the result, with None in place of the match. ``"inner"``: none.
            ``"left"``: those of this table. ``"right"``: those of the other table. ``"full"``: those of both. Default:
            ``"inner"``.
        ttl
            How long a row stays in state after it was last added. Measured by event time if records have timestamps,
            otherwise by the wall clock. Results of an expired row stay in the result. If the row is removed later, that
            counts as a late record. Default: None, rows never expire. Each row then needs memory.

        Examples
        --------
        >>> orders, people = env.from_collection([(7, "tea"), (8, "rice")]), env.from_collection([(7, "Ann")])
        >>> joined = orders.as_changelog().join(people, how="left").where(0).equal_to(0)
        >>> table = fn.MaterializedTable()
        >>> named = joined.apply(lambda order, person: (order[1], person and person[1])).collect(into=table)
        >>> result = env.execute()
        >>> sorted(table.rows())
        [('rice', None), ('tea', 'Ann')]
        """
        if how not in ("inner", "left", "right", "full"):
            raise ConfigError(
                f'join(how={how!r}): must be "inner", "left", "right" or "full"', setting="how", value=how
            )
        if isinstance(other, Stream):
            other = other.as_changelog()
        if not isinstance(other, ChangelogStream):
            raise PlanError(f"join() takes a stream of changes, or a stream, not {kind_of(other)}")
        return ChangeJoin(self, other, how, ttl)

    def to_stream(self) -> Stream[Change[T]]:
        """Return the changes as a plain stream of `Change` records.

        Examples
        --------
        >>> changes = env.from_collection(["to", "be"]).as_changelog().to_stream()
        """
        return Stream(self._env, self._origins)

    def collect(self, into: SupportsExtend[Change[T]] | None = None) -> CollectedRecords[Change[T]]:
        """Collect all changes in this process, as `Stream.collect`.

        Parameters
        ----------
        into
            As for `Stream.collect`. For example a `MaterializedTable`.

        Examples
        --------
        >>> changes = env.from_collection(["to"]).as_changelog().key_by(str).count().collect()
        >>> result = env.execute()
        >>> [(str(change.kind), change.value) for change in changes]
        [('+I', ('to', 1))]
        """
        return self.to_stream().collect(into)

    def print(self, prefix: str = "") -> StreamSink:
        """Print each change as ``+I row``, as `Stream.print`.

        Parameters
        ----------
        prefix
            As for `Stream.print`.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).as_changelog().print()
        """
        return self.to_stream().map(_shown).print(prefix)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and (hasattr(Stream, name) or hasattr(KeyedStream, name)):
                where = "key_by() comes before it" if hasattr(KeyedChangelogStream, name) else _WAY_OUT
                raise RetractionError(f"{name}() cannot take back what it made of a row that goes: {where}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @staticmethod
    def _of_records(stream: Stream[Any]) -> ChangelogStream[Any]:
        """Interpret the records of a stream as changes."""
        return _changes(_in_order(stream).map(_as_change).name("as_changelog"))

    def _of(self, kind: spec.OperatorKind, function: object) -> ChangelogStream[Any]:
        return _changes(_in_order(self.to_stream())._then(kind, function))


class KeyedChangelogStream(Generic[K, T]):
    """A changelog partitioned by key. Created by `ChangelogStream.key_by`.

    Aggregates such as `count` return a table with one row ``(key, value)`` for each key that has rows.
    """

    def __init__(self, keyed: KeyedStream[K, Change[T]]) -> None:
        self._keyed = keyed

    def __repr__(self) -> str:
        return f"<KeyedChangelogStream of {self._keyed!r}>"

    def count(self) -> ChangelogStream[tuple[K, int]]:
        """Count the rows of each key.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be", "to"]).as_changelog().key_by(str).count()
        """
        return self._grouped("count", RetractableCount())

    def sum(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Sum the rows of each key.

        Sums of floats keep the rounding errors of rows that were removed.

        Parameters
        ----------
        field
            The field to sum: an index for tuples and lists, a key for dicts. Default: None, the row itself.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).sum(1)
        """
        return self._grouped("sum", RetractableSum(_field("sum", field)))

    def mean(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Compute the mean of each key; ``field`` as for `sum`.

        Examples
        --------
        >>> means = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).mean(1)
        """
        return self._grouped("mean", RetractableMean(_field("mean", field)))

    def min(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Find the minimum of each key; ``field`` as for `sum`.

        All values stay in state, because the next one replaces a minimum that is removed.

        Examples
        --------
        >>> least = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).min(1)
        """
        return self._grouped("min", RetractableExtreme(_field("min", field), 0))

    def max(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Find the maximum of each key; ``field`` as for `sum`.

        All values stay in state, because the next one replaces a maximum that is removed.

        Examples
        --------
        >>> greatest = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).max(1)
        """
        return self._grouped("max", RetractableExtreme(_field("max", field), -1))

    def aggregate(
        self,
        init: Any,
        add: Callable[[Any, T], Any],
        retract: Callable[[Any, T], Any],
        *,
        result: Callable[[Any], Any] | None = None,
    ) -> ChangelogStream[tuple[K, Any]]:
        """Aggregate the rows of each key with custom functions.

        Parameters
        ----------
        init
            The initial accumulator, or a function that creates it.
        add
            Called with the accumulator and a row that is added. Returns the accumulator.
        retract
            Called with the accumulator and a row that is removed, which was added before. Returns the accumulator.
        result
            Called with the accumulator. Returns the result. Default: None, the result is the accumulator.

        Examples
        --------
        >>> by_name = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0)
        >>> totals = by_name.aggregate(0, lambda sum, row: sum + row[1], lambda sum, row: sum - row[1])
        """
        for name, each in (("add", add), ("retract", retract), ("result", result)):
            if each is not None or name != "result":
                function_of(f"aggregate({name}=)", each)  # type: ignore[arg-type]
        return self._grouped("aggregate", UserAggregate(init, add, retract, result))

    def top_n(
        self, count: int, by: Callable[[T], Any] | int | str | tuple[int | str, ...] | None = None
    ) -> ChangelogStream[T]:
        """Keep the ``count`` rows with the greatest values of each key.

        If values are equal, the rows that arrived first stay.

        Parameters
        ----------
        count
            Maximum number of rows, at least 1.
        by
            A function of the row, a field, or a tuple of fields. Default: the row itself.

        Examples
        --------
        >>> bids = env.from_collection([("tea", 3), ("tea", 7), ("tea", 5)]).as_changelog()
        >>> table = fn.MaterializedTable()
        >>> best = bids.key_by(0).top_n(2, by=1).collect(into=table)
        >>> result = env.execute()
        >>> sorted(table.rows())
        [('tea', 5), ('tea', 7)]
        """
        best = TopRows(number_of("top_n", count), _itself if by is None else key_of("top_n", by))
        return _changes(self._keyed.process(best).name(f"top_n({count})"))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and hasattr(KeyedStream, name):
                raise RetractionError(f"{name}() cannot take back what it made of a row that goes: {_WAY_OUT}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _grouped(self, name: str, aggregate: Any) -> ChangelogStream[tuple[K, Any]]:
        return _changes(self._keyed.process(GroupAggregate(aggregate)).name(name))


class ChangeJoin(Generic[T, U]):
    """A join of two tables by key. Created by `ChangelogStream.join`."""

    def __init__(
        self,
        left: ChangelogStream[T],
        right: ChangelogStream[U],
        how: ChangeJoinKind,
        ttl: str | timedelta | None,
        keys: tuple[Any, Any] = (None, None),
    ) -> None:
        self._left, self._right, self._how, self._ttl, self._keys = left, right, how, ttl, keys

    def where(self, key: Callable[[T], Any] | int | str | tuple[int | str, ...]) -> ChangeJoin[T, U]:
        """Set the key of the first table, as for `Stream.key_by`."""
        return ChangeJoin(self._left, self._right, self._how, self._ttl, (key_of("where", key), self._keys[1]))

    def equal_to(self, key: Callable[[U], Any] | int | str | tuple[int | str, ...]) -> ChangeJoin[T, U]:
        """Set the key of the second table, as for `Stream.key_by`."""
        return ChangeJoin(self._left, self._right, self._how, self._ttl, (self._keys[0], key_of("equal_to", key)))

    def apply(self, function: Callable[[Any, Any], R] | None = None) -> ChangelogStream[Any]:
        """Compute a row from each matching pair.

        Parameters
        ----------
        function
            Called with a row of each table when they match, and again when one of them is removed. It must return the
            same result both times. Default: None, result rows are tuples of the two.
        """
        if None in self._keys:
            raise PlanError("join() needs where() and equal_to() before apply()")
        left, right = self._left.key_by(self._keys[0])._keyed, self._right.key_by(self._keys[1])._keyed
        if left._env is not right._env:
            raise PlanError("join() takes a table of the same environment, and this is of another")
        joining = ChangelogJoin(self._how, self._ttl, None if function is None else function_of("apply", function))
        return _changes(ConnectedStreams(left, right).process(joining).name("join"))


_WAY_OUT: Final = "to_stream() gives the changes themselves, as records"


def _changes(stream: Stream[Any]) -> ChangelogStream[Any]:
    return ChangelogStream(stream._env, stream._origins)


def _in_order(stream: Stream[Any]) -> Stream[Any]:
    """Keep the changes of a row in order at any parallelism, so that a row is added before it is removed."""
    return Stream(stream._env, tuple(replace(origin, otherwise=_row_of) for origin in stream._origins))


def _row_of(record: Any) -> Any:
    return identity_of(_as_change(record).value)


def _as_change(record: Any) -> Change[Any]:
    return record if isinstance(record, Change) else Change(RowKind.INSERT, record)


def _shown(change: Change[Any]) -> str:
    return f"{change.kind} {change.value}"


def _itself(row: Any) -> Any:
    return row


def _field(method: str, field: int | str | None) -> Callable[[Any], Any]:
    if field is None:
        return _itself
    if isinstance(field, bool) or not isinstance(field, int | str):
        raise ConfigError(f"{method}({field!r}): must be an index, a key or None", setting="field", value=field)
    return operator.itemgetter(field)


class _MapChange:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, change: Change[Any]) -> Change[Any]:
        return Change(change.kind, self._function(change.value))


class _FilterChange:
    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate

    def __call__(self, change: Change[Any]) -> Any:
        return self._predicate(change.value)


class _KeyOfRow:
    def __init__(self, key: Callable[[Any], Any]) -> None:
        self._key = key

    def __call__(self, change: Change[Any]) -> Any:
        return self._key(change.value)
