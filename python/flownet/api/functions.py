"""Functions that users subclass, and the contexts that their methods receive.

The contexts are protocols: the runtime passes its own objects, which have these members.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from ..errors import PlanError
from .context import TaskContext

if TYPE_CHECKING:
    from ..state import OpenContext

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
R = TypeVar("R")
U = TypeVar("U")
K_co = TypeVar("K_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OutputTag:
    """Name a side output.

    Parameters
    ----------
    name
        A string that is not empty. Tags with equal names are the same tag.

    Examples
    --------
    >>> import flownet as fn
    >>> late = fn.OutputTag("late")
    """

    name: str

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise PlanError(f"OutputTag({self.name!r}): must be a text that is not empty")


class TimerService(Protocol):
    """Read the clocks, and set and delete timers of the current key."""

    def current_watermark(self) -> int:
        """Return the current watermark in milliseconds since 1970-01-01 UTC.

        Before the first watermark it is the smallest 64-bit integer.
        """

    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def register_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_timer`` for this key when the watermark reaches a time.

        Parameters
        ----------
        timestamp_ms
            Milliseconds since 1970-01-01 UTC, or a ``datetime`` with a time zone.
        """

    def register_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_timer`` for this key at a processing time.

        Parameters
        ----------
        timestamp_ms
            Milliseconds since 1970-01-01 UTC, or a ``datetime`` with a time zone.
        """

    def delete_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Delete an event-time timer of this key. Unknown times are ignored."""

    def delete_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Delete a processing-time timer of this key. Unknown times are ignored."""


class RecordContext(TaskContext, Protocol):
    """Give a function the record's timestamp, the clocks and the side outputs."""

    @property
    def timestamp(self) -> int | None:
        """Event time of the record or timer, in milliseconds since 1970-01-01 UTC, or None if it has none."""

    def current_watermark(self) -> int:
        """Return the current watermark in milliseconds since 1970-01-01 UTC.

        Before the first watermark it is the smallest 64-bit integer.
        """

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output. Read it with `Stream.side_output`."""


class ProcessContext(RecordContext, Protocol[K_co]):
    """Give a `KeyedProcessFunction` the current key, its state and its timers."""

    @property
    def key(self) -> K_co:
        """Key of the current record or timer."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """State of the current key: a mapping from names to values.

        Each key has its own mapping. It stays until you empty it: ``ctx.state.clear()`` frees the key.
        """

    @property
    def broadcast_state(self) -> MutableMapping[Any, Any]:
        """State that all keys of a subtask share.

        A `KeyedBroadcastProcessFunction` stores its broadcast records here.
        """

    @property
    def time_domain(self) -> Literal["event", "processing"] | None:
        """Clock of the current timer: ``"event"`` or ``"processing"``; None while a record is processed."""

    def timer_service(self) -> TimerService:
        """Return the `TimerService` of this key: clocks and timers."""

    def set_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_timer`` for this key at a processing time.

        Two timers of one key at the same time give one call. Pending timers fire when the input ends. Timers that you
        set while these fire do not fire.

        Parameters
        ----------
        timestamp_ms
            Milliseconds since 1970-01-01 UTC, or a ``datetime`` with a time zone.
        """

    def delete_timer(self, timestamp_ms: int | datetime) -> None:
        """Delete a processing-time timer of this key. Unknown times are ignored."""


class Window(NamedTuple):
    """A time window: its start and its end."""

    start_ms: int
    """First millisecond of the window, since 1970-01-01 UTC."""
    end_ms: int
    """First millisecond after the window."""


class WindowContext(Protocol):
    """Give a `ProcessWindowFunction` the window, its state and the clocks."""

    @property
    def window(self) -> Window:
        """The window that fires."""

    @property
    def window_state(self) -> MutableMapping[str, Any]:
        """State of the current key and window, from one firing to the next.

        It stays until you empty it, or until the window is removed.
        """

    @property
    def global_state(self) -> MutableMapping[str, Any]:
        """State of the current key across all its windows. It stays until you empty it."""

    def current_watermark(self) -> int:
        """Return the current watermark in milliseconds since 1970-01-01 UTC.

        Before the first watermark it is the smallest 64-bit integer.
        """

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output. Read it with `Stream.side_output`."""


class ProcessWindowFunction(Generic[K, T, R]):
    """Process all records of a window at once, with state.

    Subclass it and pass an instance to `WindowedStream.process`.
    """

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask before its first record."""

    def process(self, key: K, ctx: WindowContext, values: list[T]) -> Iterable[R] | None:
        """Process the records of a window and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process(key, ctx, values)")

    def clear(self, ctx: WindowContext) -> None:
        """Handle the removal of a window. Its ``ctx.window_state`` is removed with it."""

    def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure.

        After a failure, an exception of this method is only logged.
        """


