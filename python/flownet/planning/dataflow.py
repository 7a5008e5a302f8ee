"""The dataflow that streams describe and that ``execute()`` converts to a graph.

Nodes refer to their upstream nodes. A union is a node with several upstream nodes. Parallelism that you do not set is
resolved when the graph is built, so that ``--parallelism`` can still set it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import DuplicateUidError, PlanError
from .exchanges import Exchanges, MixedSplits, mixed_splits
from .graph import Chaining, Edge, FlowControl, Operator, PartitionerName
from .hashing import Hashing, is_seeded
from .launcher import Host
from .spec import OperatorKind, OperatorKindMap, RateLimit, RowsKind, WindowSpec

if TYPE_CHECKING:
    from ..api.job import Job
    from .discovery import Discovery


class DataflowOwner(Protocol):
    """Owner of a dataflow: an environment."""

    _dataflow: Dataflow

    def _submit(
        self, dataflow: Dataflow, workers: int | None = None, on: Host | None = None, *, only_once: bool = False
    ) -> Job:
        """Start a dataflow. With `only_once`, it does not restart after a failure."""


@dataclass(slots=True, eq=False)
class Origin:
    """Source of a stream's records, and how they reach the next operator."""

    node: Node
    partitioner: PartitionerName | None = None
    """None: forward if both ends have the same parallelism, otherwise by `otherwise` if set, otherwise rebalance."""
    function: object = None
    """Key selector or partition function."""
    tag: str | None = None
    """The side output; None for the main output."""
    side: int = 0
    """Index of the input of the next operator."""
    otherwise: object = None
    """Key selector if no partitioner is set and records cannot go forward. It keeps records of a key in order."""


@dataclass(slots=True, eq=False)
class Node:
    """An operator with its settings so far."""

    id: int
    spec: OperatorKind
    """Kind and settings, in the form of a plan."""
    name: str
    inputs: tuple[Origin, ...] = ()
    function: object = None
    """The user's function or object, which is sent to workers if the operator runs there."""
    payload: bytes | None = None
    """Bytes for the operator, instead of a function."""
    rate_limit: RateLimit | None = None
    """Rate limit of a source."""
    brake: float | None = None
    """Rate limit of the operator, in records per second."""
    parallelism: int | None = None
    """None for the environment's parallelism."""
    is_parallel: bool = True
    """False for operators that always have one subtask. `parallelism` is then 1."""
    is_bounded: bool = False
    """Whether the input of a source is known to end."""
    on_driver: bool = False
    workers: tuple[int, ...] = ()
    chaining: Chaining = "always"
    uid: str | None = None
    host_input: Any = None
    """Input from the host of the workers. The operator then has one subtask in every worker."""
    has_order: bool = True
    """Whether the order that `assign_timestamps` assumes holds for the input of a source."""
    host_output: Any = None
    """Output of a sink that the host of the workers fills."""
    flow_control: FlowControl | None = None
    """Flow control of exchanges downstream of the operator; None for the environment's."""
    other_end: Node | None = None
    """Other end of an iteration. Both ends have the same parallelism and workers."""
    prepare: Callable[[], object] | None = None
    """Creates the function for each run, such as the iterator of an iterable or an empty result."""

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return self.spec if isinstance(self.spec, str) else next(iter(self.spec))

    @property
    def settings(self) -> OperatorKindMap:
        """The kind with its settings; empty for a kind without settings."""
        return {} if isinstance(self.spec, str) else self.spec

    @property
    def rows(self) -> RowsKind:
        """Kind and settings of an operator on rows; empty for others."""
        return self.settings.get("rows", {})

    @property
    def role(self) -> str:
        """Role of the operator, also for rows, whose kind is only ``rows``."""
        return next(iter(self.rows), self.kind)

    @property
    def window(self) -> WindowSpec | None:
        """The windows of its results; None if there are none."""
        if (aggregate := self.rows.get("aggregate")) is not None:
            return aggregate.get("window")
        if (top_n := self.rows.get("top_n")) is not None:
            return top_n["rank"]["window"]
        join = self.rows.get("join")
        windowed = self.settings.get("window") if join is None else join["by"].get("window")
        return None if windowed is None else windowed["window"]


