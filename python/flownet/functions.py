"""What users implement, and what their functions are handed.

The contexts are protocols: the runtime passes objects of its own that have these members.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
R = TypeVar("R")
K_co = TypeVar("K_co", covariant=True)


class TaskContext(Protocol):
    """Where an operator runs."""

    @property
    def operator(self) -> str:
        """Name of the operator."""

    @property
    def subtask(self) -> int:
        """Index of this subtask, from 0."""

    @property
    def parallelism(self) -> int:
        """Number of subtasks of the operator."""

    @property
    def worker(self) -> str:
        """Name of the worker that runs this subtask."""


class ProcessContext(TaskContext, Protocol[K_co]):
    """What a `KeyedProcessFunction` sees beside the record: its key, the state of the key, and timers."""

    @property
    def key(self) -> K_co:
        """Key of the current record or timer."""

    @property
    def state(self) -> MutableMapping[str, Any]:
        """Values kept for the current key, by name.

        Each key has a mapping of its own. It lives until it is emptied: ``ctx.state.clear()`` frees the key.
        """

    def now_ms(self) -> int:
        """Return the processing time in milliseconds since 1970-01-01 UTC."""

    def set_timer(self, timestamp_ms: int) -> None:
        """Call ``on_timer`` for this key once that time has come.

        Setting the same time twice gives one call. Timers that are pending when the input ends fire then; those that
        are set meanwhile do not.
        """

    def delete_timer(self, timestamp_ms: int) -> None:
        """Forget a timer of this key. Unknown times are ignored."""


class Window(Protocol):
    """A stretch of processing time."""

    @property
    def start_ms(self) -> int:
        """First millisecond of the window, since 1970-01-01 UTC."""

    @property
    def end_ms(self) -> int:
        """First millisecond after the window."""


class KeyedProcessFunction(Generic[K, V, R]):
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

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask, before its first record. Connections and the like are opened here."""

    def process(self, value: V, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take one record and return the records to emit; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} must define process(value, ctx)")

    def on_timer(self, timestamp_ms: int, ctx: ProcessContext[K]) -> Iterable[R] | None:
        """Take a timer that has come due and return the records to emit; None stands for none."""

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


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
