"""Functions of one record that are told of their beginning and their end.

Plain callables do as well where nothing has to be opened, closed or finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .context import TaskContext

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")


class Function:
    """What functions have in common that are told of their beginning and their end."""

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask, before its first record."""

    def close(self) -> None:
        """Release what ``open`` took. Called once, also after a failure; what it raises then is only logged."""


class FinishableFunction(Function, Generic[R]):
    """What functions have in common that may have something to emit when the input has ended."""

    def finish(self) -> Iterable[R] | None:
        """Take note that the input has ended, and return what is left to emit; None stands for none.

        These records have no event time. Not called when the job is cancelled or stopped without draining.
        """


class MapFunction(FinishableFunction[R], Generic[T, R]):
    """Turns each record into another. Subclass it and pass an instance to `Stream.map`.

    Examples
    --------
    >>> import flownet as fn
    >>> class Parse(fn.MapFunction):
    ...     def open(self, ctx):
    ...         import json
    ...         self.loads = json.loads
    ...
    ...     def map(self, value):
    ...         return self.loads(value)
    >>> env = fn.Environment()
    >>> parsed = env.from_collection(["[1, 2]"]).map(Parse()).collect()
    >>> result = env.execute()
    >>> list(parsed)
    [[1, 2]]
    """

    def map(self, value: T) -> R:
        """Take one record and return another."""
        raise NotImplementedError(f"{type(self).__name__} must define map(value)")


class FlatMapFunction(FinishableFunction[R], Generic[T, R]):
    """Turns each record into any number of records. Subclass it and pass an instance to `Stream.flat_map`.

    Examples
    --------
    Records are worked on by threads. What is done is emitted with the next record, and the rest at the end:

    >>> import flownet as fn
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> class Squares(fn.FlatMapFunction):
    ...     def open(self, ctx):
    ...         self.threads, self.pending = ThreadPoolExecutor(4), []
    ...
    ...     def flat_map(self, value):
    ...         self.pending.append(self.threads.submit(pow, value, 2))
    ...         while self.pending and (self.pending[0].done() or len(self.pending) > 100):
    ...             yield self.pending.pop(0).result()
    ...
    ...     def finish(self):
    ...         return [future.result() for future in self.pending]
    ...
    ...     def close(self):
    ...         self.threads.shutdown()
    >>> env = fn.Environment()
    >>> squares = env.from_collection(range(1000)).flat_map(Squares()).collect()
    >>> result = env.execute()
    >>> list(squares) == [number**2 for number in range(1000)]
    True
    """

    def flat_map(self, value: T) -> Iterable[R]:
        """Take one record and return the records to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map(value)")


class FilterFunction(FinishableFunction[T], Generic[T]):
    """Says which records to keep. Subclass it and pass an instance to `Stream.filter`."""

    def filter(self, value: T) -> object:
        """Take one record and return what is true if it is to be kept."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(value)")


class ReduceFunction(Function, Generic[T]):
    """Makes one value of two. Subclass it and pass an instance to ``reduce`` of streams by key or of windows."""

    def reduce(self, value1: T, value2: T) -> T:
        """Take the value so far and the next one and return what they make together."""
        raise NotImplementedError(f"{type(self).__name__} must define reduce(value1, value2)")


class CoMapFunction(FinishableFunction[R], Generic[T, U, R]):
    """Turns each record of two streams into another. Subclass it and pass an instance to `ConnectedStreams.map`."""

    def map1(self, value: T) -> R:
        """Take one record of the first stream and return another."""
        raise NotImplementedError(f"{type(self).__name__} must define map1(value)")

    def map2(self, value: U) -> R:
        """Take one record of the second stream and return another."""
        raise NotImplementedError(f"{type(self).__name__} must define map2(value)")


class CoFlatMapFunction(FinishableFunction[R], Generic[T, U, R]):
    """Turns each record of two streams into any number. Subclass it for `ConnectedStreams.flat_map`."""

    def flat_map1(self, value: T) -> Iterable[R]:
        """Take one record of the first stream and return the records to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map1(value)")

    def flat_map2(self, value: U) -> Iterable[R]:
        """Take one record of the second stream and return the records to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map2(value)")
