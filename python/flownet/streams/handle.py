"""`OperatorHandle`, the base of streams and sinks, which configures their operator."""

from __future__ import annotations

from typing import Final, TypeVar

from ..errors import ConfigError, PlanError
from ..internal import config
from ..planning.dataflow import DataflowOwner, Node, Origin
from ..planning.graph import PartitionerName

Handle = TypeVar("Handle", bound="OperatorHandle")


class OperatorHandle:
    """Base of streams and sinks: names, places and configures their operator."""

    def __init__(self, env: DataflowOwner, origins: tuple[Origin, ...]) -> None:
        self._env = env
        self._origins = origins

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(origin.node.name for origin in self._origins)}>"

    def name(self: Handle, name: str) -> Handle:
        """Name the operator, for plans, metrics and errors.

        Parameters
        ----------
        name
            A string that is not empty. It need not be unique. Without this call, the name is the method's, such as
            ``flat_map``.

        Examples
        --------
        >>> stream = env.from_collection(["1", "2"]).map(int).name("parse")
        """
        self._node("name").name = config.text("name", name)
        return self

    def uid(self: Handle, uid: str) -> Handle:
        """Set the operator's stable ID, by which checkpoints find its state.

        The ID stays the same if you change other parts of the dataflow.

        Parameters
        ----------
        uid
            Unique in the dataflow.

        Raises
        ------
        DuplicateUidError
            Another operator of this environment has the uid. Raised here, not when the dataflow runs.

        Examples
        --------
        >>> stream = env.from_collection(["1", "2"]).map(int).uid("parse-v1")
        """
        self._env._dataflow.set_uid(self._node("uid"), config.text("uid", uid))
        return self

    def set_parallelism(self: Handle, parallelism: int) -> Handle:
        """Set the number of subtasks of the operator.

        Parameters
        ----------
        parallelism
            1 to 32768. Without this call, the environment's parallelism applies.

        Raises
        ------
        ConfigError
            ``parallelism`` is not a number in that range.
        PlanError
            The operator always has one subtask, such as `Environment.from_iterable` and `Stream.collect`.

        Examples
        --------
        >>> stream = env.from_collection(["1", "2"]).map(int).set_parallelism(4)
        """
        node = self._node("set_parallelism")
        parallelism = config.parallelism(parallelism)
        if not node.is_parallel and parallelism != 1:
            raise PlanError(
                f"operator {node.name!r} runs once, so its parallelism cannot be {parallelism}; "
                "add .rebalance() and set the parallelism of what follows",
                operator=node.name,
            )
        node.parallelism = parallelism
        return self

    def place_on(self: Handle, *workers: int) -> Handle:
        """Place the operator's subtasks on these workers, round-robin.

        Use it to run a source near its files, or to isolate a slow operator. The operator shares a task only with
        neighbours on the same workers.

        Parameters
        ----------
        *workers
            Numbers of workers, from 1. Without workers (``workers=0``) they have no effect. Without this call,
            subtasks run on all workers.

        Raises
        ------
        ConfigError
            There is no number, a number appears twice, or a number is invalid.
        PlanError
            The operator must run in this process, such as `Environment.from_iterable` over an iterable and
            `Stream.collect`. When the job is planned: the job has no such worker.

        Examples
        --------
        >>> slow = env.from_collection(["to", "be"]).map(len).place_on(2)
        """
        node = self._node("place_on")
        chosen = tuple(config.workers("place_on", worker) for worker in workers)
        if not chosen or len(set(chosen)) < len(chosen):
            raise ConfigError(f"place_on{workers!r}: name each worker once, at least one", setting="place_on")
        if node.on_driver:
            raise PlanError(f"operator {node.name!r} runs in this process and on no worker", operator=node.name)
        node.workers = chosen
        return self

    def disable_chaining(self: Handle) -> Handle:
        """Disable chaining: run the operator in its own task.

        Records to and from it are then encoded as bytes. Use it for an operator that is so slow that it should not
        block the thread of its neighbours.

        Examples
        --------
        >>> slow = env.from_collection(["to", "be"]).map(len).disable_chaining()
        """
        self._node("disable_chaining").chaining = "never"
        return self

    def _node(self, method: str) -> Node:
        """Return the one operator of this handle."""
        origins = self._origins
        if len(origins) != 1 or origins[0].partitioner is not None:
            partitioner = origins[0].partitioner if len(origins) == 1 else None
            after = _METHODS.get(partitioner, partitioner) if partitioner else "union"
            raise PlanError(f"{method}() describes an operator and {after}() is none: call it before {after}()")
        return origins[0].node


class StreamSink(OperatorHandle):
    """A sink in the dataflow, which you can name and place."""


_METHODS: Final[dict[PartitionerName, str]] = {"key_group": "key_by", "custom": "partition_custom"}
"""Methods whose name differs from the name of their partitioner."""


def same_environment(method: str, left: OperatorHandle, right: OperatorHandle) -> None:
    """Refuse two streams of different environments."""
    if left._env is not right._env:
        raise PlanError(f"{method}() takes a stream of the same environment, and this is of another")
