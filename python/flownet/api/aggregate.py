"""Custom aggregates: they fold many values into an accumulator."""

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
    """Aggregate many values into one with an accumulator. Subclass it.

    Windows call ``open`` and ``close`` as for any function. An `AggregatingState` does not call them.

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
        """Return the accumulator for no values."""
        raise NotImplementedError(f"{type(self).__name__} must define create_accumulator()")

    def add(self, value: T, accumulator: A) -> A:
        """Add a value and return the accumulator. You may change and return the same object."""
        raise NotImplementedError(f"{type(self).__name__} must define add(value, accumulator)")

    def get_result(self, accumulator: A) -> R:
        """Return the result of an accumulator."""
        raise NotImplementedError(f"{type(self).__name__} must define get_result(accumulator)")

    def merge(self, accumulator: A, later: A) -> A:
        """Merge two accumulators into one. ``later`` has the later records.

        Sessions need it, because sessions merge. With it, sliding windows share their work.
        """
        raise NotImplementedError(f"{type(self).__name__} must define merge(accumulator, later)")


class FoldAggregate(AggregateFunction[Any, Any, Any]):
    """Build an aggregate from plain functions.

    Parameters
    ----------
    init
        The accumulator before the first value, or a function that makes it.
    add
        Called with the accumulator and a value. Returns the accumulator.
    merge
        Called with two accumulators. Returns one.
    result
        Called with the accumulator. Returns the result.
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
        """Return the accumulator for no values."""
        # Each key and window needs its own accumulator, because `add` may change it.
        return self._init() if callable(self._init) else copy.deepcopy(self._init)

    def add(self, value: Any, accumulator: Any) -> Any:
        """Add a value and return the accumulator."""
        return self._add(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        """Return the result of an accumulator."""
        return accumulator if self._result is None else self._result(accumulator)

    def merge(self, accumulator: Any, later: Any) -> Any:
        """Merge two accumulators into one."""
        if self._merge is None:
            raise PlanError("aggregate() needs merge= here: windows that merge, or share slices")
        return self._merge(accumulator, later)


def merges(aggregate: AggregateFunction[Any, Any, Any]) -> bool:
    """Return whether an aggregate can merge accumulators."""
    if isinstance(aggregate, FoldAggregate):
        return aggregate._merge is not None
    return type(aggregate).merge is not AggregateFunction.merge
