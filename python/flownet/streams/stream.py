"""`Stream`, a stream of Python records.

A stream only describes a dataflow. Nothing runs before ``Environment.execute()``. Each transformation returns a new
stream and does not change the old one, so you can use a stream several times. Methods that configure the operator
(`Stream.name`, `Stream.uid`, `Stream.set_parallelism`, chaining) return the same stream.
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
    """A stream of Python records of type ``T``.

    Records are values of the built-in types, tuples, lists, dicts, sets, datetimes, decimals, UUIDs, numpy scalars and
    numpy arrays. Instances of dataclasses, NamedTuples, Enums, attrs classes and pydantic models are records, too. They
    are copied between tasks without a call of ``__init__``. Other types may pass between operators of the same task.
    With ``Environment(codec="pickle")`` they may pass between tasks.

    Your functions run in worker processes, one record at a time in each subtask. They are sent there once, with the
    objects that they refer to. `NotShippableError` names objects that cannot be sent. Without workers, functions are
    copied in the same way. A function may change its arguments and keep references to its results, because no other
    code uses them. This does not hold with ``Environment(object_reuse=True)``. An exception in a function ends the job
    with an `OperatorError`, which names the operator and the record.
    """

    @overload
    def map(self, function: Callable[[T], R]) -> Stream[R]: ...

    @overload
    def map(self, function: MapFunction[T, R]) -> Stream[R]: ...

    def map(self, function: Callable[[T], Any] | MapFunction[T, Any]) -> Stream[Any]:
        """Apply a function to each record and emit its result.

        Parameters
        ----------
        function
            Called with each record, or a `MapFunction`.

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
        """Apply a function to each record and emit any number of results.

        Parameters
        ----------
        function
            Called with each record, or a `FlatMapFunction`. It returns or yields the records to emit, in order.

        Examples
        --------
        >>> words = env.from_collection(["to be", "or not"]).flat_map(str.split)
        """
        return self._then("flat_map", called_of("flat_map", function, FlatMapFunction))

    def filter(self, predicate: Callable[[T], object] | FilterFunction[T]) -> Stream[T]:
        """Keep only records for which ``predicate`` is true.

        Parameters
        ----------
        predicate
            Called with each record, or a `FilterFunction`. Its result is tested as by ``if``.

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
        """Partition records by key. All records of a key go to the same subtask.

        Parameters
        ----------
        key
            A function, the index or name of a field, or a tuple of indexes and names. A function is called once for
            each record, on the sender. It returns a hashable value of a type that records may have, such as a tuple, a
            frozen dataclass or a member of an Enum. It must always return the same key for the same record. Keys that
            are equal in Python are the same key: ``1``, ``1.0`` and ``True``.

        Returns
        -------
        KeyedStream[K, T]
            The same records. Records of the same key and sender stay in order. Across keys there is no order.

        Notes
        -----
        This opens a channel from each sender to each receiver. The subtask of a key depends only on the key, the
        parallelism and ``max_parallelism``. It is the same in every process and in every run. Keys spread
        pseudo-randomly, so with few keys a subtask may get several keys or none. For example, 4 keys over 4 subtasks
        leave one idle nine times out of ten. To place few keys yourself, use `Stream.partition_custom`.

        Examples
        --------
        >>> by_initial = env.from_collection(["to", "be", "too"]).key_by(lambda word: word[0])
        """
        return streams.KeyedStream(self._env, self._spread("key_group", key_of("key_by", key)))

    def to_rows(self, schema: SchemaLike) -> rows.Rows:
        """Convert records to rows with named and typed columns.

        Records are dicts by name of column, tuples with a value for each column, or objects with an attribute for each
        column, such as dataclasses. Keys that a dict lacks become nulls. Keys without a column are ignored.

        Parameters
        ----------
        schema
            Names and types of the columns: ``{"user": "utf8", "spent": "float64"}``, or a schema of pyarrow.

        Raises
        ------
        PlanError
            ``schema`` is not a schema.
        OperatorError
            When the job runs: a value does not fit its column.

        Notes
        -----
        Rows have the event times of their records. Batches contain the records that are ready, and never wait for more.
        Columns of times, decimals, lists and structs need pyarrow.

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
        """Process records with access to timestamps and side outputs.

        The function may also emit records at the end of the input.

        Parameters
        ----------
        function
            An instance of a subclass of `ProcessFunction`. Each subtask gets a copy.

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
        """Pass on the first ``count`` records.

        If records come from several subtasks, the first to arrive pass. Sources keep reading. To end an endless job,
        use `Job.stop`.

        Parameters
        ----------
        count
            Number of records, at least 1.

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
        """Read a side output of the operator.

        Records of a side output that you do not read are dropped.

        Parameters
        ----------
        tag
            The tag that you gave to ``ctx.output`` or to `WindowedStream.side_output_late_data`.

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
        """Connect two streams, for one operator that processes both.

        The operator knows the stream of each record. Either both streams are keyed, or neither is, or this one is keyed
        and the other one is `broadcast`.

        Parameters
        ----------
        other
            A stream of the same environment, with records of any type.

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
        """Join records of two streams by key and window.

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
        """Interpret records as changes of a table.

        A `Change` is a change of the table. Any other record is an insert of a row.

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
        """Assign event timestamps and generate watermarks.

        Downstream operators see the timestamps. Earlier timestamps and watermarks are replaced.

        Assign timestamps upstream of the first exchange. There, each file of `Environment.read_text` and each split of
        `Environment.from_source` has its own watermark, so their times may overlap. Directly after a source, the
        operator has the parallelism and the workers of the source, unless you set others. An exchange such as
        `rebalance` upstream of it moves downstream of it. If that is not possible, as with `key_by`, a ``UsageWarning``
        reports it.

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
        """Group all records by window, without a key, in one subtask.

        Parameters
        ----------
        window
            As for `KeyedStream.window`.

        Examples
        --------
        >>> totals = env.from_collection([1, 2]).window_all(fn.EndOfInput()).sum().collect()
        >>> result = env.execute()
        >>> list(totals)
        [3]
        """
        return streams.AllWindowedStream._of(self.key_by(_nothing), window)

    def union(self, *others: Stream[T]) -> Stream[T]:
        """Merge streams of the same environment.

        Records keep their order within each stream. Across streams there is no order. No operator is added.

        Parameters
        ----------
        *others
            Streams of the same record type.

        Raises
        ------
        PlanError
            An argument is not a stream, or belongs to another environment.

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
        """Set the flow control of the exchanges that start at this operator.

        Flow control limits how much the operator sends to slower downstream operators. It applies to exchanges between
        workers.

        Parameters
        ----------
        flow_control
            ``"credit"``, ``"tcp"``, ``"drop"`` or ``"unbounded"``. `Environment` describes them. Without this call, the
            environment's flow control applies.

        Raises
        ------
        ConfigError
            It is none of the four. ``"storm"`` and ``"pid"`` act on all sources of a job, so set them for the
            environment.

        Examples
        --------
        >>> stream = env.from_collection([1, 2]).map(str).set_flow_control("tcp").key_by(len)
        """
        self._node("set_flow_control").flow_control = config.flow_control(flow_control)
        return self

    def rebalance(self) -> Stream[T]:
        """Distribute records round-robin to the subtasks of the next operator.

        Each sender begins at a random subtask. Between operators of unequal parallelism this is the default. Use it to
        distribute the records of a source that has one subtask, or of few keys.

        Examples
        --------
        >>> squares = env.from_iterable(range(100)).rebalance().map(lambda number: number**2).set_parallelism(4)
        """
        return Stream(self._env, self._spread("rebalance"))

    def rescale(self) -> Stream[T]:
        """Distribute records round-robin to a group of the next operator's subtasks.

        Each sender has its own group of receivers, so this opens fewer channels than `rebalance`.

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

        Both operators must have the same parallelism. Otherwise planning fails with a `PlanError`. Between operators of
        equal parallelism this is the default, and they then share a task.

        Examples
        --------
        >>> lengths = env.from_collection(["to", "be"]).forward().map(len).set_parallelism(1)
        """
        return Stream(self._env, self._spread("forward"))

    def partition_custom(
        self, partitioner: Callable[[Any, int], int], key: Callable[[T], Any] | None = None
    ) -> Stream[T]:
        """Partition records with a custom function that chooses the subtask.

        Parameters
        ----------
        partitioner
            Called for each record with its key and the number of subtasks. Returns the index of a subtask, from 0. An
            index out of range fails the job with an `OperatorError`.
        key
            A function that returns the key of a record. Default: None, the record itself is the key.

        Notes
        -----
        All workers of a job use the same seed of ``hash()``, so a string has the same hash in all of them. If seeds may
        differ, a partitioner that calls ``hash`` is an error. Seeds differ in workers inside Spark without
        ``PYTHONHASHSEED``. They also differ if records come both from this process and from workers.

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
        """Start a new chain: run the operator in another task than its upstream.

        Downstream operators may share its task.

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
    """A partition function that gets the key of the record."""

    def __init__(self, partitioner: Callable[[Any, int], int], key: Callable[[Any], Any]) -> None:
        self.partitioner = partitioner
        self._key = key

    def __call__(self, record: Any, subtasks: int) -> int:
        return self.partitioner(self._key(record), subtasks)


class _Limit(ProcessFunction[Any, Any]):
    """Passes on the first records, up to a number."""

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
    """Return the one key of all records of `Stream.window_all`."""
    return None
