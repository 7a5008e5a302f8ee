"""Aggregates of one's own: one value of many, by way of an accumulator."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..errors import PlanError
from .rich_functions import Function

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class AggregateFunction(Function, Generic[T, A, R]):
    """Makes one value of many, by way of an accumulator. Subclass it.

    In windows ``open`` and ``close`` are called, as of any function; in an `AggregatingState` they are not.

    Examples
    --------
    >>> import flownet as fn
    >>> class Span(fn.AggregateFunction[int, tuple[int, int], int]):
    ...     def create_accumulator(self):
    ...         return None
    ...
    ...     def add(self, value, accumulator):
    ...         least, greatest = accumulator or (value, value)
    ...         return (min(least, value), max(greatest, value))
    ...
    ...     def get_result(self, accumulator):
    ...         return accumulator[1] - accumulator[0]
    ...
    ...     def merge(self, accumulator, later):
    ...         return self.add(later[1], self.add(later[0], accumulator))
    """

    def create_accumulator(self) -> A:
        """Return what stands before the first value."""
        raise NotImplementedError(f"{type(self).__name__} must define create_accumulator()")

    def add(self, value: T, accumulator: A) -> A:
        """Return the accumulator with a value in it; it may be the same object, changed."""
        raise NotImplementedError(f"{type(self).__name__} must define add(value, accumulator)")

    def get_result(self, accumulator: A) -> R:
        """Return the result."""
        raise NotImplementedError(f"{type(self).__name__} must define get_result(accumulator)")

    def merge(self, accumulator: A, later: A) -> A:
        """Return an accumulator with all that went into both; ``later`` is of later records.

        Needed for sessions, which merge; sliding windows share their work where it is there.
        """
        raise NotImplementedError(f"{type(self).__name__} must define merge(accumulator, later)")


class FoldAggregate(AggregateFunction[Any, Any, Any]):
    """An aggregate made of plain functions.

    Parameters
    ----------
    init
        What stands before the first value, or a function that makes it.
    add
        Called with the accumulator and a value; returns the accumulator.
    merge
        Called with two accumulators; returns one.
    result
        Called with the accumulator; returns the result.
    """

    def __init__(
        self,
        init: Any,
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any] | None,
        result: Callable[[Any], Any] | None,
    ) -> None:
        self._init = init
        self._add = add
        self._merge = merge
        self._result = result

    def create_accumulator(self) -> Any:
        """Return what stands before the first value."""
        # Each key and window begins with one of its own, which `add` may change.
        return self._init() if callable(self._init) else copy.deepcopy(self._init)

    def add(self, value: Any, accumulator: Any) -> Any:
        """Add a value."""
        return self._add(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        """Return the result."""
        return accumulator if self._result is None else self._result(accumulator)

    def merge(self, accumulator: Any, later: Any) -> Any:
        """Make one of two."""
        if self._merge is None:
            raise PlanError("aggregate() needs merge= here: windows that merge, or share slices")
        return self._merge(accumulator, later)


def merges(aggregate: AggregateFunction[Any, Any, Any]) -> bool:
    """Say whether two accumulators can be made one."""
    if isinstance(aggregate, FoldAggregate):
        return aggregate._merge is not None
    return type(aggregate).merge is not AggregateFunction.merge
