"""Streams: handles on the records that leave an operator.

A stream describes; nothing runs before ``Environment.execute()``. Each method that transforms returns a new stream and
leaves the one it was called on as it is, so a stream can be used any number of times. Methods that describe the
operator itself (`Stream.name`, `Stream.uid`, `Stream.set_parallelism`, chaining) return the same stream.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from . import config
from .collected import Collected
from .dataflow import Node, Origin, Owner
from .errors import ConfigError, PlanError
from .functions import KeyedProcessFunction, Sink, Window
from .graph import FlowControl, PartitionerName
from .hashing import Hashing, calls_hash
from .window import EndOfInput, Tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
Handle = TypeVar("Handle", bound="_OperatorHandle")


class SupportsExtend(Protocol[T]):
    """What `Stream.collect` can fill: anything with ``extend``, such as a list."""

    def extend(self, records: list[T], /) -> object:
        """Take records that have arrived, in their order."""


class _OperatorHandle:
    """What streams and sinks share: they can say things about the operator they stand for."""

    def __init__(self, env: Owner, origins: tuple[Origin, ...]) -> None:
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


class StreamSink(_OperatorHandle):
    """A sink that was added to the dataflow; lets it be named and placed."""


class Stream(_OperatorHandle, Generic[T]):
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

    def map(self, function: Callable[[T], R]) -> Stream[R]:
        """Turn each record into another.

        Parameters
        ----------
        function
            Called once a record; what it returns is emitted.

        Examples
        --------
        >>> lengths = env.from_collection(["to", "be"]).map(len)
        """
        return self._then("map", _function("map", function))

    def flat_map(self, function: Callable[[T], Iterable[R]]) -> Stream[R]:
        """Turn each record into any number of records.

        Parameters
        ----------
        function
            Called once a record; what it returns or yields is emitted in order.

        Examples
        --------
        >>> words = env.from_collection(["to be", "or not"]).flat_map(str.split)
        """
        return self._then("flat_map", _function("flat_map", function))

    def filter(self, predicate: Callable[[T], object]) -> Stream[T]:
        """Keep the records for which ``predicate`` is true.

        Parameters
        ----------
        predicate
            Called once a record; its result is tested as ``if`` does.

        Examples
        --------
        >>> words = env.from_collection(["to", "", "be"]).filter(len)
        """
        return self._then("filter", _function("filter", predicate))

    def key_by(self, key: Callable[[T], K]) -> KeyedStream[K, T]:
        """Bring all records of one key to the same subtask.

        Parameters
        ----------
        key
            Called once a record, on the sender. Returns any hashable value that records can be made of, such as a
            tuple, a frozen dataclass or a member of an Enum; must return the same for the same record, always. Keys
            that are equal in Python are one key: ``1``, ``1.0`` and ``True``.

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
        return KeyedStream(self._env, self._spread("key_group", _function("key_by", key)))

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
                raise PlanError(f"union() merges streams, not {_kind_of(other)}")
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
        choose = _function("partition_custom", partitioner)
        if calls_hash(choose):
            choose = Hashing(choose)
        if key is not None:
            choose = _ByKey(choose, _function("partition_custom", key))
        return Stream(self._env, self._spread("custom", choose))

    def start_new_chain(self) -> Stream[T]:
        """Run the operator in another task than its upstream; what follows may join it.

        Examples
        --------
        >>> lengths = env.from_collection(["to", "be"]).map(str.strip).map(len).start_new_chain()
        """
        self._node("start_new_chain").chaining = "head"
        return self

    def print(self, prefix: str = "") -> StreamSink:
        """Write ``str(record)`` of each record to the standard output of the process that runs the subtask.

        Parameters
        ----------
        prefix
            Written before each record, followed by ``"> "``. With several subtasks, each line also names its subtask.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).print()
        """
        if not isinstance(prefix, str):
            raise ConfigError(f"print(prefix={prefix!r}): must be a text", setting="prefix", value=prefix)
        return self._sink("print", settings={"prefix": prefix or None})

    def collect(self, into: SupportsExtend[T] | None = None) -> Collected[T]:
        """Bring all records to this process.

        Parameters
        ----------
        into
            Also hand the records over while the job runs: ``into.extend(list)`` is called for each batch, from a
            thread of the runtime. The result then stays empty, so that a job without end needs no memory for it.

        Returns
        -------
        Collected[T]
            A sequence that holds the records once ``execute()`` has returned.

        Examples
        --------
        >>> numbers = env.from_collection([1, 2, 3]).collect()
        >>> result = env.execute()
        >>> list(numbers)
        [1, 2, 3]
        """
        if into is not None and not callable(getattr(into, "extend", None)):
            raise PlanError(f"collect(into=...) needs an object with extend(list), not {_kind_of(into)}")
        return self._collect(into)

    def write_text(self, path: str | os.PathLike[str]) -> StreamSink:
        """Write ``str(record)`` and a newline for each record into the files of a folder.

        Parameters
        ----------
        path
            The folder; made if need be. Each subtask *i* writes ``part-<i>.txt``. While the job runs the file is called
            ``part-<i>.txt.inprogress``, so a file with its final name is complete. When the job has ended well, no part
            of a job before is left; one that fails or is cancelled removes what it has not completed.

        Raises
        ------
        ConfigError
            ``path`` is a file, or another `write_text` of this environment writes there.

        Notes
        -----
        A folder is for one `write_text` at a time: with another job in it, the job that came second fails.

        Examples
        --------
        >>> sink = env.from_collection(["to", "be"]).write_text("out/")
        """
        folder = os.path.abspath(os.fspath(path))
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise ConfigError(
                f"write_text({os.fspath(path)!r}): is a file; name a folder", setting="path", value=os.fspath(path)
            )
        for node in self._env._dataflow.nodes:
            written = (node.settings or {}).get("path") if node.kind == "write_text" else None
            if isinstance(written, bytes) and os.path.realpath(os.fsdecode(written)) == os.path.realpath(folder):
                raise ConfigError(
                    f"write_text({os.fspath(path)!r}): another write_text writes there; give each a folder of its own",
                    setting="path",
                    value=os.fspath(path),
                )
        return self._sink("write_text", settings={"path": os.fsencode(folder)})

    def to_spark(
        self, schema: str | StructType, *, workers: int | None = None, launch_timeout: str | timedelta = "60s"
    ) -> DataFrame:
        """Run the dataflow inside Spark, now, and return this stream's records as a DataFrame.

        Spark's tasks take the rows from the operators as they come, so nothing is gathered in one place. The executors
        keep the result (``DataFrame.localCheckpoint``): reading it again does not run the dataflow again.

        Parameters
        ----------
        schema
            Columns of the DataFrame, such as ``"carrier string, flights long"``. Records are tuples in their order,
            dicts by their names, or the value itself if there is one column.
        workers
            Tasks of Spark to run in. None: as many as Spark can run at once, at most one for each partition of the
            DataFrame of `Environment.from_spark`. Over Spark Connect it must be given. Default: None.
        launch_timeout
            How long Spark may take until all workers run. Default: ``"60s"``.

        Raises
        ------
        ConfigError
            The schema is none, or there is no Spark session.
        OperatorError
            A record does not fit the schema, or a function of the user raised.
        FlownetError
            Anything else that ended the job: see `flownet.errors`.

        Examples
        --------
        >>> flights = env.from_spark(df, as_dicts=True)  # doctest: +SKIP
        >>> late = flights.filter(lambda flight: flight["delay"] > 60)  # doctest: +SKIP
        >>> by_carrier = late.key_by(lambda flight: flight["carrier"])  # doctest: +SKIP
        >>> by_carrier.count().to_spark("carrier string, late long")  # doctest: +SKIP
        """
        from .spark import frames

        return frames.write(self._env, self._origins, schema, workers, launch_timeout)

    def sink_to(self, sink: Sink[T]) -> StreamSink:
        """Hand the records to a sink of your own.

        Parameters
        ----------
        sink
            An instance of a subclass of `Sink`; each subtask gets a copy.

        Raises
        ------
        PlanError
            ``sink`` is not an instance of `Sink`.

        Examples
        --------
        >>> class Longest(fn.Sink[str]):
        ...     def write(self, records):
        ...         print(max(records, key=len))
        >>> sink = env.from_collection(["to", "be"]).sink_to(Longest())
        """
        if not isinstance(sink, Sink):
            raise PlanError(f"sink_to() needs an instance of a subclass of flownet.Sink, not {_kind_of(sink)}")
        for method in ("open", "write", "flush", "close"):
            _refuse_async(method, getattr(sink, method))
        return self._sink("sink", function=sink, name=type(sink).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in vars(KeyedStream) and not name.startswith("_"):
                raise AttributeError(
                    f"{name}() works by key: call key_by() before it, such as .key_by(lambda record: 0).{name}(...) to "
                    "take all records together"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _collect(self, into: SupportsExtend[T] | None, brake: float | None = None) -> Collected[T]:
        collected: Collected[T] = Collected()
        self._sink(
            "collect",
            prepare=collected._restart if into is None else lambda: into,
            brake=brake,
            parallelism=1,
            is_parallel=False,
            on_driver=True,
        )
        return collected

    def _spread(self, partitioner: PartitionerName, function: object = None) -> tuple[Origin, ...]:
        return tuple(Origin(origin.node, partitioner, function) for origin in self._origins)

    def _then(self, kind: str, function: object = None, **described: Any) -> Stream[Any]:
        node = self._env._dataflow.add(kind, inputs=self._origins, function=function, **described)
        return Stream(self._env, (Origin(node),))

    def _sink(self, kind: str, **described: Any) -> StreamSink:
        node = self._env._dataflow.add(kind, inputs=self._origins, **described)
        return StreamSink(self._env, (Origin(node),))


class KeyedStream(Stream[V], Generic[K, V]):
    """Records of type ``V`` brought together by their key of type ``K``.

    `count`, `sum`, `process` and the like work on each key by itself and emit a result for each record as it arrives;
    `window` gives one result for each key and stretch of time instead.

    It is a `Stream` too. ``map``, ``flat_map``, ``filter`` and the sinks see the records alone, each record in the
    subtask of its key, and give a plain stream: to work by key behind them, call `key_by` again. A partitioning that
    follows, such as `rebalance` or another `key_by`, takes the place of this one.
    """

    def reduce(self, function: Callable[[V, V], V]) -> Stream[V]:
        """Combine the records of each key, two at a time, and emit the value so far for each record.

        The value alone: it is of the records' own type, and has the key in it if they have. `WindowedStream.reduce`
        emits ``(key, value)``, as `count`, `sum`, `min` and `max` do.

        Parameters
        ----------
        function
            Called with the value so far and the next record. The first record of a key is its first value.

        Examples
        --------
        >>> longest = env.from_collection(["to", "too"]).key_by(lambda w: w[0]).reduce(lambda a, b: max(a, b, key=len))
        """
        return self._fold("reduce", "reduce", _function("reduce", function))

    def count(self) -> Stream[tuple[K, int]]:
        """Count the records of each key and emit ``(key, count so far)`` for each record.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).count().collect()
        >>> result = env.execute()
        >>> sorted(counts)
        [('be', 1), ('to', 1), ('to', 2)]
        """
        return self._fold("count", "count")

    def sum(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Add up the records of each key and emit ``(key, sum so far)`` for each record.

        Parameters
        ----------
        field
            What to add: an index for tuples and lists, a key for dicts. Default: the record itself.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).sum(1)
        """
        return self._fold("sum", _of_field("sum", field))

    def min(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, least value so far)`` for each record; ``field`` as for `sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).min(1)
        """
        return self._fold("min", _of_field("min", field))

    def max(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, greatest value so far)`` for each record; ``field`` as for `sum`.

        Examples
        --------
        >>> maxima = env.from_collection([("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).max(1)
        """
        return self._fold("max", _of_field("max", field))

    def process(self, function: KeyedProcessFunction[K, V, R]) -> Stream[R]:
        """Work on the records with state and timers for each key.

        Parameters
        ----------
        function
            An instance of a subclass of `KeyedProcessFunction`; each subtask gets a copy.

        Raises
        ------
        PlanError
            ``function`` is not such an instance.

        Examples
        --------
        >>> class Changes(fn.KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
        ...     def process(self, value, ctx):
        ...         if ctx.state.get("last") != value[1]:
        ...             ctx.state["last"] = value[1]
        ...             yield value
        >>> readings = env.from_collection([("a", 1), ("a", 1), ("a", 2)])
        >>> changes = readings.key_by(lambda pair: pair[0]).process(Changes()).collect()
        >>> result = env.execute()
        >>> list(changes)
        [('a', 1), ('a', 2)]
        """
        if not isinstance(function, KeyedProcessFunction):
            raise PlanError(
                f"process() needs an instance of a subclass of flownet.KeyedProcessFunction, not {_kind_of(function)}"
            )
        for method in ("open", "process", "on_timer", "close"):
            _refuse_async(method, getattr(function, method))
        return self._then("process", function, name=type(function).__name__)

    def window(self, window: Tumbling | EndOfInput) -> WindowedStream[K, V]:
        """Cut the records of each key into windows.

        Parameters
        ----------
        window
            How to cut: ``Tumbling("5s")``, or ``EndOfInput()`` for one window that fires when the input has ended.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be"]).key_by(str).window(Tumbling("5s")).count()
        """
        if not isinstance(window, Tumbling | EndOfInput):
            raise PlanError(
                "window() needs a window such as flownet.Tumbling('5s') or flownet.EndOfInput(), "
                f"not {_kind_of(window)}"
            )
        return WindowedStream(self, window)

    def _fold(self, name: str, fold: object, function: object = None) -> Stream[Any]:
        return self._then("fold", function, name=name, settings={"fold": fold})


class WindowedStream(Generic[K, V]):
    """Records of type ``V`` by key and window.

    Each method emits one result for each key and window, when the window's end has passed or the input has ended.
    Results say the key and not the window; `process` is told the window too.
    """

    def __init__(self, keyed: Stream[V], window: Tumbling | EndOfInput) -> None:
        self._keyed = keyed
        self._window = window

    def reduce(self, function: Callable[[V, V], V]) -> Stream[tuple[K, V]]:
        """Combine the records, two at a time, and emit ``(key, value)``; `KeyedStream.reduce` emits the value alone.

        Parameters
        ----------
        function
            Called with the value so far and the next record, as records arrive: only the value is kept.

        Examples
        --------
        >>> words = env.from_collection(["to", "too"]).key_by(lambda word: word[0])
        >>> longest = words.window(Tumbling("5s")).reduce(lambda a, b: max(a, b, key=len)).collect()
        >>> result = env.execute()
        >>> list(longest)
        [('t', 'too')]
        """
        return self._fold("reduce", "reduce", _function("reduce", function))

    def count(self) -> Stream[tuple[K, int]]:
        """Emit ``(key, number of records)``.

        Examples
        --------
        >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).window(Tumbling("5s")).count()
        """
        return self._fold("count", "count")

    def sum(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, sum)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> totals = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).sum(1)
        """
        return self._fold("sum", _of_field("sum", field))

    def min(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, least value)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> minima = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).min(1)
        """
        return self._fold("min", _of_field("min", field))

    def max(self, field: int | str | None = None) -> Stream[tuple[K, Any]]:
        """Emit ``(key, greatest value)``; ``field`` as for `KeyedStream.sum`.

        Examples
        --------
        >>> maxima = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0]).window(Tumbling("5s")).max(1)
        """
        return self._fold("max", _of_field("max", field))

    def process(self, function: Callable[[K, Window, list[V]], Iterable[R]]) -> Stream[R]:
        """Work on all records of a window at once.

        Parameters
        ----------
        function
            Called with the key, the window (``start_ms``, ``end_ms``) and its records in the order of their arrival,
            which are kept in memory until then. What it returns or yields is emitted.

        Examples
        --------
        >>> by_word = env.from_collection(["to", "be"]).key_by(str)
        >>> ends = by_word.window(Tumbling("5s")).process(lambda key, window, values: [(key, window.end_ms)])
        """
        return self._then("window_process", "process", _function("process", function), {})

    def _fold(self, name: str, fold: object, function: object = None) -> Stream[Any]:
        return self._then("fold", name, function, {"fold": fold})

    def _then(self, kind: str, name: str, function: object, settings: dict[str, object]) -> Stream[Any]:
        window = {"size_ms": self._window.size_ms}
        return self._keyed._then(
            kind, function, name=f"window({self._window}) {name}", settings={**settings, "window": window}
        )


class _ByKey:
    """A partition function that looks at a key of the record."""

    def __init__(self, partitioner: Callable[[Any, int], int], key: Callable[[Any], Any]) -> None:
        self.partitioner = partitioner
        self._key = key

    def __call__(self, record: Any, subtasks: int) -> int:
        return self.partitioner(self._key(record), subtasks)


def _function(method: str, function: Callable[..., R]) -> Callable[..., R]:
    if not callable(function):
        raise PlanError(f"{method}() needs a function, not {_kind_of(function)}")
    _refuse_async(method, function)
    return function


def _refuse_async(method: str, function: object) -> None:
    while isinstance(function, functools.partial):
        function = function.func
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - it is looked at
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise PlanError(
                f"{method}() got {getattr(function, '__qualname__', function)!s}, which is async, and nothing awaits "
                "it: give it a plain function, which may run a loop of its own: asyncio.run(...)"
            )


def _of_field(method: str, field: int | str | None) -> dict[str, object]:
    if field is not None and (isinstance(field, bool) or not isinstance(field, int | str)):
        raise ConfigError(f"{method}({field!r}): must be an index, a key or None", setting="field", value=field)
    return {method: {"field": field}}


def _kind_of(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}: make an instance of it"
    return f"{type(value).__name__} {value!r}"[:100]


_METHODS: Final[dict[PartitionerName, str]] = {"key_group": "key_by", "custom": "partition_custom"}
"""Partitioners that are not called like the method they come from."""
