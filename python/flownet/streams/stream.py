"""Streams: handles on the records that leave an operator.

A stream describes; nothing runs before ``Environment.execute()``. Each method that transforms returns a new stream and
leaves the one it was called on as it is, so a stream can be used any number of times. Methods that describe the
operator itself (`Stream.name`, `Stream.uid`, `Stream.set_parallelism`, chaining) return the same stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .. import rows, streams
from ..api.functions import OutputTag, ProcessFunction
from ..api.rich_functions import FilterFunction, FlatMapFunction, MapFunction
from ..api.watermark import WatermarkStrategy, at_end_of_input
from ..api.window import WindowAssigner
from ..errors import PlanError
from ..internal import config
from ..internal.foreign_names import no_attribute
from ..planning import spec
from ..planning.dataflow import Origin, lacks_order
from ..planning.graph import FlowControl, PartitionerName
from ..planning.hashing import Hashing, calls_hash
from .calls import CallMethods
from .checks import called_of, function_of, key_of, kind_of, number_of, refuse_async_methods
from .handle import same_environment
from .iteration import IterationMethods
from .sinks import SinkMethods

if TYPE_CHECKING:
    from ..rows.schemas import SchemaLike

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
U = TypeVar("U")


class Stream(CallMethods[T], IterationMethods[T], SinkMethods[T], Generic[T]):
    """Records of type ``T`` on their way through the dataflow.

    Records are values of the built-in types, tuples, lists, dicts, sets, datetimes, decimals, UUIDs, numpy scalars and
    arrays, and instances of dataclasses, NamedTuples, Enums, attrs classes and pydantic models, which come out as equal
    instances that were made without ``__init__``. Other types may pass between operators of one task, and between
    tasks with ``Environment(codec="pickle")``.

    The functions that operators are given run in worker processes, one record at a time in each subtask. They are sent
    there once, with what they refer to; `NotShippableError` names what cannot be sent. Without workers they are copied
    the same way. They may change what they are given, and keep what they emit: nobody else has it, unless
    ``Environment(object_reuse=True)`` says otherwise. What they raise ends the job with `OperatorError`, which names
    the operator and the record.
    """

    @overload
    def map(self, function: Callable[[T], R]) -> Stream[R]: ...

    @overload
    def map(self, function: MapFunction[T, R]) -> Stream[R]: ...

    def map(self, function: Callable[[T], Any] | MapFunction[T, Any]) -> Stream[Any]:
        """Turn each record into another.

        Parameters
        ----------
        function
            Called once a record; what it returns is emitted. Or a `MapFunction`.

        Examples
        --------
        >>> lengths = env.from_collection(["to", "be"]).map(len)
        """
        return self._then("map", called_of("map", function, MapFunction))

    @overload
    def flat_map(self, function: Callable[[T], Iterable[R]]) -> Stream[R]: ...

    @overload
    def flat_map(self, function: FlatMapFunction[T, R]) -> Stream[R]: ...

    def flat_map(self, function: Callable[[T], Iterable[Any]] | FlatMapFunction[T, Any]) -> Stream[Any]:
        """Turn each record into any number of records.

        Parameters
        ----------
        function
            Called once a record; what it returns or yields is emitted in order. Or a `FlatMapFunction`.

        Examples
        --------
        >>> words = env.from_collection(["to be", "or not"]).flat_map(str.split)
        """
        return self._then("flat_map", called_of("flat_map", function, FlatMapFunction))

    def filter(self, predicate: Callable[[T], object] | FilterFunction[T]) -> Stream[T]:
        """Keep the records for which ``predicate`` is true.

        Parameters
        ----------
        predicate
            Called once a record; its result is tested as ``if`` does. Or a `FilterFunction`.

        Examples
        --------
        >>> words = env.from_collection(["to", "", "be"]).filter(len)
        """
        return self._then("filter", called_of("filter", predicate, FilterFunction))

    @overload
    def key_by(self, key: Callable[[T], K]) -> streams.KeyedStream[K, T]: ...

    @overload
    def key_by(self, key: int | str | tuple[int | str, ...]) -> streams.KeyedStream[Any, T]: ...

    def key_by(self, key: Callable[[T], Any] | int | str | tuple[int | str, ...]) -> streams.KeyedStream[Any, T]:
        """Bring all records of one key to the same subtask.

        Parameters
        ----------
        key
            A function, or the index or name of a field, or a tuple of these. A function is called once a record, on
            the sender. Returns any hashable value that records can be made of, such as a tuple, a frozen dataclass
            or a member of an Enum; must return the same for the same record, always. Keys that are equal in Python
            are one key: ``1``, ``1.0`` and ``True``.

        Returns
        -------
        KeyedStream[K, T]
            The same records, in order within a key for each sender, in no order across keys.

        Notes
        -----
        Opens a channel from each sender to each receiver. Which subtask gets a key depends on the key, the parallelism
        and ``max_parallelism`` alone: it is the same in every process and in every run. Keys spread as if by chance, so
        of few keys a subtask may get several or none: 4 keys over 4 subtasks leave one idle nine times out of ten. To
        place few keys by hand, use `Stream.partition_custom`.

        Examples
        --------
        >>> by_initial = env.from_collection(["to", "be", "too"]).key_by(lambda word: word[0])
        """
        return streams.KeyedStream(self._env, self._spread("key_group", key_of("key_by", key)))

    def to_rows(self, schema: SchemaLike) -> rows.Rows:
        """Make a row of each record, for operators on columns.

        Records are dicts by name of column, tuples with a value for each column, or objects with an attribute for each,
        such as dataclasses. What a dict has not is a missing value, and what there is no column for is left out.

        Parameters
        ----------
        schema
            Names and types of the columns: ``{"user": "utf8", "spent": "float64"}``, or a schema of pyarrow.

        Raises
        ------
        PlanError
            The schema is none.
        OperatorError
            When the job runs: a value does not fit its column.

        Notes
        -----
        Rows have the event time of their records. They are made of what there is, some at a time, and nothing waits.
        Columns of times, decimals, lists and structs are made by pyarrow, which has to be there for them.

        Examples
        --------
        >>> records = env.from_collection([{"user": "ann", "spent": 1.5}, {"user": "ann", "spent": 2.0}])
        >>> rows = records.to_rows({"user": "utf8", "spent": "float64"})
        >>> totals = rows.key_by("user").window(fn.EndOfInput()).agg(spent=fn.sum("spent")).collect()
        >>> result = env.execute()
        >>> totals.to_arrow().to_pylist()
        [{'user': 'ann', 'spent': 3.5}]
        """
        return rows.Rows._of_records(self._env, self._origins, schema)

    def process(self, function: ProcessFunction[T, R]) -> Stream[R]:
        """Work on one record at a time, with its time and side outputs, and at the end of the input.

        Parameters
        ----------
        function
            An instance of a subclass of `ProcessFunction`; each subtask gets a copy.

        Raises
        ------
        PlanError
            ``function`` is not such an instance.

        Examples
        --------
        >>> class Sorted(fn.ProcessFunction):
        ...     def open(self, ctx):
        ...         self.seen = []
        ...
        ...     def process(self, value, ctx):
        ...         self.seen.append(value)
        ...
        ...     def finish(self, ctx):
        ...         return sorted(self.seen)
        >>> words = env.from_collection(["to", "be"]).process(Sorted()).collect()
        >>> result = env.execute()
        >>> list(words)
        ['be', 'to']
        """
        if not isinstance(function, ProcessFunction):
            raise PlanError(
                f"process() needs an instance of a subclass of flownet.ProcessFunction, not {kind_of(function)}"
                "; one with state and timers by key is a flownet.KeyedProcessFunction, behind key_by()"
            )
        refuse_async_methods(function, "open", "process", "finish", "close")
        return self._then({"process_all": {}}, function, name=type(function).__name__)

    def take(self, count: int) -> Stream[T]:
        """Let so many records pass, and no more; of several subtasks, those that come first.

        The sources read on: `Job.stop` ends an endless job.

        Parameters
        ----------
        count
            How many, at least 1.

        Examples
        --------
        >>> first = env.from_iterable(range(1000)).take(3).collect()
        >>> result = env.execute()
        >>> list(first)
        [0, 1, 2]
        """
        stream = self.process(_Limit(number_of("take", count))).name("take")
        node = stream._node("take")
        node.parallelism, node.is_parallel = 1, False
        return stream

    def side_output(self, tag: OutputTag) -> Stream[Any]:
        """Read what the operator of this stream emits to a side output.

        Parameters
        ----------
        tag
            What ``ctx.output`` was given, or `WindowedStream.side_output_late_data`. Records that nobody reads are
            dropped.

        Examples
        --------
        >>> late = fn.OutputTag("late")
        >>> window = env.from_collection(["to", "be"]).key_by(str).window(fn.Tumbling("5s"))
        >>> counts = window.side_output_late_data(late).count()
        >>> too_late = counts.side_output(late)
        """
        if not isinstance(tag, OutputTag):
            raise PlanError(f"side_output() reads a flownet.OutputTag, not {kind_of(tag)}")
        return Stream(self._env, (Origin(self._node("side_output"), tag=tag.name),))

    def connect(self, other: Stream[U]) -> streams.ConnectedStreams[T, U]:
        """Bring two streams to one operator, which sees from which each record came.

        Both by key, both not, or this one by key and the other `broadcast`.

        Parameters
        ----------
        other
            A stream of the same environment, of records of any type.

        Examples
        --------
        >>> words, switches = env.from_collection(["to", "be"]), env.from_collection([True])
        >>> connected = words.key_by(str).connect(switches.broadcast())
        """
        if not isinstance(other, Stream):
            raise PlanError(f"connect() takes a stream, not {kind_of(other)}")
        if other._env is not self._env:
            raise PlanError("connect() takes a stream of the same environment, and this is of another")
        return streams.ConnectedStreams(self, other)

    def join(self, other: Stream[U]) -> streams.JoinedStreams[T, U]:
        """Bring together the records of two streams that have one key and lie in one window.

        Parameters
        ----------
        other
            A stream of the same environment.

        Examples
        --------
        >>> bids, asks = env.from_collection([("a", 1)]), env.from_collection([("a", 2)])
        >>> joined = bids.join(asks).where(0).equal_to(0).window(fn.EndOfInput()).apply(lambda bid, ask: (bid, ask))
        """
        if not isinstance(other, Stream):
            raise PlanError(f"join() takes a stream, not {kind_of(other)}")
        same_environment("join", self, other)
        return streams.JoinedStreams(self, other)

    def as_changelog(self) -> streams.ChangelogStream[Any]:
        """Take the records as the changes of a table.

        A record that is a `Change` is one; any other is a row that comes and stays.

        Examples
        --------
        >>> words = env.from_collection(["to", "be", "to"]).as_changelog()
        >>> counts = words.key_by(str).count().collect()
        >>> result = env.execute()
        >>> sorted((change.value, str(change.kind)) for change in counts)
        [(('be', 1), '+I'), (('to', 1), '+I'), (('to', 1), '-U'), (('to', 2), '+U')]
        """
        return streams.ChangelogStream._of_records(self)

    def assign_timestamps_and_watermarks(self, strategy: WatermarkStrategy[T]) -> Stream[T]:
        """Say when each record is, in event time, and how far event time has come.

        Records then carry their timestamps wherever somebody behind looks at them. What was known of event time before
        is replaced.

        Assign timestamps in front of the first exchange. There, each file of `Environment.read_text` and each split of
        `Environment.from_source` has watermarks of its own, so their times may overlap. Right behind a source the
        operator has the source's subtasks and places, unless it is given others. An exchange such as `rebalance` in
        front of it moves behind it. If that is not possible, as with `key_by`, a ``UsageWarning`` says so.

        Parameters
        ----------
        strategy
            See `WatermarkStrategy`.

        Examples
        --------
        >>> strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda click: click[1])
        >>> clicks = env.from_collection([("ann", 1_000)]).assign_timestamps_and_watermarks(strategy)
        """
        if not isinstance(strategy, WatermarkStrategy):
            raise PlanError(
                f"assign_timestamps_and_watermarks() needs a flownet.WatermarkStrategy, not {kind_of(strategy)}"
            )
        if lacks_order(self._origins):
            strategy = at_end_of_input(strategy)
        settings: spec.AssignTimestamps = {
            "watermarks": strategy.watermarks,
            "idle_after_ms": strategy.idle_after_ms,
            "alignment": strategy.alignment,
            "max_ahead_ms": strategy.max_ahead_ms,
        }
        name = "assign_timestamps_and_watermarks"
        return self._then({"assign_timestamps": settings}, strategy.functions(), name=name)

    def window_all(self, window: WindowAssigner) -> streams.AllWindowedStream[T]:
        """Cut all records together into windows, in one subtask.

        Parameters
        ----------
        window
            As of `KeyedStream.window`.

        Examples
        --------
        >>> totals = env.from_collection([1, 2]).window_all(fn.EndOfInput()).sum().collect()
        >>> result = env.execute()
        >>> list(totals)
        [3]
        """
        return streams.AllWindowedStream._of(self.key_by(_nothing), window)

    def union(self, *others: Stream[T]) -> Stream[T]:
        """Merge this stream with others of the same environment.

        Records keep their order within each stream; across streams there is none. No operator is added.

        Parameters
        ----------
        *others
            Streams of the same record type.

        Raises
        ------
        PlanError
            One of them is not a stream, or belongs to another environment.

        Examples
        --------
        >>> both = env.from_collection([1, 2]).union(env.from_collection([3]))
        """
        for other in others:
            if not isinstance(other, Stream):
                raise PlanError(f"union() merges streams, not {kind_of(other)}")
            if other._env is not self._env:
                raise PlanError("union() merges streams of one environment, and these belong to two")
        return Stream(self._env, tuple(origin for stream in (self, *others) for origin in stream._origins))

    def set_flow_control(self, flow_control: FlowControl) -> Stream[T]:
        """Choose what keeps this operator from sending more than those behind it take.

        Parameters
        ----------
        flow_control
            ``"credit"``, ``"tcp"``, ``"drop"`` or ``"unbounded"``, as `Environment` describes them, for every exchange
            between workers that begins at this operator. Default: the environment's.

        Raises
        ------
        ConfigError
            None of the four. ``"storm"`` and ``"pid"`` act on all sources of a job: set them for the environment.

        Examples
        --------
        >>> stream = env.from_collection([1, 2]).map(str).set_flow_control("tcp").key_by(len)
        """
        self._node("set_flow_control").flow_control = config.flow_control(flow_control)
        return self

    def rebalance(self) -> Stream[T]:
        """Deal the records to the next operator's subtasks in turn.

        Each sender begins at a random subtask. This is what happens anyway between operators of unequal parallelism;
        say it to spread the records of a source that runs once, or of few keys.

        Examples
        --------
        >>> squares = env.from_iterable(range(100)).rebalance().map(lambda number: number**2).set_parallelism(4)
        """
        return Stream(self._env, self._spread("rebalance"))

    def rescale(self) -> Stream[T]:
        """Deal the records in turn to a share of the next operator's subtasks.

        Opens fewer channels than `rebalance`: each sender serves its own part of the receivers.

        Examples
        --------
        >>> texts = env.from_collection([1, 2]).rebalance().map(abs).set_parallelism(2).rescale().map(str)
        """
        return Stream(self._env, self._spread("rescale"))

    def broadcast(self) -> Stream[T]:
        """Send every record to all subtasks of the next operator.

        Examples
        --------
        >>> sink = env.from_collection(["reload"]).broadcast().print().set_parallelism(4)
        """
        return Stream(self._env, self._spread("broadcast"))

    def forward(self) -> Stream[T]:
        """Send the records of subtask *i* to subtask *i* of the next operator.

        Both must have the same parallelism; the plan is refused with `PlanError` otherwise. This is what happens anyway
        between operators of equal parallelism, which then share a task.

        Examples
        --------
        >>> lengths = env.from_collection(["to", "be"]).forward().map(len).set_parallelism(1)
        """
        return Stream(self._env, self._spread("forward"))

    def partition_custom(
        self, partitioner: Callable[[Any, int], int], key: Callable[[T], Any] | None = None
    ) -> Stream[T]:
        """Choose the receiving subtask of each record yourself.

        Parameters
        ----------
        partitioner
            Called once a record with its key and the number of subtasks; returns an index from 0. An index outside the
            range fails the job with `OperatorError`.
        key
            What to hand to ``partitioner``. Default: the record.

        Notes
        -----
        All workers of a job have one seed of ``hash()``, so a text has one hash in them. Where it could have several, a
        partitioner that calls ``hash`` is refused: workers inside Spark without ``PYTHONHASHSEED``, or records that
        come both from this process, whose seed is another, and from workers.

        Examples
        --------
        >>> halves = env.from_collection(range(10)).partition_custom(lambda number, subtasks: number % subtasks)
        """
        choose = function_of("partition_custom", partitioner)
        if calls_hash(choose):
            choose = Hashing(choose)
        if key is not None:
            choose = _ByKey(choose, function_of("partition_custom", key))
        return Stream(self._env, self._spread("custom", choose))

    def start_new_chain(self) -> Stream[T]:
        """Run the operator in another task than its upstream; what follows may join it.

        Examples
        --------
        >>> lengths = env.from_collection(["to", "be"]).map(str.strip).map(len).start_new_chain()
        """
        self._node("start_new_chain").chaining = "head"
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in vars(streams.KeyedStream) and not name.startswith("_"):
                raise AttributeError(
                    f"{name}() works by key: call key_by() before it, such as .key_by(lambda record: 0).{name}(...) to "
                    "take all records together"
                )
            raise no_attribute(type(self).__name__, name)

    def _spread(self, partitioner: PartitionerName, function: object = None) -> tuple[Origin, ...]:
        return tuple(replace(origin, partitioner=partitioner, function=function) for origin in self._origins)

    def _then(self, kind: spec.OperatorKind, function: object = None, **described: Any) -> Stream[Any]:
        node = self._env._dataflow.add(kind, inputs=self._origins, function=function, **described)
        return Stream(self._env, (Origin(node),))


class _ByKey:
    """A partition function that looks at a key of the record."""

    def __init__(self, partitioner: Callable[[Any, int], int], key: Callable[[Any], Any]) -> None:
        self.partitioner = partitioner
        self._key = key

    def __call__(self, record: Any, subtasks: int) -> int:
        return self.partitioner(self._key(record), subtasks)


class _Limit(ProcessFunction[Any, Any]):
    """Lets so many records pass."""

    def __init__(self, count: int) -> None:
        self._left = count

    def process(self, value: Any, ctx: object) -> Iterable[Any] | None:
        if not self._left:
            return None
        self._left -= 1
        return [value]

    def snapshot_state(self) -> list[int]:
        return [self._left]

    def restore_state(self, items: list[int]) -> None:
        self._left = sum(items)


def _nothing(_: object) -> None:
    """Key of the records that are all worked on together."""
    return None
