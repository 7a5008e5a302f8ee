"""The dataflow while it is being described: what streams add to and ``execute()`` turns into a graph.

Nodes refer to their upstream nodes; unions are nothing but several of them. Parallelism that was not set stays open
until the graph is built, so that ``--parallelism`` can still decide it.
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
    """What a dataflow belongs to: an environment."""

    _dataflow: Dataflow

    def _submit(
        self, dataflow: Dataflow, workers: int | None = None, on: Host | None = None, *, only_once: bool = False
    ) -> Job:
        """Start a dataflow of these operators; `only_once`: what fails is not begun again."""


@dataclass(slots=True, eq=False)
class Origin:
    """Where a stream's records come from, and how they travel to whoever is next."""

    node: Node
    partitioner: PartitionerName | None = None
    """None: forward where both ends have the same parallelism, else by `otherwise` if there is one, else rebalance."""
    function: object = None
    """Key selector or partition function."""
    tag: str | None = None
    """The side output; None: what the operator emits otherwise."""
    side: int = 0
    """Which input of whoever is next."""
    otherwise: object = None
    """Key selector for when no partitioner is said and records cannot go forward: those of one key stay in order."""


@dataclass(slots=True, eq=False)
class Node:
    """One operator, with what the user has said about it so far."""

    id: int
    spec: OperatorKind
    """What it does, and its settings, as the planner reads them."""
    name: str
    inputs: tuple[Origin, ...] = ()
    function: object = None
    """The user's function or object; shipped when the operator runs in a worker process."""
    payload: bytes | None = None
    """Bytes for the operator, instead of a function."""
    rate_limit: RateLimit | None = None
    """The most that a source emits."""
    brake: float | None = None
    """Records a second to which the operator is slowed down."""
    parallelism: int | None = None
    """None: the environment's."""
    is_parallel: bool = True
    """False for what runs once by nature; `parallelism` is then 1."""
    is_bounded: bool = False
    """Of a source: its input is known to end."""
    on_driver: bool = False
    workers: tuple[int, ...] = ()
    chaining: Chaining = "always"
    uid: str | None = None
    host_input: Any = None
    """What the host of the workers must bring for the operator, which then has one subtask in every worker."""
    has_order: bool = True
    """Of a source: the promises of `assign_timestamps` on order hold for what it reads."""
    host_output: Any = None
    """What the host of the workers fills with the records of the operator, a sink."""
    flow_control: FlowControl | None = None
    """Of the exchanges behind the operator. None: the environment's."""
    other_end: Node | None = None
    """Of an iteration, whose ends have one parallelism and one place."""
    prepare: Callable[[], object] | None = None
    """Makes the function anew for each run: the iterator of an iterable, an emptied result."""

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return self.spec if isinstance(self.spec, str) else next(iter(self.spec))

    @property
    def settings(self) -> OperatorKindMap:
        """Its kind with the settings; empty for a kind without settings."""
        return {} if isinstance(self.spec, str) else self.spec

    @property
    def rows(self) -> RowsKind:
        """Kind and settings of an operator on rows; empty for others."""
        return self.settings.get("rows", {})

    @property
    def role(self) -> str:
        """What it does, whatever records are: of rows the kind says only that."""
        return next(iter(self.rows), self.kind)

    @property
    def window(self) -> WindowSpec | None:
        """The windows that it gives results of, if any."""
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
    """What operators use directly because they run in this process."""


