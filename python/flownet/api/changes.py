"""Changes of the rows of a table: a changelog and the table that it describes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import RetractionError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class RowKind(enum.Enum):
    """Kind of a change. The names are PyFlink's."""

    INSERT = 0
    """The row is added."""
    UPDATE_BEFORE = 1
    """The row is removed. An ``UPDATE_AFTER`` adds the row that replaces it."""
    UPDATE_AFTER = 2
    """The row is added in place of another."""
    DELETE = 3
    """The row is removed."""

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]


# Python code looks up the members of an enum. A name in the module takes a tenth of that time.
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = RowKind


class Change(NamedTuple, Generic[T]):
    """A change of one row: its kind and the row."""

    kind: RowKind
    """Kind of the change."""
    value: T
    """The row."""

    @property
    def adds(self) -> bool:
        """Whether the change adds a row. Otherwise it removes one."""
        kind = self.kind
        return kind is INSERT or kind is UPDATE_AFTER


def identity_of(row: Any) -> Hashable:
    """Return a hashable identity that equal rows share.

    It is the row itself if the row can be hashed. All NaN are equal.

    Raises
    ------
    RetractionError
        The row can neither be hashed nor taken apart.
    """
    try:
        hash(row)
    except TypeError:
        return (type(row).__qualname__, _parts_of(row))
    if isinstance(row, float):
        return _NAN if row != row else row
    if isinstance(row, tuple) and any(isinstance(item, float | tuple) for item in row):
        # An exchange makes a new NaN object of a NaN, which equals no other object.
        return tuple(map(identity_of, row))
    return row  # type: ignore[no-any-return]


_NAN = ("flownet.NaN",)


def _parts_of(row: Any) -> Hashable:
    if isinstance(row, list | tuple | bytearray):
        return tuple(map(identity_of, row))
    if isinstance(row, set):
        return frozenset(row)
    if isinstance(row, dict):
        return frozenset((key, identity_of(value)) for key, value in row.items())
    if hasattr(row, "__dict__"):
        return identity_of(vars(row))
    if hasattr(row, "__dataclass_fields__"):
        return tuple(identity_of(getattr(row, field)) for field in row.__dataclass_fields__)
    raise RetractionError(
        f"a row that can neither be hashed nor taken apart is found again by nothing: {row!r:.200}",
        record=repr(row)[:200],
    )


class MaterializedTable(Generic[T]):
    """Build a table from changes: apply a changelog row by row.

    Fill it with ``changes.collect(into=table)``, or call `extend` with collected changes.

    Examples
    --------
    >>> import flownet as fn
    >>> table = fn.MaterializedTable()
    >>> env = fn.Environment()
    >>> words = env.from_collection(["to", "be", "to"]).as_changelog()
    >>> counts = words.key_by(str).count().collect(into=table)
    >>> result = env.execute()
    >>> sorted(table.rows())
    [('be', 1), ('to', 2)]
    >>> table.as_dict(lambda row: row[0])["to"]
    ('to', 2)
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, list[T]] = {}

    def extend(self, changes: Iterable[Change[T]]) -> None:
        """Apply changes in their order.

        Raises
        ------
        RetractionError
            A change removes a row that is not in the table.
        """
        for change in changes:
            identity = identity_of(change.value)
            if change.adds:
                self._held.setdefault(identity, []).append(change.value)
                continue
            rows = self._held.get(identity)
            if rows is None:
                raise RetractionError(
                    f"{change.kind} of a row that is not there: {change.value!r:.200}", record=repr(change.value)[:200]
                )
            rows.pop()
            if not rows:
                del self._held[identity]

    def rows(self) -> list[T]:
        """List the rows in no particular order. Equal rows are listed as often as they occur."""
        return [row for rows in self._held.values() for row in rows]

    def as_dict(self, key: Callable[[T], K]) -> dict[K, T]:
        """Return the rows as a dict by key.

        Parameters
        ----------
        key
            A function that returns the key of a row.

        Raises
        ------
        ValueError
            Two rows have the same key.
        """
        mapping: dict[K, T] = {}
        for row in self.rows():
            if mapping.setdefault(key(row), row) is not row:
                raise ValueError(f"two rows have the key {key(row)!r}: {mapping[key(row)]!r:.200} and {row!r:.200}")
        return mapping

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def __repr__(self) -> str:
        return f"<MaterializedTable of {len(self)} rows>"
