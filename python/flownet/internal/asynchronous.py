"""The thread on which the calls of `Stream.map_async` run, one for each subtask.

The task hands over records by the batch and is given answers, which wake it; it never waits for the thread but to see
it end. The thread belongs to the subtask: it begins with it and ends with it, whatever the coroutines do.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from ..api.context import TaskContext
from ..api.functions import AsyncFunction


class Answers(Protocol):
    """Where what calls came to is left for the task."""

    def put(self, ticket: int, value: object, error: BaseException | None = None) -> None:
        """Leave what a call returned, or what it raised."""

    def enter(self) -> None:
        """Say that this thread runs users' functions from now on."""

    def leave(self) -> None:
        """Say that it runs none any more."""


class Calls:
    """Calls one coroutine function in a separate event loop."""

    def __init__(self, function: Any, context: TaskContext, answers: Answers) -> None:
        self._object = function if isinstance(function, AsyncFunction) else None
        self._function: Callable[[Any], Awaitable[Any]] = function.call if self._object else function
        self._context = context
        self._answers = answers
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._running: set[asyncio.Future[Any]] = set()
        self._failure: BaseException | None = None
        name = f"{context.operator} calls"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> bool:
        """Start the thread; whether an answer will say that the function is open."""
        self._thread.start()
        return self._object is not None

    def begin(self, calls: list[tuple[int, Any]]) -> None:
        """Begin calls, from the task's thread: tickets and records."""
        self._loop.call_soon_threadsafe(self._begin_all, calls)

    def close(self) -> None:
        """Cancel what is under way, close the function, and wait for the thread to end."""
        with contextlib.suppress(RuntimeError):  # the loop may have ended by itself
            self._loop.call_soon_threadsafe(self._ended.set)
        for _ in range(round(3 * _CLOSE_SECONDS / _TICK)):
            self._thread.join(_TICK)  # by the tick: an interrupt is noticed between two
            if not self._thread.is_alive():
                break
        else:
            raise TimeoutError(
                f"the event loop did not end within {3 * _CLOSE_SECONDS:g} s: a coroutine keeps it without awaiting "
                "anything; asyncio.to_thread() is for what blocks"
            )
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        self._answers.enter()
        try:
            try:
                self._loop.run_until_complete(self._serve())
            finally:
                self._loop.run_until_complete(self._clear_up())
        except BaseException as error:  # noqa: BLE001 - nobody else would tell
            self._answers.put(_LOOP_ENDED, None, error)
        finally:
            self._loop.close()
            self._answers.leave()

    async def _serve(self) -> None:
        if self._object is not None:
            self._begin(_OPENED, self._object.open, self._context)
        await self._ended.wait()

    async def _clear_up(self) -> None:
        await _cancel(self._running)
        if self._object is not None:
            closing = asyncio.ensure_future(self._object.close())
            done, _ = await asyncio.wait([closing], timeout=_CLOSE_SECONDS)
            if not done:
                await _cancel({closing})
                self._failure = TimeoutError(f"close() did not return within {_CLOSE_SECONDS:g} s")
            elif not closing.cancelled():
                self._failure = closing.exception()
        # What coroutines have begun by themselves.
        await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
        await self._loop.shutdown_asyncgens()

    def _begin_all(self, calls: list[tuple[int, Any]]) -> None:
        for ticket, record in calls:
            self._begin(ticket, self._function, record)

    def _begin(self, ticket: int, function: Callable[[Any], Awaitable[Any]], given: Any) -> None:
        try:
            future = asyncio.ensure_future(_awaitable(function(given)), loop=self._loop)
        except Exception as error:  # noqa: BLE001 - the task raises it
            frames = error.__traceback__
            self._answers.put(ticket, None, error.with_traceback(frames and frames.tb_next))  # the first is ours
            return
        self._running.add(future)
        future.add_done_callback(functools.partial(self._done, ticket))

    def _done(self, ticket: int, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            error = future.exception()
            self._answers.put(ticket, None if error else future.result(), error)
        elif not self._ended.is_set():
            self._answers.put(ticket, None, asyncio.CancelledError("the coroutine was cancelled, and not by flownet"))


def _awaitable(returned: Awaitable[Any]) -> Awaitable[Any]:
    if not inspect.isawaitable(returned):
        raise TypeError(
            f"it returned {returned!r:.100}, which cannot be awaited: map_async() takes a coroutine function, and "
            "map() a plain one"
        )
    return returned


async def _cancel(futures: Iterable[asyncio.Future[Any] | None]) -> None:
    """Cancel, and wait for those that let themselves be."""
    left = [future for future in futures if future is not None]
    for future in left:
        future.cancel()
    if left:
        await asyncio.wait(left, timeout=_CLOSE_SECONDS)


_OPENED = 2**64 - 1
"""Ticket of the answer that says that the function is open."""

_LOOP_ENDED = 2**64 - 2
"""Ticket of the answer that says that there will be no more."""

_CLOSE_SECONDS = 5.0
"""What is cancelled, and ``close()``, may take so long."""

_TICK = 0.1
"""Seconds between two looks at whether the thread has ended."""
