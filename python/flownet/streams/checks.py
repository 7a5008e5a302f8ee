"""Looks at what users hand to streams, before anything is planned."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from ..api.functions import Sink
from ..api.rich_functions import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    MapFunction,
    ReduceFunction,
)
from ..errors import ConfigError, PlanError
from ..planning import spec

R = TypeVar("R")

_METHODS: Final[dict[type[Function], tuple[str, ...]]] = {
    MapFunction: ("map",),
    FlatMapFunction: ("flat_map",),
    FilterFunction: ("filter",),
    ReduceFunction: ("reduce",),
    CoMapFunction: ("map1", "map2"),
    CoFlatMapFunction: ("flat_map1", "flat_map2"),
}
"""What is called with records."""


def function_of(method: str, function: Callable[..., R]) -> Callable[..., R]:
    """Refuse what cannot be called, or would have to be awaited."""
    if not callable(function):
        raise PlanError(f"{method}() needs a function, not {kind_of(function)}")
    refuse_async(method, function)
    return function


def called_of(method: str, function: Any, kind: type[Function]) -> Any:
    """Refuse what is neither a function nor an instance of the class for this method."""
    if isinstance(function, kind):
        refuse_async_methods(function, "open", *_METHODS[kind], "finish", "close")
        return function
    if isinstance(function, Function) or (isinstance(function, type) and issubclass(function, Function)):
        raise PlanError(
            f"{method}() needs a function or an instance of flownet.{kind.__name__}, not {kind_of(function)}"
        )
    return function_of(method, function)


def method_of(function: Any, method: str) -> Any:
    """Find what is to be called."""
    return getattr(function, method) if isinstance(function, Function) else function


def told_of(function: object) -> dict[str, list[object]]:
    """Name the function among those of an operator as one that is told of its beginning and its end."""
    return {"told": [function]} if isinstance(function, Function) else {}


def refuse_async(method: str, function: object) -> None:
    """Refuse a coroutine function."""
    while isinstance(function, functools.partial):
        function = function.func
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004 - it is looked at
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise PlanError(
                f"{method}() got {getattr(function, '__qualname__', function)!s}, which is async, and nothing awaits "
                "it: give it a plain function, which may run a loop of its own: asyncio.run(...)"
            )


FieldFold = Literal["sum", "min", "max", "mean", "min_by", "max_by"]
"""Folds of a field, or of the record."""


def field_of(method: FieldFold, field: int | str | None) -> spec.FoldMap:
    """Describe a fold of a field, or of the record."""
    if field is not None and (isinstance(field, bool) or not isinstance(field, int | str)):
        raise ConfigError(f"{method}({field!r}): must be an index, a key or None", setting="field", value=field)
    match method:
        case "sum":
            return {"sum": {"field": field}}
        case "min":
            return {"min": {"field": field}}
        case "max":
            return {"max": {"field": field}}
        case "mean":
            return {"mean": {"field": field}}
        case "min_by":
            return {"min_by": {"field": field}}
        case "max_by":
            return {"max_by": {"field": field}}


def kind_of(value: object) -> str:
    """Name a value, for messages."""
    if isinstance(value, type):
        return f"the class {value.__name__}: make an instance of it"
    return f"{type(value).__name__} {value!r}"[:100]


def refuse_async_methods(of: object, *methods: str) -> None:
    """Refuse an object of which one of these methods is a coroutine function."""
    for method in methods:
        refuse_async(method, getattr(of, method, None))


def key_of(method: str, key: object) -> Callable[..., object]:
    """Make a function of a key that is given as a field, or several."""
    if isinstance(key, int | str) and not isinstance(key, bool):
        return operator.itemgetter(key)
    if isinstance(key, tuple):
        if not key or not all(isinstance(field, int | str) and not isinstance(field, bool) for field in key):
            raise PlanError(f"{method}({key!r}): a tuple names fields by their indexes or names, at least one")
        getter = operator.itemgetter(*key)
        return getter if len(key) > 1 else _SingleField(key[0])
    if not callable(key):
        raise PlanError(
            f"{method}() needs a function, the index or name of a field, or a tuple of these, not {kind_of(key)}"
        )
    return function_of(method, key)


class _SingleField:
    """The key of one field that was given as a tuple: a tuple, too."""

    def __init__(self, field: int | str) -> None:
        self._field = field

    def __call__(self, record: Any) -> tuple[object]:
        return (record[self._field],)


def number_of(method: str, count: Any) -> int:
    """Refuse what is no number of records."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PlanError(f"{method}({count!r}): must be a number of records, at least 1")
    return count


def delimiter_of(method: str, given: Any, *, is_ascii: bool = False) -> str:
    """Refuse what cannot be between two values of a line."""
    if isinstance(given, str) and len(given) == 1 and given not in '\r\n"' and (given.isascii() or not is_ascii):
        return given
    of_ascii = " of ASCII" if is_ascii else ""
    raise ConfigError(
        f"{method}(delimiter={given!r:.60}): must be one character{of_ascii}, and no quote or end of line",
        setting="delimiter",
        value=given,
    )


def sink_of(given: Any) -> Sink[Any]:
    """Refuse what is no sink, or has methods that would have to be awaited."""
    if not isinstance(given, Sink):
        raise PlanError(f"sink_to() needs an instance of a subclass of flownet.Sink, not {kind_of(given)}")
    refuse_async_methods(given, "open", "write", "flush", "close")
    return given
