"""`ConnectedStreams`, two streams that one operator processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ..api.context import TaskContext
from ..api.functions import CoProcessFunction, KeyedBroadcastProcessFunction, KeyedCoProcessFunction, RecordContext
from ..api.rich_functions import CoFlatMapFunction, CoMapFunction, Function
from ..errors import PlanError
from ..planning import spec
from ..planning.dataflow import Origin
from .checks import called_of, function_of, kind_of, refuse_async_methods
from .keyed import KeyedStream
from .stream import Stream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")


class ConnectedStreams(Generic[T, U]):
    """Two connected streams, for an operator that knows the stream of each record. Created by `Stream.connect`.

    The watermark is the lower one of the two streams.
    """

    def __init__(self, first: Stream[T], second: Stream[U]) -> None:
        self._first = first
        self._second = second

    def __repr__(self) -> str:
        return f"<ConnectedStreams of {self._first!r} and {self._second!r}>"

    def map(
        self, first: Callable[[T], R] | CoMapFunction[T, U, R], second: Callable[[U], R] | None = None
    ) -> Stream[R]:
        """Map the records of each stream with its own function.

        Parameters
        ----------
        first, second
            Called with records of the first and of the second stream. Or one `CoMapFunction`.

        Examples
        --------
        >>> words, numbers = env.from_collection(["to", "be"]), env.from_collection([1, 2])
        >>> both = words.connect(numbers).map(str.upper, str).collect()
        >>> result = env.execute()
        >>> sorted(both)
        ['1', '2', 'BE', 'TO']
        """
        return self._then(_both("map", first, second, CoMapFunction), "map")

    def flat_map(
        self,
        first: Callable[[T], Iterable[R]] | CoFlatMapFunction[T, U, R],
        second: Callable[[U], Iterable[R]] | None = None,
    ) -> Stream[R]:
        """Flat-map the records of each stream with its own function.

        Parameters
        ----------
        first, second
            Called with records of the first and of the second stream. Or one `CoFlatMapFunction`.

        Examples
        --------
        >>> words, numbers = env.from_collection(["to be"]), env.from_collection([2])
        >>> both = words.connect(numbers).flat_map(str.split, range)
        """
        return self._then(_both("flat_map", first, second, CoFlatMapFunction), "flat_map")

    def process(
        self,
        function: CoProcessFunction[T, U, R]
        | KeyedCoProcessFunction[Any, T, U, R]
        | KeyedBroadcastProcessFunction[Any, T, U, R],
    ) -> Stream[R]:
        """Process records of both streams, with state and timers if they are keyed.

        Parameters
        ----------
        function
            A `CoProcessFunction` if neither stream is keyed, or a `KeyedCoProcessFunction` if both are. If the first is
            keyed and the second is `Stream.broadcast`, a `KeyedBroadcastProcessFunction`.

        Raises
        ------
        PlanError
            ``function`` is not an instance of the class that these streams need.

        Examples
        --------
        >>> class Enrich(fn.KeyedCoProcessFunction):
        ...     def process1(self, order, ctx):
        ...         yield (*order, ctx.state.get("name", "?"))
        ...
        ...     def process2(self, customer, ctx):
        ...         ctx.state["name"] = customer[1]
        >>> orders, customers = env.from_collection([(7, "tea")]), env.from_collection([(7, "Ann")])
        >>> named = orders.key_by(0).connect(customers.key_by(0)).process(Enrich())
        """
        wanted, kind = self._wanted()
        if not isinstance(function, wanted):
            keyed = [isinstance(stream, KeyedStream) for stream in (self._first, self._second)]
            how = {(True, True): "both by key", (False, False): "neither by key"}.get(
                (keyed[0], keyed[1]), "one by key"
            )
            raise PlanError(
                f"process() on two streams, {how}, needs an instance of a subclass of flownet.{wanted.__name__}, not "
                f"{kind_of(function)}"
            )
        refuse_async_methods(
            function, "open", "process", "process1", "process2", "process_broadcast", "on_timer", "finish", "close"
        )
        return self._add(kind, function, type(function).__name__)

    def _wanted(self) -> tuple[type, spec.OperatorKind]:
        first, second = isinstance(self._first, KeyedStream), isinstance(self._second, KeyedStream)
        if first and second:
            return KeyedCoProcessFunction, {"process": {"inputs": "two"}}
        if not first and not second:
            return CoProcessFunction, {"process_all": {"inputs": "two"}}
        is_broadcast = all(origin.partitioner == "broadcast" for origin in self._second._origins)
        if first and is_broadcast:
            return KeyedBroadcastProcessFunction, {"process": {"inputs": "broadcast"}}
        raise PlanError(
            "connect() takes two streams by key, two that are not, or one by key and then one that is broadcast: call "
            "key_by() on the other one, or broadcast()"
        )

    def _then(self, function: object, name: str) -> Stream[Any]:
        if isinstance(self._first, KeyedStream) != isinstance(self._second, KeyedStream):
            self._wanted()
        return self._add({"process_all": {"inputs": "two"}}, function, name)

    def _add(self, kind: spec.OperatorKind, function: object, name: str) -> Stream[Any]:
        origins = (*self._first._origins, *(replace(origin, side=1) for origin in self._second._origins))
        env = self._first._env
        node = env._dataflow.add(kind, inputs=origins, function=function, name=name)
        return Stream(env, (Origin(node),))


def _both(method: str, first: Any, second: Any, kind: type[Function]) -> _BothFunctions:
    first = called_of(method, first, kind)
    if not isinstance(first, Function):
        return _BothFunctions(first, function_of(method, second), is_flat=method == "flat_map")
    if second is not None:
        raise PlanError(f"{method}() takes a flownet.{kind.__name__} alone, or two functions")
    return _LifecycleFunctions(first, method)


class _BothFunctions(CoProcessFunction[Any, Any, Any]):
    """A function for each of two streams."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any], *, is_flat: bool) -> None:
        self._first = first
        self._second = second
        self._is_flat = is_flat

    def process1(self, value: Any, ctx: RecordContext) -> Iterable[Any]:
        returned = self._first(value)
        return returned if self._is_flat else [returned]

    def process2(self, value: Any, ctx: RecordContext) -> Iterable[Any]:
        returned = self._second(value)
        return returned if self._is_flat else [returned]


class _LifecycleFunctions(_BothFunctions):
    """Calls an object with ``open``, ``finish`` and ``close`` for records of both streams."""

    def __init__(self, function: Any, method: str) -> None:
        super().__init__(getattr(function, f"{method}1"), getattr(function, f"{method}2"), is_flat=method == "flat_map")
        self._function = function

    def open(self, ctx: TaskContext) -> None:
        self._function.open(ctx)

    def finish(self, ctx: RecordContext) -> Iterable[Any] | None:
        left: Iterable[Any] | None = self._function.finish()
        return left

    def close(self) -> None:
        self._function.close()