class ProcessFunction(Generic[T, R]):
    """Process one record at a time, with its timestamp and side outputs.

    Subclass it and pass an instance to `Stream.process`.

    Examples
    --------
    Send numbers to the stream, and all other records to a side output:

    >>> import flownet as fn
    >>> bad = fn.OutputTag("bad")
    >>> class Numbers(fn.ProcessFunction):
    ...     def process(self, value, ctx):
    ...         if value.isdigit():
    ...             yield int(value)
    ...         else:
    ...             ctx.output(bad, value)
    >>> env = fn.Environment()
    >>> numbers = env.from_collection(["1", "two", "3"]).process(Numbers())
    >>> good, others = numbers.collect(), numbers.side_output(bad).collect()
    >>> result = env.execute()
    >>> list(good), list(others)
    ([1, 3], ['two'])
    """

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask before its first record."""

    def process(self, value: T, ctx: RecordContext) -> Iterable[R] | None:
        """Process one record and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")

    def finish(self, ctx: RecordContext) -> Iterable[R] | None:
        """Handle the end of the input and return the last records, or None.

        Not called when the job is cancelled or stopped without draining.
        """

    def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure.

        After a failure, an exception of this method is only logged.
        """


class AsyncFunction(Generic[T, R]):
    """Call an external service for each record with async I/O.

    All calls of a subtask share the objects that ``open`` makes, such as a connection or a session. Subclass it and
    pass an instance to `Stream.map_async` or `Stream.flat_map_async`. Each subtask has its own copy and its own event
    loop, in which all three methods run.

    Examples
    --------
    Share one HTTP session of aiohttp between all calls:

    >>> import flownet as fn
    >>> class Weather(fn.AsyncFunction[str, dict]):
    ...     async def open(self, ctx):
    ...         self.session = aiohttp.ClientSession()
    ...
    ...     async def call(self, value):
    ...         async with self.session.get(f"https://example.org/weather/{value}") as answer:
    ...             return {"city": value, **await answer.json()}
    ...
    ...     async def close(self):
    ...         await self.session.close()
    """

    async def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask before its first record."""

    async def call(self, value: T) -> R:
        """Process one record and return the result to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define async call(value)")

    async def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure, for at most 5 seconds."""


class CoProcessFunction(Generic[T, U, R]):
    """Process the records of two streams.

    Subclass it and pass an instance to `ConnectedStreams.process`.
    """

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask before its first record."""

    def process1(self, value: T, ctx: RecordContext) -> Iterable[R] | None:
        """Process one record of the first stream and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process1(value, ctx)")

    def process2(self, value: U, ctx: RecordContext) -> Iterable[R] | None:
        """Process one record of the second stream and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process2(value, ctx)")

    def finish(self, ctx: RecordContext) -> Iterable[R] | None:
        """Handle the end of both inputs and return the last records, or None."""

    def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure.

        After a failure, an exception of this method is only logged.
        """


