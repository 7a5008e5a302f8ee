"""Iterations: loops in the dataflow, whose records leave when a condition is true."""

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
"""Whether a delta iteration emits the last value of each key or all changes."""

_LAST_MS: Final = 2**63 - 1
"""The end of event time, which the watermark reaches when the loop is empty."""

_RESULTS: Final = OutputTag("results")


def iterate(
    stream: streams.Stream[T],
    step: Callable[[streams.Stream[T]], streams.Stream[T]],
    until: Callable[[T], object] | FilterFunction[T] | None,
    limits: tuple[str | int, str | int],
) -> streams.Stream[T]:
    """Add the head and the tail of an iteration, and the operators of the step between them."""
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
        # Leave the dataflow as it was before the call.
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
    """Add an iteration whose step stores a value for each key."""
    function_of("iterate_delta", update)
    if results not in ("last", "changes"):
        raise ConfigError(
            f"iterate_delta(results={results!r}): must be 'last' or 'changes'", setting="results", value=results
        )
    # All origins have the same key function, because they come from one key_by().
    key = stream._origins[0].function
    found: list[streams.Stream[tuple[K, Any]]] = []

    def step(records: streams.Stream[T]) -> streams.Stream[T]:
        by_key = streams.KeyedStream[K, T](
            records._env, (replace(records._origins[0], partitioner="key_group", function=key),)
        )
        updated = by_key.process(_StateUpdate(update, results)).name("iterate_delta")
        found.append(updated.side_output(_RESULTS))
        return updated

    # Input is partitioned by key downstream of the head, as records of the loop are.
    plain = streams.Stream[T](
        stream._env, tuple(replace(origin, partitioner=None, function=None) for origin in stream._origins)
    )
    iterate(plain, step, None, limits)
    return found[0]


class _StateUpdate(KeyedProcessFunction[Any, Any, Any]):
    """Stores the value that the user's function returns for a key, and emits its records into the loop."""

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
    """The method of a stream that creates a loop."""

    def iterate(
        self,
        step: Callable[[streams.Stream[T]], streams.Stream[T]],
        until: Callable[[T], object] | FilterFunction[T] | None,
        *,
        memory: str | int = "64MiB",
        disk: str | int = "1GiB",
    ) -> streams.Stream[T]:
        """Run records through a loop of operators until a condition is true.

        Each record passes the step at least once. Records of its output leave the loop if ``until`` is true. All others
        pass the step again. The iteration ends when the input has ended and the loop is empty. See
        docs/concepts/iterations.md.

        Parameters
        ----------
        step
            A function that builds the loop. It is called once, immediately, with a stream of the input and of the
            records in the loop. It returns a stream of records of the same type, built from its argument. It may use
            any operators and exchanges except another iteration, and `rescale` between different parallelisms.
        until
            Called with each record of the step's output, or a `FilterFunction`. With None, no record leaves in this
            way, and the step emits results to side outputs.
        memory
            Memory of each subtask for records that wait for the next pass: ``"64MiB"`` or a number of bytes. Default:
            ``"64MiB"``.
        disk
            Disk space of each subtask for such records, when the memory is full. They are written to the system's
            folder for temporary files. If the space is full, too, the job fails with `IterationError`. Default:
            ``"1GiB"``.

        Returns
        -------
        Stream[T]
            The records that left the loop, with their timestamps. Downstream, event time does not advance until the
            iteration ends. Parallelism applies to both ends of the loop. Records pass from one end to the other within
            a process.

        Raises
        ------
        PlanError
            ``step`` is not a function, or does not return such a stream. When the job is planned: the step has an
            operator that is not allowed, or checkpoints are unaligned.

        Examples
        --------
        >>> numbers = env.from_collection([1, 7, 50])
        >>> goals = numbers.iterate(lambda each: each.map(lambda n: n * 2), until=lambda n: n >= 100).collect()
        >>> result = env.execute()
        >>> sorted(goals)
        [100, 112, 128]
        """
        return iterate(self, step, until, (memory, disk))  # type: ignore[arg-type]
