"""What streams and sinks have in common: they stand for an operator and can say things about it."""

from __future__ import annotations

from typing import Final, TypeVar

from ..errors import ConfigError, PlanError
from ..internal import config
from ..planning.dataflow import DataflowOwner, Node, Origin
from ..planning.graph import PartitionerName

Handle = TypeVar("Handle", bound="OperatorHandle")


class OperatorHandle:
    """What streams and sinks share: they can say things about the operator they stand for."""

    def __init__(self, env: DataflowOwner, origins: tuple[Origin, ...]) -> None:
        self._env = env
        self._origins = origins

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(origin.node.name for origin in self._origins)}>"

    def name(self: Handle, name: str) -> Handle:
        """Name the operator, for plans, metrics and error texts.

        Parameters
        ----------
        name
            Any text that is not empty; need not be unique. Default: what the operator does, such as ``flat_map``.

        Examples
        --------
        >>> stream = env.from_collection(["1", "2"]).map(int).name("parse")
        """
        self._node("name").name = config.text("name", name)
        return self

    def uid(self: Handle, uid: str) -> Handle:
        """Give the operator a name that stays when the dataflow around it changes.

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
        """Run the operator in this many subtasks.

        Parameters
        ----------
        parallelism
            1 to 32768. Default: the environment's.

        Raises
        ------
        ConfigError
            Not a number in that range.
        PlanError
            The operator runs once by nature, such as `Environment.from_iterable` and `Stream.collect`.

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
        """Run the operator's subtasks on these workers, in turn.

        For what belongs somewhere: a source beside its files, a slow operator away from the others. The operator shares
        a task only with neighbours placed on the same workers.

        Parameters
        ----------
        *workers
            Numbers of workers, from 1. Without workers (``workers=0``) they have no meaning. Default: all workers.

        Raises
        ------
        ConfigError
            No number was given, one twice, or one that is no worker's.
        PlanError
            The operator must run in this process, such as `Environment.from_iterable` over an iterable and
            `Stream.collect`. When the job is planned: it has no such worker.

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
        """Run the operator in a task of its own, apart from what comes before and after it.

        Records then cross task borders as bytes. Worth it for an operator so slow that it should not hold up its
        neighbours' thread.

        Examples
        --------
        >>> slow = env.from_collection(["to", "be"]).map(len).disable_chaining()
        """
        self._node("disable_chaining").chaining = "never"
        return self

    def _node(self, method: str) -> Node:
        """Find the one operator that this handle stands for."""
        origins = self._origins
        if len(origins) != 1 or origins[0].partitioner is not None:
            partitioner = origins[0].partitioner if len(origins) == 1 else None
            after = _METHODS.get(partitioner, partitioner) if partitioner else "union"
            raise PlanError(f"{method}() describes an operator and {after}() is none: call it before {after}()")
        return origins[0].node


class StreamSink(OperatorHandle):
    """A sink that was added to the dataflow; lets it be named and placed."""


_METHODS: Final[dict[PartitionerName, str]] = {"key_group": "key_by", "custom": "partition_custom"}
"""Partitioners that are not called like the method they come from."""


def same_environment(method: str, left: OperatorHandle, right: OperatorHandle) -> None:
    """Refuse two streams that no operator can both read."""
    if left._env is not right._env:
        raise PlanError(f"{method}() takes a stream of the same environment, and this is of another")
