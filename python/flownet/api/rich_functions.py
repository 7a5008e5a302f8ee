"""Functions of one record with ``open``, ``close`` and ``finish``.

If you need none of these methods, pass a plain callable instead.
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
    """Base class of functions with ``open`` and ``close``."""

    def open(self, ctx: TaskContext) -> None:
        """Prepare the subtask before its first record."""

    def close(self) -> None:
        """Release the resources of ``open``. Called once, also after a failure.

        After a failure, an exception of this method is only logged.
        """


class FinishableFunction(Function, Generic[R]):
    """Base class of functions that can emit records at the end of the input."""

    def finish(self) -> Iterable[R] | None:
        """Handle the end of the input and return the last records, or None.

        These records have no timestamp. Not called when the job is cancelled or stopped without draining.
        """


class MapFunction(FinishableFunction[R], Generic[T, R]):
    """Map each record to one record. Subclass it and pass an instance to `Stream.map`.

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
        """Process one record and return the record to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define map(value)")


class FlatMapFunction(FinishableFunction[R], Generic[T, R]):
    """Map each record to any number of records.

    Subclass it and pass an instance to `Stream.flat_map`.

    Examples
    --------
    Process records in threads. Finished results are emitted with the next record, the others at the end:

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
        """Process one record and return the records to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map(value)")


class FilterFunction(FinishableFunction[T], Generic[T]):
    """Filter records by a predicate. Subclass it and pass an instance to `Stream.filter`."""

    def filter(self, value: T) -> object:
        """Return a true value to pass the record on, a false value to drop it."""
        raise NotImplementedError(f"{type(self).__name__} must define filter(value)")


class ReduceFunction(Function, Generic[T]):
    """Reduce two values to one.

    Subclass it and pass an instance to ``reduce`` of a keyed stream or of windows.
    """

    def reduce(self, value1: T, value2: T) -> T:
        """Combine the value so far with the next value and return the result."""
        raise NotImplementedError(f"{type(self).__name__} must define reduce(value1, value2)")


class CoMapFunction(FinishableFunction[R], Generic[T, U, R]):
    """Map each record of two streams to one record.

    Subclass it and pass an instance to `ConnectedStreams.map`.
    """

    def map1(self, value: T) -> R:
        """Process one record of the first stream and return the record to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define map1(value)")

    def map2(self, value: U) -> R:
        """Process one record of the second stream and return the record to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define map2(value)")


class CoFlatMapFunction(FinishableFunction[R], Generic[T, U, R]):
    """Map each record of two streams to any number of records.

    Subclass it and pass an instance to `ConnectedStreams.flat_map`.
    """

    def flat_map1(self, value: T) -> Iterable[R]:
        """Process one record of the first stream and return the records to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map1(value)")

    def flat_map2(self, value: U) -> Iterable[R]:
        """Process one record of the second stream and return the records to emit."""
        raise NotImplementedError(f"{type(self).__name__} must define flat_map2(value)")
