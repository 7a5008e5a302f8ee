"""Typed state of keyed functions: values, lists, mappings and running results, each by name and with a time to live.

All of it lies in the mapping of the key, which ``ctx.state`` is, under the name of the state. A value with a time to
live is kept with the time at which it expires, and is freed then, whether the key is seen again or not.

A value expires by event time if it was written for a record, or in a timer, that has an event time: how fast records
come does not matter, only their timestamps. Otherwise it expires by the wall clock.
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
    """Open a checkpoint or a savepoint: what its operators keep, as Python values or as an Arrow table.

    Classes of records and values must be importable, as in the job. Reading runs what was pickled in the job: read what
    you trust. All of it is read into memory.

    Parameters
    ----------
    path
        A savepoint, or the folder of a job's checkpoints.
    checkpoint
        Number of the checkpoint, where there are several. Default: the last.

    Raises
    ------
    ConfigError
        There is no such folder, or no such checkpoint in it.
    RestoreError
        It is damaged or of another version, or a value is of a class that is not there.

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
    """Rename a class, or its fields, and go on with state that has instances of it.

    A checkpoint knows a class by its module and name, and the values in its instances by the names of its fields. Say
    the former names in a decorator, above all others of the class; of several, the oldest on top. Take it away when no
    checkpoint has them any more.

    Parameters
    ----------
    name
        Former name of the class: ``"Order"`` in the same module, or ``"shop.orders:Order"``. The module of a script is
        ``__main__``. Default: the class has the name that it had.
    fields
        New names of fields by their former names; of an Enum, those of its members. Default: none were renamed.

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
    """A value for each key.

    Parameters
    ----------
    name
        Unique in its function.
    ttl
        How long after it was written last the value is kept: until a record of the key has a timestamp so much later,
        or by the wall clock if records have no timestamps. A whole number of milliseconds. Default: for ever.
    """


class ListStateDescriptor(_Descriptor):
    """A list for each key; ``name`` and ``ttl``, which is for each item, as of `ValueStateDescriptor`."""


class MapStateDescriptor(_Descriptor):
    """A mapping for each key; ``name`` and ``ttl``, which is for each entry, as of `ValueStateDescriptor`."""


class ReducingStateDescriptor(_Descriptor):
    """What a function made of all that was added, for each key.

    Parameters
    ----------
    name
        Unique in its function.
    reduce
        Called with the value so far and the next one.
    ttl
        As of `ValueStateDescriptor`.
    """

    __slots__ = ("reduce",)

    reduce: Callable[[Any, Any], Any]

    def __init__(self, name: str, reduce: Callable[[T, T], T], ttl: str | timedelta | None = None) -> None:
        super().__init__(name, ttl)
        object.__setattr__(self, "reduce", reduce)


class AggregatingStateDescriptor(_Descriptor):
    """What an `AggregateFunction` made of all that was added, for each key.

    Parameters
    ----------
    name
        Unique in its function.
    aggregate
        An instance of a subclass of `AggregateFunction`.
    ttl
        As of `ValueStateDescriptor`.
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
        """Forget it, for the current key."""
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
            # A timer of processing time has no event time of its own.
            return held.expires_ms > (self._ctx.current_watermark() if event_ms is None else event_ms)
        return not isinstance(held, ExpiringValue) or held.expires_ms > self._ctx.now_ms()

    def _read(self) -> Any:
        held = self._ctx.state.get(self._name)
        return None if not self._live(held) else held.value if isinstance(held, EXPIRING) else held

    def _write(self, value: Any) -> None:
        self._ctx.state[self._name] = self._timed(value)


class ValueState(_State, Generic[T]):
    """A value for the current key."""

    def value(self) -> T | None:
        """Return it; None where there is none."""
        held: T | None = self._read()
        return held

    def update(self, value: T) -> None:
        """Put another in its place."""
        self._write(value)


class ListState(_State, Generic[T]):
    """A list for the current key."""

    def get(self) -> list[T]:
        """Return its items, in the order in which they were added."""
        items = self._ctx.state.get(self._name, ())
        return [item.value if isinstance(item, EXPIRING) else item for item in items if self._live(item)]

    def add(self, item: T) -> None:
        """Add an item at the end."""
        self._ctx.state.setdefault(self._name, []).append(self._timed(item))

    def add_all(self, items: Iterable[T]) -> None:
        """Add items at the end."""
        for item in items:
            self.add(item)

    def update(self, items: Iterable[T]) -> None:
        """Put other items in their place."""
        self._ctx.state[self._name] = [self._timed(item) for item in items]


class MapState(_State, MutableMapping[K, V], Generic[K, V]):
    """A mapping for the current key, used like a ``dict``."""

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
        """Forget all entries, for the current key."""
        self._ctx.state.pop(self._name, None)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("MapState", name)

    def _entries(self) -> dict[Any, Any]:
        entries: dict[Any, Any] = self._ctx.state.get(self._name, {})
        return entries


class ReducingState(_State, Generic[T]):
    """What a function made of all that was added for the current key."""

    def __init__(self, ctx: _KeyContext, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(ctx, descriptor)
        self._reduce = descriptor.reduce

    def get(self) -> T | None:
        """Return it; None where nothing was added."""
        held: T | None = self._read()
        return held

    def add(self, value: T) -> None:
        """Add a value."""
        held = self._ctx.state.get(self._name)
        has_one = self._name in self._ctx.state and self._live(held)
        self._write(self._reduce(self._read(), value) if has_one else value)


class AggregatingState(_State, Generic[T, R]):
    """What an `AggregateFunction` made of all that was added for the current key."""

    def __init__(self, ctx: _KeyContext, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(ctx, descriptor)
        self._aggregate = descriptor.aggregate

    def get(self) -> R | None:
        """Return its result; None where nothing was added."""
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
    """What ``open`` of a keyed function sees: where it runs, and its typed state."""

    def __init__(self, task: Any, ctx: Any) -> None:
        self._task = task
        self._ctx = ctx
        # Checkpoints keep it, so that a state that is declared as another kind is refused.
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
        """Where it gets counters, meters, gauges and histograms of its own."""
        metrics: Metrics = self._task.metrics
        return metrics

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return a handle on a value, to be used while the function works on a key."""
        self._kinds[descriptor.name] = "value"
        return ValueState(self._ctx, descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a handle on a list, to be used while the function works on a key."""
        self._kinds[descriptor.name] = "list"
        return ListState(self._ctx, descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return a handle on a mapping, to be used while the function works on a key."""
        self._kinds[descriptor.name] = "map"
        return MapState(self._ctx, descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return a handle on a reduced value, to be used while the function works on a key."""
        self._kinds[descriptor.name] = "reducing"
        return ReducingState(self._ctx, descriptor)

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return a handle on an aggregated value, to be used while the function works on a key."""
        self._kinds[descriptor.name] = "aggregating"
        return AggregatingState(self._ctx, descriptor)


def expire(mapping: dict[str, Any], now_ms: int, in_event_time: bool) -> int | None:
    """Free values of the mapping of a key that have expired by one clock, and say when the next does."""
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