class KeyedFunction(Generic[K, R]):
    """Base class of keyed functions: open, close, finish and timers."""

    def open(self, ctx: OpenContext) -> None:
        """Prepare the subtask before its first record. Open connections and typed state here."""

    def on_timer(self, timestamp_ms: int, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Handle a timer that fires and return the records to emit, or None."""

    def finish(self, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Handle the end of the input, after the last timer, and return the last records, or None.

        There is no current key. Not called when the job is cancelled or stopped without draining.
        """

    def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure.

        After a failure, an exception of this method is only logged.
        """


class KeyedCoProcessFunction(KeyedFunction[K, R], Generic[K, T, U, R]):
    """Process two keyed streams that share the state of each key.

    Subclass it and pass an instance to `ConnectedStreams.process`.
    """

    def process1(self, value: T, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Process one record of the first stream and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process1(value, ctx)")

    def process2(self, value: U, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Process one record of the second stream and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process2(value, ctx)")


class KeyedBroadcastProcessFunction(KeyedFunction[K, R], Generic[K, T, U, R]):
    """Process a keyed stream together with a broadcast stream, such as rules.

    Every subtask receives every broadcast record. Store these records in ``ctx.broadcast_state`` in
    ``process_broadcast``, and read them in ``process``. Each subtask sees the broadcast records in their order. A
    broadcast record may arrive before or after any keyed record.
    """

    def process(self, value: T, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Process one record of the keyed stream and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")

    def process_broadcast(self, value: U, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Process one record of the broadcast stream. There is no current key."""
        raise NotImplementedError(f"{type(self).__name__} must define process_broadcast(value, ctx)")


class KeyedProcessFunction(KeyedFunction[K, R], Generic[K, V, R]):
    """Process the records of one key at a time, with state and timers.

    Subclass it and pass an instance to `KeyedStream.process`. One copy of the instance serves all keys of one subtask.
    Store values of a key in ``ctx.state``, not in attributes.

    Examples
    --------
    Emit a key when it has had no record for a second:

    >>> import flownet as fn
    >>> class Quiet(fn.KeyedProcessFunction[str, str, str]):
    ...     def process(self, value, ctx):
    ...         if "timer" in ctx.state:
    ...             ctx.delete_timer(ctx.state["timer"])
    ...         ctx.state["timer"] = ctx.now_ms() + 1000
    ...         ctx.set_timer(ctx.state["timer"])
    ...
    ...     def on_timer(self, timestamp_ms, ctx):
    ...         ctx.state.clear()
    ...         yield ctx.key
    """

    def process(self, value: V, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Process one record and return the records to emit, or None."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")


class Sink(Generic[T]):
    r"""Write records to an external system: a custom sink.

    Subclass it and pass an instance to `Stream.sink_to`. Each subtask works on its own copy. An exception of any
    method fails the job, also one of ``close``, because records that a sink could not write are lost.

    Examples
    --------
    >>> import flownet as fn, json
    >>> class JsonLines(fn.Sink[dict]):
    ...     def __init__(self, path):
    ...         self.path = path
    ...
    ...     def open(self, ctx):
    ...         self.file = open(f"{self.path}.{ctx.subtask}", "w")
    ...
    ...     def write(self, records):
    ...         self.file.writelines(json.dumps(record) + "\n" for record in records)
    ...
    ...     def close(self):
    ...         self.file.close()
    """

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask before its first record."""

    def write(self, records: list[T]) -> None:
        """Write a list of records in their order. The list has at least one record."""
        raise NotImplementedError(f"{type(self).__name__} must define write(records)")

    def flush(self) -> None:
        """Make all written records durable. Called at the end of the input, before ``close``."""

    def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure.

        After a failure, an exception of this method is only logged.
        """


class TransactionalSink(Sink[T], Generic[T]):
    """Write records exactly once: commit them only with a checkpoint.

    Subclass it and pass an instance to `Stream.sink_to`. With checkpoints (`Environment.enable_checkpointing`) each
    subtask calls ``flush`` and ``prepare_commit`` at each checkpoint before which it wrote something. When the
    checkpoint is complete, it calls ``commit`` with the result of ``prepare_commit``.

    After a failure, ``commit`` is called for everything that the checkpoint had prepared, perhaps a second time. It
    must be idempotent. You get no call for a transaction whose checkpoint never completed: let it expire, or remove it
    in ``open``. Without checkpoints there is one transaction, which is committed at the end of the input.

    Examples
    --------
    Write rows to SQLite, and insert the name of each batch once:

    >>> import flownet as fn, sqlite3, uuid
    >>> class Rows(fn.TransactionalSink[tuple]):
    ...     def __init__(self, path):
    ...         self.path = path
    ...
    ...     def open(self, ctx):
    ...         self.rows = []
    ...
    ...     def write(self, records):
    ...         self.rows += records
    ...
    ...     def prepare_commit(self):
    ...         batch, self.rows = (str(uuid.uuid4()), self.rows), []
    ...         return batch
    ...
    ...     def commit(self, prepared):
    ...         name, rows = prepared
    ...         with sqlite3.connect(self.path) as database:
    ...             database.execute("create table if not exists done (name primary key)")
    ...             database.execute("create table if not exists words (word, number)")
    ...             if database.execute("insert or ignore into done values (?)", (name,)).rowcount:
    ...                 database.executemany("insert into words values (?, ?)", rows)
    """

    target: str | None = None
    """Place that the sink writes to, such as ``"table words of /data/shop.db"``. Only a sink with the same target
    commits the transactions of a checkpoint. A job that resumes with another target fails with `RestoreError` before
    it starts. Default: None, no comparison."""

    def prepare_commit(self) -> Any:
        """End the open transaction, and prepare it for a later commit.

        Another process may commit it.

        Returns
        -------
        Any
            Argument of `commit`, such as a name or the records. It must be picklable, and is part of the checkpoint.
            None if there is nothing to commit.
        """
        raise NotImplementedError(f"{type(self).__name__} must define prepare_commit()")

    def commit(self, prepared: Any) -> None:
        """Commit a prepared transaction. Repeated calls with the same value must commit it once.

        Parameters
        ----------
        prepared
            A value that `prepare_commit` returned.
        """
        raise NotImplementedError(f"{type(self).__name__} must define commit(prepared)")

    def abort(self) -> None:
        """Discard records written since the last `prepare_commit`, because the job fails. Called before ``close``."""