@dataclass(slots=True)
class Plan:
    """A dataflow ready for the planner in Rust."""

    operators: list[Operator]
    edges: list[Edge]
    objects: dict[int, object]
    """Objects of operators that run in this process."""


class Dataflow:
    """The operators of one environment."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._taken = set[int]()
        """Operators whose records a separate job has collected."""

    @property
    def next_id(self) -> int:
        """Number of the next operator."""
        return self.nodes[-1].id + 1 if self.nodes else 0

    def add(self, spec: OperatorKind, *, name: str | None = None, **described: object) -> Node:
        """Add an operator. ``described`` are attributes of `Node`. The default name is the kind."""
        node = Node(self.next_id, spec, name or "")
        node.name = node.name or node.kind
        for attribute, value in described.items():
            setattr(node, attribute, value)
        self.nodes.append(node)
        return node

    def set_uid(self, node: Node, uid: str) -> None:
        """Set the uid of an operator.

        Raises
        ------
        DuplicateUidError
            Another operator has it.
        """
        for other in self.nodes:
            if other.uid == uid and other is not node:
                raise DuplicateUidError(
                    f"uid {uid!r} of operator {node.name!r} is taken by operator {other.name!r}; a uid names one",
                    operator=node.name,
                    uid=uid,
                )
        node.uid = uid

    def branch(self) -> Dataflow:
        """Create a dataflow with the same operators, to which you can add others."""
        branched = Dataflow()
        branched.nodes = list(self.nodes)
        return branched

    def leading_to(self, origins: tuple[Origin, ...]) -> Dataflow:
        """Create a dataflow of only those operators that lead to these origins."""
        self._taken.update(origin.node.id for origin in origins)
        pending, wanted = [origin.node for origin in origins], set[int]()
        while pending:
            node = pending.pop()
            if node.id not in wanted:
                wanted.add(node.id)
                pending.extend(origin.node for origin in node.inputs)
                pending.extend(() if node.other_end is None else (node.other_end,))
        branched = Dataflow()
        branched.nodes = [node for node in self.nodes if node.id in wanted]
        return branched

    def host_inputs(self) -> list[Any]:
        """List the inputs from the host of the workers."""
        return [node.host_input for node in self.nodes if node.host_input is not None]

    def host_outputs(self) -> list[Any]:
        """List the outputs that the host of the workers fills."""
        return [node.host_output for node in self.nodes if node.host_output is not None]

    def describe(self, parallelism: int, workers: int = 0) -> Plan:
        """Convert the nodes to a graph without functions, for planning.

        Parameters
        ----------
        parallelism
            For operators that do not set their own.
        workers
            Number of workers, for operators of which each has a subtask.

        Raises
        ------
        PlanError
            There is nothing to run.
        """
        if not self.nodes:
            raise PlanError("the dataflow is empty: begin with a source, for example env.from_collection([1, 2, 3])")
        subtasks = self.subtasks(parallelism, workers)
        operators = [
            Operator(
                id=node.id,
                uid=node.uid,
                name=node.name,
                kind=node.spec,
                payload=None,
                local=None,
                rate_limit=node.rate_limit,
                brake=node.brake,
                target=_target(node),
                parallelism=subtasks[node.id],
                chaining=node.chaining,
                on_driver=node.on_driver,
                workers=_workers(node),
            )
            for node in self.nodes
        ]
        edges = [
            Edge(
                source=origin.node.id,
                tag=origin.tag,
                target=node.id,
                side=origin.side,
                partitioner=origin.partitioner or _natural(origin, subtasks[origin.node.id], subtasks[node.id]),
                flow_control=origin.node.flow_control,
            )
            for node, origin in self._links()
        ]
        return Plan(operators, edges, {})

    def discovery(self) -> Discovery | None:
        """Return the discovery of new splits while the job runs; None if no source needs it."""
        listings = [(node.id, node.prepare) for node in self.nodes if getattr(node.prepare, "interval_seconds", None)]
        if not listings:
            return None
        from .discovery import Discovery

        return Discovery(cast(Any, listings))

    def after_start(self) -> None:
        """Notify functions that serve one run of its start."""
        for node in self.nodes:
            if (told := getattr(node.prepare, "after_start", None)) is not None:
                told()

    def loose_ends(self) -> list[Node]:
        """List operators without a consumer that are not sinks.

        Some operators may have no consumer, because their functions may have side effects. A source without a consumer
        is an error elsewhere.
        """
        followed = self._taken | {origin.node.id for _, origin in self._links()}
        ends = [node for node in self.nodes if node.inputs and node.id not in followed]
        return [node for node in ends if node.role not in _MAY_END]

    def build(self, parallelism: int, ship: Callable[[object, str], bytes] | None, workers: int = 0) -> Plan:
        """Convert the nodes to a graph that can run.

        Parameters
        ----------
        parallelism
            For operators that do not set their own.
        ship
            Serialises what runs in a worker process. None: everything runs in this one and is used directly.
        workers
            As for `describe`.
        """
        plan = self.describe(parallelism, workers)
        for node, operator in zip(self.nodes, plan.operators, strict=True):
            function = node.prepare() if node.prepare else node.function
            operator.payload = node.payload
            if function is not None:
                here = ship is None or node.on_driver
                operator.payload, operator.local = _place(function, node.name, None if here else ship, plan.objects)
        if ship is not None:
            self._check_hashes(plan)
        for (node, origin), edge in zip(self._links(), plan.edges, strict=True):
            is_otherwise = origin.partitioner is None and edge.partitioner == "key_group"
            function = origin.otherwise if is_otherwise else origin.function
            if function is not None:
                here = ship is None or origin.node.on_driver
                name = f"{origin.node.name} -> {node.name}"
                edge.payload, edge.local = _place(function, name, None if here else ship, plan.objects)
        return plan

    def _check_hashes(self, plan: Plan) -> None:
        """Refuse a partitioner that calls ``hash`` both in this process and in workers, which have another seed."""
        if is_seeded():
            return
        here = {node.id for node in self.nodes if node.on_driver}
        forward = [edge for edge in plan.edges if edge.partitioner == "forward"]
        chaining = {node.id: node.chaining for node in self.nodes}
        for edge in forward:
            # Upstream nodes come first. What is chained to one that is here is here, too.
            if edge.source in here and chaining[edge.target] == "always" and chaining[edge.source] != "never":
                here.add(edge.target)
        for node in self.nodes:
            hashing = [origin.node for origin in node.inputs if isinstance(_partitioner(origin.function), Hashing)]
            if len({origin.id in here for origin in hashing}) > 1:
                raise PlanError(
                    f"the partitioner in front of {node.name!r} calls hash(), and runs both in this process and in "
                    "workers, where the hash of a text is another: set PYTHONHASHSEED, to 0 for one, before this "
                    "process starts",
                    operator=node.name,
                )

    def subtasks(self, parallelism: int, workers: int = 0) -> dict[int, int]:
        """Return the number of subtasks of each operator by id. Parameters are those of `describe`."""
        exchanges = Exchanges(self.nodes)
        return {node.id: _subtasks(node, exchanges, parallelism, workers) for node in self.nodes}

    def mixed_splits(self, parallelism: int, workers: int = 0) -> Iterator[MixedSplits]:
        """Find operators that assign timestamps downstream of an exchange that mixes splits; see `describe`."""
        return mixed_splits(self.nodes, self.subtasks(parallelism, workers))

    def _links(self) -> Iterator[tuple[Node, Origin]]:
        exchanges = Exchanges(self.nodes)
        return ((node, exchanges.planned(node, origin)) for node in self.nodes for origin in node.inputs)


def unbounded_source(origins: tuple[Origin, ...]) -> Node | None:
    """Find an upstream source whose input may have no end."""
    return next((node for node in upstream(origins) if not node.inputs and not node.is_bounded), None)


def lacks_order(origins: tuple[Origin, ...]) -> bool:
    """Return whether no upstream source keeps the order of its input."""
    sources = [node for node in upstream(origins) if not node.inputs]
    return bool(sources) and not any(node.has_order for node in sources)


def has_timestamps(origins: tuple[Origin, ...]) -> bool:
    """Return whether records have timestamps, assigned or from an event-time window."""
    # Records in front of a window may have others than its results.
    for node in upstream(origins, stops_at=lambda node: node.window is not None):
        if node.role == "assign_timestamps":
            return True
        if node.settings.get("from_script", {}).get("timestamps"):
            return True
        if node.window is not None and node.window.get("clock") == "event":
            return True
    return False


def upstream(origins: tuple[Origin, ...], stops_at: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
    """List upstream operators, each once. Operators upstream of one where it stops are left out."""
    pending, seen = [origin.node for origin in origins], set[int]()
    while pending:
        node = pending.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        yield node
        if not stops_at(node):
            pending.extend(origin.node for origin in node.inputs)


_MAY_END = frozenset({"collect", "print", "sink", "write_files", "process", "process_all", "iteration_tail"})


def _subtasks(node: Node, exchanges: Exchanges, parallelism: int, workers: int) -> int:
    leader = exchanges.leader(node) or _source_of_times(node) or _behind(node, exchanges)
    if leader is not None and node.parallelism is None:
        return _subtasks(leader, exchanges, parallelism, workers)
    if node.other_end is not None and node.parallelism is None:
        return node.other_end.parallelism or parallelism
    return max(1, workers) if node.host_input is not None else node.parallelism or parallelism


def _target(node: Node) -> str | None:
    """Return the target of a sink that prepares output for checkpoints; None if unknown."""
    if node.role == "sink":
        return cast("str | None", getattr(node.function, "target", None))
    written = node.rows.get("write_files") or node.settings.get("write_files")
    return None if written is None else os.path.realpath(written["path"]).decode(errors="backslashreplace")


def _workers(node: Node) -> tuple[int, ...]:
    other = node.other_end or _source_of_times(node)
    return node.workers or getattr(other, "workers", ())


def _source_of_times(node: Node) -> Node | None:
    """Find the source directly upstream of a timestamp assigner, which shares the source's task."""
    if node.role != "assign_timestamps" or len(node.inputs) != 1:
        return None
    (origin,) = node.inputs
    return origin.node if not origin.node.inputs and origin.partitioner is None else None


def _behind(node: Node, exchanges: Exchanges) -> Node | None:
    """Find the upstream operator whose parallelism a partial aggregation or `key_rows` must have."""
    if node.role not in ("partial", "key_rows") or len(node.inputs) != 1:
        return None
    origin = exchanges.planned(node, node.inputs[0])
    # What runs once by nature leaves the work to others, where nobody asks which row came first.
    leads = origin.node.is_parallel or node.role == "key_rows"
    return origin.node if leads and origin.partitioner is None else None


def _natural(origin: Origin, source_subtasks: int, target_subtasks: int) -> PartitionerName:
    if source_subtasks == target_subtasks:
        return "forward"
    return "rebalance" if origin.otherwise is None else "key_group"


def _partitioner(function: object) -> object:
    """Return the partitioner inside a partitioner with a key."""
    return getattr(function, "partitioner", function)


def _place(
    function: object, name: str, ship: Callable[[object, str], bytes] | None, objects: dict[int, object]
) -> tuple[bytes | None, int | None]:
    """Serialise a function, or store it in this process. Returns (payload, local)."""
    if ship is not None:
        return ship(function, name), None
    objects[len(objects)] = function
    return None, len(objects) - 1
