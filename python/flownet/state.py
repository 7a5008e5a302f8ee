"""Typed state of keyed functions: values, lists, maps and aggregates, with an optional time to live (TTL).

All state of a key is stored in one mapping, ``ctx.state``, under the name of the state. A value with a TTL is stored
with its expiry time. It is removed at that time, even if no other record of the key arrives.

A value expires by event time if it was written for a record or in a timer with an event time. Otherwise it expires by
the wall clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .api.aggregate import AggregateFunction
from .api.window import milliseconds
from .errors import PlanError
from .internal.class_names import rename_class
from .internal.expiring_value import EXPIRING, EventTimed, ExpiringValue
from .internal.foreign_names import no_attribute

if TYPE_CHECKING:
    from .internal.kept_state import KeptState
    from .metrics import Metrics

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


def read(path: str | os.PathLike[str], *, checkpoint: int | None = None) -> KeptState:
    """Read the state in a checkpoint or savepoint.

    You get the state of operators as Python values or as an Arrow table. All of it is loaded into memory. Classes of
    records and values must be importable, as in the job. Reading may run code that was pickled in the job, so read only
    checkpoints that you trust.

    Parameters
    ----------
    path
        A savepoint, or the folder of a job's checkpoints.
    checkpoint
        Number of the checkpoint, if there are several. Default: None, the last one.

    Raises
    ------
    ConfigError
        There is no such folder, or it has no such checkpoint.
    RestoreError
        The checkpoint is damaged or of another version, or the class of a value does not exist.

    Examples
    --------
    >>> import tempfile, flownet as fn
    >>> from flownet import state
    >>> folder = tempfile.mkdtemp()
    >>> env = fn.Environment()
    >>> env.enable_checkpointing(storage=folder)
    >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).count().uid("counts").collect()
    >>> result = env.execute()
    >>> sorted(state.read(folder).values("counts").items())
    [('be', 1), ('to', 2)]
    """
    from .internal.kept_state import read_state

    return read_state(os.fspath(path), checkpoint)


def renamed_from(name: str | None = None, *, fields: Mapping[str, str] | None = None) -> Callable[[type[T]], type[T]]:
    """Restore state after you renamed a class or its fields.

    A checkpoint identifies a class by its module and name, and values by the names of fields. Give the former names in
    this decorator. Put it above all other decorators of the class. If you use it several times, put the oldest names on
    top. Remove it when no checkpoint has the former names any more.

    Parameters
    ----------
    name
        Former name of the class: ``"Order"`` in the same module, or ``"shop.orders:Order"``. The module of a script is
        ``__main__``. Default: None, the class was not renamed.
    fields
        New names of fields by their former names. For an Enum, names of its members. Default: None, no field was
        renamed.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from flownet import state
    >>> @state.renamed_from("Account", fields={"sum": "total"})
    ... @dataclass
    ... class Balance:
    ...     total: int
    ...     currency: str = "EUR"
    """

    def note(cls: type[T]) -> type[T]:
        rename_class(cls, name, fields or {})
        return cls

    return note


@dataclass(frozen=True, slots=True, init=False)
class _Descriptor:
    name: str
    ttl_ms: int | None

    def __init__(self, name: str, ttl: str | timedelta | None = None) -> None:
        given: object = name
        if not isinstance(given, str) or not given:
            raise PlanError(f"a state needs a name, a text that is not empty, not {name!r}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "ttl_ms", None if ttl is None else milliseconds(name, "ttl", ttl))


class ValueStateDescriptor(_Descriptor):
    """Describes a value for each key.

    Parameters
    ----------
    name
        Unique in its function.
    ttl
        Time to live after the last write, in whole milliseconds. Measured by event time if records have timestamps,
        otherwise by the wall clock. Default: None, the value never expires.
    """


class ListStateDescriptor(_Descriptor):
    """Describes a list for each key.

    Parameters
    ----------
    name
        Unique in its function.
    ttl
        As for `ValueStateDescriptor`, but for each item.
    """


class MapStateDescriptor(_Descriptor):
    """Describes a map for each key.

    Parameters
    ----------
    name
        Unique in its function.
    ttl
        As for `ValueStateDescriptor`, but for each entry.
    """


class ReducingStateDescriptor(_Descriptor):
    """Describes a value for each key that a function reduces.

    Parameters
    ----------
    name
        Unique in its function.
    reduce
        Called with the value so far and the next one. Returns the new value.
    ttl
        As for `ValueStateDescriptor`.
    """

    __slots__ = ("reduce",)

    reduce: Callable[[Any, Any], Any]

    def __init__(self, name: str, reduce: Callable[[T, T], T], ttl: str | timedelta | None = None) -> None:
        super().__init__(name, ttl)
        object.__setattr__(self, "reduce", reduce)


class AggregatingStateDescriptor(_Descriptor):
    """Describes the accumulator of an `AggregateFunction` for each key.

    Parameters
    ----------
    name
        Unique in its function.
    aggregate
        An instance of a subclass of `AggregateFunction`.
    ttl
        As for `ValueStateDescriptor`.
    """

    __slots__ = ("aggregate",)

    aggregate: AggregateFunction[Any, Any, Any]

    def __init__(
        self, name: str, aggregate: AggregateFunction[Any, Any, Any], ttl: str | timedelta | None = None
    ) -> None:
        super().__init__(name, ttl)
        object.__setattr__(self, "aggregate", aggregate)


class _KeyContext(Protocol):
    @property
    def state(self) -> dict[str, Any]: ...

    def now_ms(self) -> int: ...

    def current_watermark(self) -> int: ...

    def _event_time_ms(self) -> int | None: ...

    def _expires_at(self, timestamp_ms: int, in_event_time: bool) -> None: ...


class _State:
    def __init__(self, ctx: _KeyContext, descriptor: _Descriptor) -> None:
        self._ctx = ctx
        self._name = descriptor.name
        self._ttl_ms = descriptor.ttl_ms

    def clear(self) -> None:
        """Clear the state of the current key."""
        self._ctx.state.pop(self._name, None)

    def _timed(self, value: Any) -> Any:
        if self._ttl_ms is None:
            return value
        event_ms = self._ctx._event_time_ms()
        expires_ms = (self._ctx.now_ms() if event_ms is None else event_ms) + self._ttl_ms
        self._ctx._expires_at(expires_ms, event_ms is not None)
        return ExpiringValue(value, expires_ms) if event_ms is None else EventTimed(value, expires_ms)

    def _live(self, held: Any) -> bool:
        if isinstance(held, EventTimed):
            event_ms = self._ctx._event_time_ms()
            # A processing-time timer has no event time.
            return held.expires_ms > (self._ctx.current_watermark() if event_ms is None else event_ms)
        return not isinstance(held, ExpiringValue) or held.expires_ms > self._ctx.now_ms()

    def _read(self) -> Any:
        held = self._ctx.state.get(self._name)
        return None if not self._live(held) else held.value if isinstance(held, EXPIRING) else held

    def _write(self, value: Any) -> None:
        self._ctx.state[self._name] = self._timed(value)


class ValueState(_State, Generic[T]):
    """The value of the current key."""

    def value(self) -> T | None:
        """Return the value; None if there is none."""
        held: T | None = self._read()
        return held

    def update(self, value: T) -> None:
        """Set the value."""
        self._write(value)


class ListState(_State, Generic[T]):
    """The list of the current key."""

    def get(self) -> list[T]:
        """Return the items, in the order of `add`."""
        items = self._ctx.state.get(self._name, ())
        return [item.value if isinstance(item, EXPIRING) else item for item in items if self._live(item)]

    def add(self, item: T) -> None:
        """Append an item."""
        self._ctx.state.setdefault(self._name, []).append(self._timed(item))

    def add_all(self, items: Iterable[T]) -> None:
        """Append several items."""
        for item in items:
            self.add(item)

    def update(self, items: Iterable[T]) -> None:
        """Replace all items."""
        self._ctx.state[self._name] = [self._timed(item) for item in items]


class MapState(_State, MutableMapping[K, V], Generic[K, V]):
    """The map of the current key. Use it like a ``dict``."""

    def __getitem__(self, key: K) -> V:
        held = self._entries()[key]
        if not self._live(held):
            raise KeyError(key)
        value: V = held.value if isinstance(held, EXPIRING) else held
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._ctx.state.setdefault(self._name, {})[key] = self._timed(value)

    def __delitem__(self, key: K) -> None:
        del self._entries()[key]
        if not self._entries():
            self.clear()

    def __iter__(self) -> Iterator[K]:
        return iter([key for key, held in self._entries().items() if self._live(held)])

    def __len__(self) -> int:
        return sum(self._live(held) for held in self._entries().values())

    def __bool__(self) -> bool:
        return any(self._live(held) for held in self._entries().values())

    def clear(self) -> None:
        """Clear all entries of the current key."""
        self._ctx.state.pop(self._name, None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("MapState", name)

    def _entries(self) -> dict[Any, Any]:
        entries: dict[Any, Any] = self._ctx.state.get(self._name, {})
        return entries


class ReducingState(_State, Generic[T]):
    """The reduced value of the current key."""

    def __init__(self, ctx: _KeyContext, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(ctx, descriptor)
        self._reduce = descriptor.reduce

    def get(self) -> T | None:
        """Return the reduced value; None if no value was added."""
        held: T | None = self._read()
        return held

    def add(self, value: T) -> None:
        """Add a value."""
        held = self._ctx.state.get(self._name)
        has_one = self._name in self._ctx.state and self._live(held)
        self._write(self._reduce(self._read(), value) if has_one else value)


class AggregatingState(_State, Generic[T, R]):
    """The accumulator of an `AggregateFunction` for the current key."""

    def __init__(self, ctx: _KeyContext, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(ctx, descriptor)
        self._aggregate = descriptor.aggregate

    def get(self) -> R | None:
        """Return the result of the aggregate; None if no value was added."""
        if self._name not in self._ctx.state or not self._live(self._ctx.state[self._name]):
            return None
        result: R = self._aggregate.get_result(self._read())
        return result

    def add(self, value: T) -> None:
        """Add a value."""
        has_one = self._name in self._ctx.state and self._live(self._ctx.state[self._name])
        accumulator = self._read() if has_one else self._aggregate.create_accumulator()
        self._write(self._aggregate.add(value, accumulator))


class OpenContext:
    """Context of ``open`` in keyed functions: task information, metrics and typed state."""

    def __init__(self, task: Any, ctx: Any) -> None:
        self._task = task
        self._ctx = ctx
        # Checkpoints store the kinds, so that a restore can refuse a state that is now of another kind.
        self._kinds: dict[str, str] = {}

    @property
    def operator(self) -> str:
        """Name of the operator."""
        return str(self._task.operator)

    @property
    def subtask(self) -> int:
        """Index of this subtask, from 0."""
        return int(self._task.subtask)

    @property
    def parallelism(self) -> int:
        """Number of subtasks of the operator."""
        return int(self._task.parallelism)

    @property
    def worker(self) -> str:
        """Name of the worker that runs this subtask."""
        return str(self._task.worker)

    @property
    def metrics(self) -> Metrics:
        """Registry of custom counters, meters, gauges and histograms."""
        metrics: Metrics = self._task.metrics
        return metrics

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return a handle on a value. Use it while the function processes a key."""
        self._kinds[descriptor.name] = "value"
        return ValueState(self._ctx, descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a handle on a list. Use it while the function processes a key."""
        self._kinds[descriptor.name] = "list"
        return ListState(self._ctx, descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return a handle on a map. Use it while the function processes a key."""
        self._kinds[descriptor.name] = "map"
        return MapState(self._ctx, descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return a handle on a reduced value. Use it while the function processes a key."""
        self._kinds[descriptor.name] = "reducing"
        return ReducingState(self._ctx, descriptor)

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return a handle on an aggregated value. Use it while the function processes a key."""
        self._kinds[descriptor.name] = "aggregating"
        return AggregatingState(self._ctx, descriptor)


def expire(mapping: dict[str, Any], now_ms: int, in_event_time: bool) -> int | None:
    """Remove values of a key that have expired by one clock, and return the next expiry time."""
    clock = EventTimed if in_event_time else ExpiringValue
    next_ms: list[int] = []

    def lives(held: Any) -> bool:
        if not isinstance(held, clock):
            return True
        if held.expires_ms > now_ms:
            next_ms.append(held.expires_ms)
        return held.expires_ms > now_ms

    for name, held in list(mapping.items()):
        if isinstance(held, EXPIRING):
            if not lives(held):
                del mapping[name]
        elif isinstance(held, list) and any(isinstance(item, EXPIRING) for item in held):
            held[:] = [item for item in held if lives(item)]
            if not held:
                del mapping[name]
        elif isinstance(held, dict) and any(isinstance(item, EXPIRING) for item in held.values()):
            for key in [key for key, item in held.items() if not lives(item)]:
                del held[key]
            if not held:
                del mapping[name]
    return min(next_ms, default=None)