class Dataflow:
    """The operators of one environment."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._taken = set[int]()
        """Operators whose records a job of their own brought to somebody."""

    @property
    def next_id(self) -> int:
        """Number of the next operator."""
        return self.nodes[-1].id + 1 if self.nodes else 0

    def add(self, spec: OperatorKind, *, name: str | None = None, **described: object) -> Node:
        """Add an operator; ``described`` are attributes of `Node`. Its default name is that of its kind."""
        node = Node(self.next_id, spec, name or "")
        node.name = node.name or node.kind
        for attribute, value in described.items():
            setattr(node, attribute, value)
        self.nodes.append(node)
        return node

    def set_uid(self, node: Node, uid: str) -> None:
        """Give an operator its uid.

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
        """Begin a dataflow with the same operators, to which others can be added."""
        branched = Dataflow()
        branched.nodes = list(self.nodes)
        return branched

    def leading_to(self, origins: tuple[Origin, ...]) -> Dataflow:
        """Begin a dataflow, to take records of these origins, with those operators alone from which they come."""
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
        """List what the host of the workers must bring."""
        return [node.host_input for node in self.nodes if node.host_input is not None]

    def host_outputs(self) -> list[Any]:
        """List what the host of the workers fills."""
        return [node.host_output for node in self.nodes if node.host_output is not None]

    def describe(self, parallelism: int, workers: int = 0) -> Plan:
        """Turn the nodes into a graph without their functions, for planning alone.

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
        """Say what looks for more to read while the dataflow runs, if some source wants that."""
        listings = [(node.id, node.prepare) for node in self.nodes if getattr(node.prepare, "interval_seconds", None)]
        if not listings:
            return None
        from .discovery import Discovery

        return Discovery(cast(Any, listings))

    def after_start(self) -> None:
        """Tell those whose functions serve one run that it has begun."""
        for node in self.nodes:
            if (told := getattr(node.prepare, "after_start", None)) is not None:
                told()

    def loose_ends(self) -> list[Node]:
        """List the operators whose records go nowhere, though they are no sinks.

        What processes records with state may do so for the sake of what it does. A source that nobody reads is refused.
        """
        followed = self._taken | {origin.node.id for _, origin in self._links()}
        ends = [node for node in self.nodes if node.inputs and node.id not in followed]
        return [node for node in ends if node.role not in _MAY_END]

    def build(self, parallelism: int, ship: Callable[[object, str], bytes] | None, workers: int = 0) -> Plan:
        """Turn the nodes into a graph that can run.

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
        """Refuse a partitioner that calls ``hash`` both in this process and in workers, where the seed is another."""
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
        """Say in how many subtasks each operator runs, by its id; parameters as for `describe`."""
        exchanges = Exchanges(self.nodes)
        return {node.id: _subtasks(node, exchanges, parallelism, workers) for node in self.nodes}

    def mixed_splits(self, parallelism: int, workers: int = 0) -> Iterator[MixedSplits]:
        """Find operators that assign timestamps behind exchanges of sources with splits; see `describe`."""
        return mixed_splits(self.nodes, self.subtasks(parallelism, workers))

    def _links(self) -> Iterator[tuple[Node, Origin]]:
        exchanges = Exchanges(self.nodes)
        return ((node, exchanges.planned(node, origin)) for node in self.nodes for origin in node.inputs)


def unbounded_source(origins: tuple[Origin, ...]) -> Node | None:
    """Find a source that leads to these origins and of which it is not known that its input ends."""
    return next((node for node in upstream(origins) if not node.inputs and not node.is_bounded), None)


def lacks_order(origins: tuple[Origin, ...]) -> bool:
    """Say whether no source that leads to these origins keeps the order that its reader may promise."""
    sources = [node for node in upstream(origins) if not node.inputs]
    return bool(sources) and not any(node.has_order for node in sources)


def has_timestamps(origins: tuple[Origin, ...]) -> bool:
    """Say whether records of these origins have timestamps: one was assigned, or is of a window of event time."""
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
    """List the operators that lead to these origins, each once; of one where it stops, nothing further up."""
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
    """Say where a sink writes that prepares output for checkpoints, if it is known."""
    if node.role == "sink":
        return cast("str | None", getattr(node.function, "target", None))
    written = node.rows.get("write_files") or node.settings.get("write_files")
    return None if written is None else os.path.realpath(written["path"]).decode(errors="backslashreplace")


def _workers(node: Node) -> tuple[int, ...]:
    other = node.other_end or _source_of_times(node)
    return node.workers or getattr(other, "workers", ())


def _source_of_times(node: Node) -> Node | None:
    """Find the source right in front of an operator that says when records are: it belongs to the source's task."""
    if node.role != "assign_timestamps" or len(node.inputs) != 1:
        return None
    (origin,) = node.inputs
    return origin.node if not origin.node.inputs and origin.partitioner is None else None


def _behind(node: Node, exchanges: Exchanges) -> Node | None:
    """Find the operator whose rows are put together, or get their keys, where they are: there are as many subtasks."""
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
    """Look into one that is given a key."""
    return getattr(function, "partitioner", function)


def _place(
    function: object, name: str, ship: Callable[[object, str], bytes] | None, objects: dict[int, object]
) -> tuple[bytes | None, int | None]:
    """Serialise a function, or keep it here; the result is (payload, local)."""
    if ship is not None:
        return ship(function, name), None
    objects[len(objects)] = function
    return None, len(objects) - 1
