"""Streams whose records go round until they may leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Generic, Literal, TypeVar

from .. import streams
from ..api.functions import KeyedProcessFunction, OutputTag
from ..api.rich_functions import FilterFunction
from ..errors import ConfigError, PlanError
from ..internal import config
from ..planning import spec
from ..planning.dataflow import Node, Origin
from .checks import called_of, function_of, kind_of

T = TypeVar("T")
K = TypeVar("K")
S = TypeVar("S")

Results = Literal["last", "changes"]
"""What a delta iteration emits."""

_LAST_MS: Final = 2**63 - 1
"""The end of time, which comes when nothing goes round any more."""

_RESULTS: Final = OutputTag("results")


def iterate(
    stream: streams.Stream[T],
    step: Callable[[streams.Stream[T]], streams.Stream[T]],
    until: Callable[[T], object] | FilterFunction[T] | None,
    limits: tuple[str | int, str | int],
) -> streams.Stream[T]:
    """Add both ends of an iteration, and between them what the step adds."""
    function_of("iterate", step)
    if until is not None:
        until = called_of("iterate", until, FilterFunction)
    memory, disk = (config.size_bytes(name, size) for name, size in zip(("memory", "disk"), limits, strict=True))
    dataflow = stream._env._dataflow
    before = len(dataflow.nodes)
    beginning: spec.IterationHead = {"iteration": dataflow.next_id}
    head = dataflow.add({"iteration_head": beginning}, inputs=stream._origins, name="iterate")
    try:
        stepped = step(streams.Stream(stream._env, (Origin(head),)))
        _check_step(stepped, stream, head)
    except BaseException:
        # As if it had not been called.
        del dataflow.nodes[before:]
        raise
    ending: spec.IterationTail = {"iteration": head.id, "memory_bytes": memory, "disk_bytes": disk}
    tail = dataflow.add({"iteration_tail": ending}, inputs=stepped._origins, name="until", function=until)
    head.other_end, tail.other_end = tail, head
    return streams.Stream(stream._env, (Origin(tail),))


def _check_step(stepped: object, stream: streams.Stream[Any], head: Node) -> None:
    if not isinstance(stepped, streams.Stream):
        raise PlanError(f"the step of iterate() returns the stream that goes round, not {kind_of(stepped)}")
    if stepped._env is not stream._env:
        raise PlanError("the step of iterate() returns a stream of another environment")
    pending, seen = [origin.node for origin in stepped._origins], set[int]()
    while pending:
        node = pending.pop()
        if node is head:
            return
        if node.id not in seen:
            seen.add(node.id)
            pending.extend(origin.node for origin in node.inputs)
    raise PlanError(
        "the step of iterate() returns a stream that does not come from the one it is given, so nothing can go round: "
        "build on its argument"
    )


def iterate_delta(
    stream: streams.KeyedStream[K, T],
    update: Callable[[Any, T], tuple[Any, Iterable[T]] | None],
    results: Results,
    limits: tuple[str | int, str | int],
) -> streams.Stream[tuple[K, Any]]:
    """Add an iteration of which the step keeps a value for each key."""
    function_of("iterate_delta", update)
    if results not in ("last", "changes"):
        raise ConfigError(
            f"iterate_delta(results={results!r}): must be 'last' or 'changes'", setting="results", value=results
        )
    # The same of all: they come from one key_by().
    key = stream._origins[0].function
    found: list[streams.Stream[tuple[K, Any]]] = []

    def step(records: streams.Stream[T]) -> streams.Stream[T]:
        by_key = streams.KeyedStream[K, T](
            records._env, (replace(records._origins[0], partitioner="key_group", function=key),)
        )
        updated = by_key.process(_StateUpdate(update, results)).name("iterate_delta")
        found.append(updated.side_output(_RESULTS))
        return updated

    # What comes in is brought to its key behind the beginning, as what goes round is.
    plain = streams.Stream[T](
        stream._env, tuple(replace(origin, partitioner=None, function=None) for origin in stream._origins)
    )
    iterate(plain, step, None, limits)
    return found[0]


class _StateUpdate(KeyedProcessFunction[Any, Any, Any]):
    """Keeps what the user's function makes of a key's records, and sends on what it wants others to know."""

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Iterable[Any]] | None], results: Results) -> None:
        self._function = function
        self._tells_changes = results == "changes"

    def process(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        state = ctx.state
        changed = self._function(state.get("value"), value)
        if changed is None:
            return None
        kept, records = changed
        if self._tells_changes:
            ctx.output(_RESULTS, (ctx.key, kept))
        elif "value" not in state:
            ctx.timer_service().register_event_time_timer(_LAST_MS)
        state["value"] = kept
        return records

    def on_timer(self, timestamp_ms: int, ctx: Any) -> None:
        ctx.output(_RESULTS, (ctx.key, ctx.state["value"]))


class IterationMethods(Generic[T]):
    """The method of a stream that lets records go round."""

    def iterate(
        self,
        step: Callable[[streams.Stream[T]], streams.Stream[T]],
        until: Callable[[T], object] | FilterFunction[T] | None,
        *,
        memory: str | int = "64MiB",
        disk: str | int = "1GiB",
    ) -> streams.Stream[T]:
        """Let records go through some operators again and again, until they may leave.

        Each record goes through the step at least once. Of what comes out of it, the records for which ``until`` is
        true leave, and all others go through it again. When the input has ended and nothing goes round any more, the
        iteration is over: its stream ends. See docs/concepts/iterations.md.

        Parameters
        ----------
        step
            Called once, here, with a stream of what comes in and what goes round; returns a stream of records of the
            same type that was made of it, by any operators and exchanges but `rescale` between different parallelisms
            and another iteration.
        until
            Called with each record that comes out of the step; or a `FilterFunction`; or None, and no record leaves
            that way: the step emits what it finds to side outputs.
        memory
            What each subtask may take in memory for records that wait to go round again: ``"64MiB"`` or a number of
            bytes.
        disk
            What it may take on disk, in the system's folder for temporary files, once that is used up. What has no
            room then fails the job with `IterationError`.

        Returns
        -------
        Stream[T]
            The records that left, with the timestamps that they had. Event time stands still behind an iteration until
            it is over. Its parallelism is that of both ends, between which records go round within a process.

        Raises
        ------
        PlanError
            The step is no function, or returns something else than such a stream. When the job is planned: it contains
            what it must not, or checkpoints are unaligned.

        Examples
        --------
        >>> numbers = env.from_collection([1, 7, 50])
        >>> goals = numbers.iterate(lambda each: each.map(lambda n: n * 2), until=lambda n: n >= 100).collect()
        >>> result = env.execute()
        >>> sorted(goals)
        [100, 112, 128]
        """
        return iterate(self, step, until, (memory, disk))  # type: ignore[arg-type]
