"""Async I/O: operators that call coroutine functions, with several calls in flight."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import streams
from ..api.functions import AsyncFunction
from ..errors import ConfigError, PlanError
from ..internal import config
from ..planning import spec
from .checks import kind_of

T = TypeVar("T")
R = TypeVar("R")


class CallMethods(Generic[T]):
    """The methods of a stream that call coroutine functions."""

    def map_async(
        self,
        function: Callable[[T], Awaitable[R]] | AsyncFunction[T, R],
        capacity: int = 100,
        timeout: str | timedelta | None = "30s",
        ordered: bool = True,
    ) -> streams.Stream[R]:
        """Map records with a coroutine function (async I/O).

        Many calls are in flight at a time. They run in an event loop of each subtask, on a separate thread. So a call
        that waits blocks neither the task nor other calls. A call that computes or blocks does. Use ``await
        asyncio.to_thread(...)`` for these.

        Parameters
        ----------
        function
            A coroutine function (``async def``), or an instance of a subclass of `AsyncFunction`. Called with each
            record. Its result is emitted with the timestamp of the record.
        capacity
            Maximum number of records in flight in each subtask. Completed records that wait for their turn count. At
            the limit, upstream tasks are back-pressured. Default: 100.
        timeout
            Time limit of a call, such as ``"500ms"``. A call that exceeds it fails the job with `CallTimeoutError`.
            None means no limit. Default: ``"30s"``.
        ordered
            True keeps the order of records. False emits each result as soon as its call returns. Records may then
            overtake each other, but never a watermark. Watermarks never overtake records. Default: True.

        Raises
        ------
        PlanError
            ``function`` is not a coroutine function or an `AsyncFunction`.
        ConfigError
            ``capacity`` or ``timeout`` is out of range.

        Examples
        --------
        >>> import asyncio
        >>> async def look_up(user):
        ...     await asyncio.sleep(0.01)
        ...     return user, len(user)
        >>> users = env.from_collection(["ann", "robert"]).map_async(look_up, capacity=10).collect()
        >>> result = env.execute()
        >>> list(users)
        [('ann', 3), ('robert', 6)]
        """
        return self._call("map_async", function, capacity, timeout, ordered)

    def flat_map_async(
        self,
        function: Callable[[T], Awaitable[Iterable[R]]] | AsyncFunction[T, Iterable[R]],
        capacity: int = 100,
        timeout: str | timedelta | None = "30s",
        ordered: bool = True,
    ) -> streams.Stream[R]:
        """Flat-map records with a coroutine function (async I/O).

        Parameters
        ----------
        function
            As for `map_async`, but it returns an iterable. Each item is emitted.
        capacity, timeout, ordered
            As for `map_async`.

        Examples
        --------
        >>> async def friends(user):
        ...     return [f"{user}'s friend"] if user == "ann" else []
        >>> known = env.from_collection(["ann", "bob"]).flat_map_async(friends).collect()
        >>> result = env.execute()
        >>> list(known)
        ["ann's friend"]
        """
        return self._call("flat_map_async", function, capacity, timeout, ordered)

    def _call(self, method: str, function: Any, capacity: int, timeout: Any, ordered: bool) -> streams.Stream[Any]:
        _check_function(method, function)
        capacity = config.whole_number("capacity", capacity, 1, _MOST_CALLS)
        timeout_ms = None if timeout is None else config.duration_us("timeout", timeout) // 1000
        if timeout_ms == 0:
            raise ConfigError(
                f"timeout={timeout!r}: no call returns at once; None is for as long as it likes",
                setting="timeout",
                value=timeout,
            )
        settings: spec.MapAsync = {
            "capacity": capacity,
            "timeout_ms": timeout_ms,
            "ordered": bool(ordered),
            "flat": method == "flat_map_async",
        }
        return self._then({"map_async": settings}, function, name=method)

    if TYPE_CHECKING:

        def _then(self, kind: spec.OperatorKind, function: object = None, **described: Any) -> streams.Stream[Any]: ...


def _check_function(method: str, function: object) -> None:
    if isinstance(function, type) and issubclass(function, AsyncFunction):
        raise PlanError(f"{method}() needs a coroutine function, not {kind_of(function)}")
    if isinstance(function, AsyncFunction):
        for hook in ("open", "call", "close"):
            if not inspect.iscoroutinefunction(getattr(function, hook)):
                raise PlanError(f"{method}(): {type(function).__name__}.{hook} must be async, as it is awaited")
        return
    if not callable(function):
        raise PlanError(f"{method}() needs a coroutine function or a flownet.AsyncFunction, not {kind_of(function)}")
    if inspect.isasyncgenfunction(function):
        raise PlanError(f"{method}() got an async generator: return a list, and give the function to flat_map_async()")


_MOST_CALLS = 1_000_000
"""Maximum of ``capacity``. No event loop can handle more calls."""
