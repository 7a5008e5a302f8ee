"""What users implement, and what their functions are handed.

The contexts are protocols: the runtime passes objects of its own that have these members.
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
    """The name of a side output.

    Parameters
    ----------
    name
        A text that is not empty; tags of one name are one tag.

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
    """The clocks, and the timers of the current key."""

    def current_watermark(self) -> int:
        """Return how far event time has come, in milliseconds; the least 64-bit integer before the first watermark."""

    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def register_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_timer`` for this key once the watermark has come to that time."""

    def register_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_timer`` for this key once that time has come."""

    def delete_event_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Forget a timer of this key. Unknown times are ignored."""

    def delete_processing_time_timer(self, timestamp_ms: int | datetime) -> None:
        """Forget a timer of this key. Unknown times are ignored."""


class RecordContext(TaskContext, Protocol):
    """What a function sees beside the record: its time, and the side outputs."""

    @property
    def timestamp(self) -> int | None:
        """Event time of the record or timer, in milliseconds since 1970-01-01 UTC; None if it has none."""

    def current_watermark(self) -> int:
        """Return how far event time has come, in milliseconds; the least 64-bit integer before the first watermark."""

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output, which `Stream.side_output` reads."""


class ProcessContext(RecordContext, Protocol[K_co]):
    """What a `KeyedProcessFunction` sees beside the record: its key, the state of the key, and timers."""

    @property
    def key(self) -> K_co:
        """Key of the current record or timer."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """Values kept for the current key, by name.

        Each key has a mapping of its own. It lives until it is emptied: ``ctx.state.clear()`` frees the key.
        """

    @property
    def broadcast_state(self) -> MutableMapping[Any, Any]:
        """Values that all keys of a subtask share: where a `KeyedBroadcastProcessFunction` keeps its broadcast side."""

    @property
    def time_domain(self) -> Literal["event", "processing"] | None:
        """By which clock the current timer is due; None while a record is worked on."""

    def timer_service(self) -> TimerService:
        """Return the clocks and timers."""

    def set_timer(self, timestamp_ms: int | datetime) -> None:
        """Call ``on_timer`` for this key at a processing time.

        The time is in milliseconds since 1970-01-01 UTC, or a ``datetime`` with a time zone. Setting the same time
        twice gives one call. Timers that are pending when the input ends fire then; those that are set meanwhile do
        not.
        """

    def delete_timer(self, timestamp_ms: int | datetime) -> None:
        """Forget a timer of processing time of this key. Unknown times are ignored."""


class Window(NamedTuple):
    """A stretch of time."""

    start_ms: int
    """First millisecond of the window, since 1970-01-01 UTC."""
    end_ms: int
    """First millisecond after the window."""


class WindowContext(Protocol):
    """What a `ProcessWindowFunction` sees beside the records."""

    @property
    def window(self) -> Window:
        """The window."""

    @property
    def window_state(self) -> MutableMapping[str, Any]:
        """Values kept for the current key and window, between its firings; emptied, or cleared with the window."""

    @property
    def global_state(self) -> MutableMapping[str, Any]:
        """Values kept for the current key, over all windows; it lives until it is emptied."""

    def current_watermark(self) -> int:
        """Return how far event time has come, in milliseconds; the least 64-bit integer before the first watermark."""

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def output(self, tag: OutputTag, value: Any) -> None:
        """Emit a record to a side output, which `Stream.side_output` reads."""


class ProcessWindowFunction(Generic[K, T, R]):
    """Works on all records of a window at once, with state. Subclass it and pass it to `WindowedStream.process`."""

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask, before its first record."""

    def process(self, key: K, ctx: WindowContext, values: list[T]) -> Iterable[R] | None:
        """Take the records of a window and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process(key, ctx, values)")

    def clear(self, ctx: WindowContext) -> None:
        """Take note that the window is forgotten. What it keeps in ``ctx.window_state`` goes with it."""

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


class ProcessFunction(Generic[T, R]):
    """Works on one record at a time, with its time and side outputs. Subclass it and pass it to `Stream.process`.

    Examples
    --------
    Numbers to the stream, and what is none to a side output:

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
        """Prepare the subtask, before its first record."""

    def process(self, value: T, ctx: RecordContext) -> Iterable[R] | None:
        """Take one record and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")

    def finish(self, ctx: RecordContext) -> Iterable[R] | None:
        """Take note that the input has ended, and return what is left to emit; None stands for none.

        Not called when the job is cancelled or stopped without draining.
        """

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


class AsyncFunction(Generic[T, R]):
    """Calls others for each record, with something that all calls of a subtask share: a connection, a session.

    Subclass it and pass an instance to `Stream.map_async` or `Stream.flat_map_async`. Each subtask has a copy, and an
    event loop of its own in which all three methods run.

    Examples
    --------
    One HTTP session for all calls, of aiohttp for one:

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
        """Prepare the subtask, before its first record."""

    async def call(self, value: T) -> R:
        """Take one record and return what is emitted for it."""
        raise NotImplementedError(f"{type(self).__name__} must define async call(value)")

    async def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; it is given up after 5 seconds."""


class CoProcessFunction(Generic[T, U, R]):
    """Works on the records of two streams. Subclass it and pass an instance to `ConnectedStreams.process`."""

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask, before its first record."""

    def process1(self, value: T, ctx: RecordContext) -> Iterable[R] | None:
        """Take one record of the first stream and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process1(value, ctx)")

    def process2(self, value: U, ctx: RecordContext) -> Iterable[R] | None:
        """Take one record of the second stream and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process2(value, ctx)")

    def finish(self, ctx: RecordContext) -> Iterable[R] | None:
        """Take note that both inputs have ended, and return what is left to emit; None stands for none."""

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


