"""Streams of changes: tables that change, row by row."""

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
"""Whose rows without a partner are rows of the result, with None: nobody's, of the first or second table, of both."""


class ChangelogStream(OperatorHandle, Generic[T]):
    """The changes of a table with rows of type ``T``. Made by `Stream.as_changelog`.

    A row comes with ``INSERT`` or ``UPDATE_AFTER`` and goes with ``UPDATE_BEFORE`` or ``DELETE``. What each operator
    makes of its input's changes are the changes of its result: their sum is, at any time, the result over the rows that
    are there. An update, `UPDATE_BEFORE` and then `UPDATE_AFTER` of one key, is one step: groups, the best and joins
    emit the rows that differ, and none if no row differs. `to_stream` gives the changes themselves, to operators that
    cannot take anything back.
    """

    def map(self, function: Callable[[T], R]) -> ChangelogStream[R]:
        """Turn each row into another.

        Parameters
        ----------
        function
            Called with a row that comes, and again when it goes: it must return the same for it then.

        Examples
        --------
        >>> rows = env.from_collection([("ann", 7)]).as_changelog().map(lambda row: row[0])
        """
        return self._of("map", _MapChange(function_of("map", function)))

    def filter(self, predicate: Callable[[T], object]) -> ChangelogStream[T]:
        """Keep the rows for which ``predicate`` is true.

        Parameters
        ----------
        predicate
            Called with a row that comes, and again when it goes: it must return the same for it then.

        Examples
        --------
        >>> rows = env.from_collection([("ann", 7)]).as_changelog().filter(lambda row: row[1] > 5)
        """
        return self._of("filter", _FilterChange(function_of("filter", predicate)))

    def union(self, *others: ChangelogStream[T]) -> ChangelogStream[T]:
        """Put the rows of several tables into one; a row that is in two is there twice.

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
        """Bring the changes of all rows of one key to the same subtask.

        Parameters
        ----------
        key
            As of `Stream.key_by`, of the row.

        Examples
        --------
        >>> by_name = env.from_collection([("ann", 7)]).as_changelog().key_by(0)
        """
        return KeyedChangelogStream(self.to_stream().key_by(_KeyOfRow(key_of("key_by", key))))

    def join(
        self, other: ChangelogStream[U] | Stream[U], how: ChangeJoinKind = "inner", ttl: str | timedelta | None = None
    ) -> ChangeJoin[T, U]:
        """Bring together all rows of two tables that have one key, for as long as both are there.

        A key that is None, or a tuple with a None in it, is equal to none, as in SQL and in joins of rows.

        Parameters
        ----------
        other
            The other table; the records of a stream that is none are rows that come and stay.
        how
            Which rows without a partner are rows of the result, with None in the partner's place: none for
            ``"inner"``, those of this table for ``"left"``, of the other for ``"right"``, of both for ``"full"``.
        ttl
            How long a row is kept after it came last: by event time if records have timestamps, otherwise by the wall
            clock. What it was part of stays in the result; if
            it goes later, that is counted as a late record. Default: for ever, which costs memory for each row.

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
        """Give the changes themselves, as records.

        Examples
        --------
        >>> changes = env.from_collection(["to", "be"]).as_changelog().to_stream()
        """
        return Stream(self._env, self._origins)

    def collect(self, into: SupportsExtend[Change[T]] | None = None) -> CollectedRecords[Change[T]]:
        """Bring all changes to this process, as of `Stream.collect`: ``into`` a `MaterializedTable`, for one.

        Examples
        --------
        >>> changes = env.from_collection(["to"]).as_changelog().key_by(str).count().collect()
        >>> result = env.execute()
        >>> [(str(change.kind), change.value) for change in changes]
        [('+I', ('to', 1))]
        """
        return self.to_stream().collect(into)

    def print(self, prefix: str = "") -> StreamSink:
        """Write each change as ``+I row``, as of `Stream.print`.

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
        """Take the records of a stream as changes."""
        return _changes(_in_order(stream).map(_as_change).name("as_changelog"))

    def _of(self, kind: spec.OperatorKind, function: object) -> ChangelogStream[Any]:
        return _changes(_in_order(self.to_stream())._then(kind, function))


class KeyedChangelogStream(Generic[K, T]):
    """The changes of a table, with all rows of one key together. Made by `ChangelogStream.key_by`.

    The result of `count` and the like is a table with a row for each key that has rows: ``(key, value)``.
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
        """Add up the rows of each key. Sums of floats keep the rounding of what went out of them.

        Parameters
        ----------
        field
            What to add: an index for tuples and lists, a key for dicts. Default: the row itself.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).sum(1)
        """
        return self._grouped("sum", RetractableSum(_field("sum", field)))

    def mean(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Divide the sum by the count; ``field`` as for `sum`.

        Examples
        --------
        >>> means = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).mean(1)
        """
        return self._grouped("mean", RetractableMean(_field("mean", field)))

    def min(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Find the least; ``field`` as for `sum`. Keeps all values: the next one takes the place of one that goes.

        Examples
        --------
        >>> least = env.from_collection([("a", 1), ("a", 2)]).as_changelog().key_by(0).min(1)
        """
        return self._grouped("min", RetractableExtreme(_field("min", field), 0))

    def max(self, field: int | str | None = None) -> ChangelogStream[tuple[K, Any]]:
        """Find the greatest, as `min` does the least.

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
        """Fold the rows of each key into an accumulator.

        Parameters
        ----------
        init
            What stands before the first row, or a function that makes it.
        add
            Called with the accumulator and a row that comes; returns the accumulator.
        retract
            Called with the accumulator and a row that goes, which was added before; returns the accumulator.
        result
            Called with the accumulator; returns the result. Default: the accumulator itself.

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
        """Keep the rows of each key with the greatest values; of equal ones those that came first.

        Parameters
        ----------
        count
            How many, at least 1.
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
    """Two tables whose rows meet by key. Made by `ChangelogStream.join`."""

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
        """Say the key of rows of the first table, as of `Stream.key_by`."""
        return ChangeJoin(self._left, self._right, self._how, self._ttl, (key_of("where", key), self._keys[1]))

    def equal_to(self, key: Callable[[U], Any] | int | str | tuple[int | str, ...]) -> ChangeJoin[T, U]:
        """Say the key of rows of the second table, as of `Stream.key_by`."""
        return ChangeJoin(self._left, self._right, self._how, self._ttl, (self._keys[0], key_of("equal_to", key)))

    def apply(self, function: Callable[[Any, Any], R] | None = None) -> ChangelogStream[Any]:
        """Make a row of each pair.

        Parameters
        ----------
        function
            Called with a row of each table when the two meet, and again when one of them goes: it must return the same
            then. Default: none, the rows of the result are tuples of the two.
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
    """Have the changes of a row stay in order, however many subtasks are next: what goes has come before."""
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