class KeyedFunction(Generic[K, R]):
    """What functions by key have in common: they begin, end, and have timers."""

    def open(self, ctx: OpenContext) -> None:
        """Prepare the subtask, before its first record. Connections and typed state are opened here."""

    def on_timer(self, timestamp_ms: int, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take a timer that has come due and return the records to emit; None stands for none."""

    def finish(self, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take note that the input has ended, behind the last timer, and return what is left to emit.

        There is no key then. Not called when the job is cancelled or stopped without draining.
        """

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


class KeyedCoProcessFunction(KeyedFunction[K, R], Generic[K, T, U, R]):
    """Works on the records of two streams by key: both see the state of the key. See `ConnectedStreams.process`."""

    def process1(self, value: T, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take one record of the first stream and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process1(value, ctx)")

    def process2(self, value: U, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take one record of the second stream and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process2(value, ctx)")


class KeyedBroadcastProcessFunction(KeyedFunction[K, R], Generic[K, T, U, R]):
    """Works on records by key beside a stream that every subtask gets: rules, prices, switches.

    What came over the broadcast side goes into ``ctx.broadcast_state``, which ``process`` reads. Each subtask sees the
    broadcast records in their order, and they may come before or after any other record.
    """

    def process(self, value: T, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take one record of the keyed stream and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")

    def process_broadcast(self, value: U, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take one record of the broadcast stream, for which there is no key."""
        raise NotImplementedError(f"{type(self).__name__} must define process_broadcast(value, ctx)")


class KeyedProcessFunction(KeyedFunction[K, R], Generic[K, V, R]):
    """Work on the records of one key at a time, with state and timers.

    Subclass it and pass an instance to `KeyedStream.process`. One copy of the instance serves all keys of one subtask,
    so what belongs to a key goes into ``ctx.state`` and not into attributes.

    Examples
    --------
    Emit each key once it has been quiet for a second:

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
        """Take one record and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")


class Sink(Generic[T]):
    r"""Where records leave the dataflow.

    Subclass it and pass an instance to `Stream.sink_to`. Each subtask works on a copy of its own. What any of its
    methods raises fails the job, that of ``close`` included: what a sink could not write is lost.

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
        """Prepare the subtask, before its first record."""

    def write(self, records: list[T]) -> None:
        """Take the records that have arrived, in their order; at least one."""
        raise NotImplementedError(f"{type(self).__name__} must define write(records)")

    def flush(self) -> None:
        """Make what was written durable. Called at the end of the input, before ``close``."""

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


class TransactionalSink(Sink[T], Generic[T]):
    """A sink that others see once: what it writes counts only when a checkpoint does. Pass it to `Stream.sink_to`.

    With checkpoints (`Environment.enable_checkpointing`) each subtask calls, for each of them in which something was
    written, ``flush`` and ``prepare_commit``; and when the checkpoint counts, ``commit`` with what that returned. After
    a failure, ``commit`` is called for all that the checkpoint had prepared, perhaps once more: it has to be
    idempotent. What was prepared for a checkpoint that never came to count is not told to anybody: let it expire, or
    remove it in ``open``. Without checkpoints there is one transaction, which is committed at the end of the input.

    Examples
    --------
    Rows into SQLite, each batch under a name that is inserted once:

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
    """Where it writes, such as ``"table words of /data/shop.db"``. Only a sink with the same target commits what was
    prepared for a checkpoint: a job that goes on with another one is refused by `RestoreError` before it starts.
    Default: None, which compares nothing."""

    def prepare_commit(self) -> Any:
        """End the transaction that is open, so that it can be committed later, perhaps by another process.

        Returns
        -------
        Any
            What `commit` needs, which pickle can move. It is part of the checkpoint: a name, or the records themselves.
            None: there is nothing to commit.
        """
        raise NotImplementedError(f"{type(self).__name__} must define prepare_commit()")

    def commit(self, prepared: Any) -> None:
        """Make visible what `prepare_commit` returned, once, however often it is called with the same."""
        raise NotImplementedError(f"{type(self).__name__} must define commit(prepared)")

    def abort(self) -> None:
        """Give up what was written since the last `prepare_commit`: the job fails. Called before ``close``."""
