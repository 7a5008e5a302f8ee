"""Two streams whose records are brought together: by window, or by how far apart in time they are."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ..config import duration_us
from ..errors import ConfigError, PlanError
from ..functions import KeyedCoProcessFunction, ProcessContext, Window
from ..window import Session, WindowAssigner
from .checks import function_of, key_of
from .connected import ConnectedStreams
from .stream import Stream
from .windowed import WindowedStream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")


class JoinedStreams(Generic[T, U]):
    """Two streams whose records meet by key and window. Made by `Stream.join`."""

    def __init__(self, left: Stream[T], right: Stream[U]) -> None:
        self._left = left
        self._right = right
        self._keys: dict[str, Callable[..., object]] = {}
        self._window: WindowAssigner | None = None

    def where(self, key: Callable[[T], Any] | int | str | tuple[int | str, ...]) -> JoinedStreams[T, U]:
        """Say the key of records of the first stream, as of `Stream.key_by`."""
        return self._with(left=key_of("where", key))

    def equal_to(self, key: Callable[[U], Any] | int | str | tuple[int | str, ...]) -> JoinedStreams[T, U]:
        """Say the key of records of the second stream, as of `Stream.key_by`."""
        return self._with(right=key_of("equal_to", key))

    def window(self, window: WindowAssigner) -> JoinedStreams[T, U]:
        """Say the windows, as of `KeyedStream.window`."""
        joined = self._with()
        joined._window = window
        return joined

    def apply(self, function: Callable[[T, U], R]) -> Stream[R]:
        """Call a function with each pair of records of both streams that have one key and lie in one window.

        Parameters
        ----------
        function
            Called with a record of each stream, when the window is over; what it returns is emitted.

        Examples
        --------
        >>> bids, asks = env.from_collection([("a", 1), ("b", 2)]), env.from_collection([("a", 3)])
        >>> joined = bids.join(asks).where(0).equal_to(0).window(fn.EndOfInput())
        >>> pairs = joined.apply(lambda bid, ask: (bid[1], ask[1])).collect()
        >>> result = env.execute()
        >>> list(pairs)
        [(1, 3)]
        """
        function_of("apply", function)
        if set(self._keys) != {"left", "right"} or self._window is None:
            raise PlanError("join() needs where(), equal_to() and window() before apply()")
        left = self._left.map(functools.partial(_sided, 0, self._keys["left"]))
        right = self._right.map(functools.partial(_sided, 1, self._keys["right"]))
        window = self._window
        if isinstance(window, Session) and window.gap_of is not None:
            window = Session(functools.partial(_gap_of, window.gap_of), window.time)
        windowed: WindowedStream[Any, Any] = left.union(right).key_by(0).window(window)
        return windowed.process(functools.partial(_product, function)).name("join")

    def _with(self, **keys: Callable[..., object]) -> JoinedStreams[T, U]:
        joined = JoinedStreams(self._left, self._right)
        joined._keys, joined._window = {**self._keys, **keys}, self._window
        return joined


class IntervalJoin(Generic[T, U]):
    """Two streams by key whose records meet if they are near in event time. Made by `KeyedStream.interval_join`."""

    def __init__(self, left: Stream[T], right: Stream[U]) -> None:
        self._left = left
        self._right = right

    def between(self, lower: str | timedelta, upper: str | timedelta) -> _Between[T, U]:
        """Say how much later, or with a minus earlier, a record of the second stream is than that of the first.

        Parameters
        ----------
        lower, upper
            Both ends are included: ``between("-5s", "1min")``.
        """
        lower_ms, upper_ms = _signed("lower", lower), _signed("upper", upper)
        if lower_ms > upper_ms:
            raise ConfigError(
                f"between({lower!r}, {upper!r}): the first must not be greater", setting="lower", value=lower
            )
        return _Between(self._left, self._right, lower_ms, upper_ms)


class _Between(Generic[T, U]):
    def __init__(self, left: Stream[T], right: Stream[U], lower_ms: int, upper_ms: int) -> None:
        self._left, self._right = left, right
        self._lower_ms, self._upper_ms = lower_ms, upper_ms

    def process(self, function: Callable[[T, U], R]) -> Stream[R]:
        """Call a function with each pair of records that meet, as soon as both have come; what it returns is emitted.

        The result's time is the later one of the pair's. Records that come behind the watermark are late: they meet
        nobody, are dropped, and counted as ``late_records`` of the task.

        Parameters
        ----------
        function
            Called with a record of each stream.
        """
        join = _Meet(function_of("process", function), self._lower_ms, self._upper_ms)
        return ConnectedStreams(self._left, self._right).process(join).name("interval_join")


class _Meet(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """Keeps the records of each side by time, until nobody can meet them any more."""

    def __init__(self, function: Callable[[Any, Any], Any], lower_ms: int, upper_ms: int) -> None:
        self._function = function
        self._lower_ms, self._upper_ms = lower_ms, upper_ms

    def process1(self, value: Any, ctx: Any) -> None:
        at_ms = self._time(ctx)
        if at_ms is None:
            return
        self._keep("left", at_ms, value, max(self._upper_ms, 0), ctx)
        for other_ms, other in self._between(ctx, "right", at_ms + self._lower_ms, at_ms + self._upper_ms):
            ctx._emit_at(max(at_ms, other_ms), self._function(value, other))

    def process2(self, value: Any, ctx: Any) -> None:
        at_ms = self._time(ctx)
        if at_ms is None:
            return
        self._keep("right", at_ms, value, max(-self._lower_ms, 0), ctx)
        for other_ms, other in self._between(ctx, "left", at_ms - self._upper_ms, at_ms - self._lower_ms):
            ctx._emit_at(max(at_ms, other_ms), self._function(other, value))

    def on_timer(self, timestamp_ms: int, ctx: ProcessContext[Any]) -> None:
        watermark_ms = ctx.timer_service().current_watermark()
        for side, after_ms in (("left", max(self._upper_ms, 0)), ("right", max(-self._lower_ms, 0))):
            kept = [record for record in ctx.state.get(side, ()) if record[0] + after_ms > watermark_ms]
            if kept:
                ctx.state[side] = kept
            else:
                ctx.state.pop(side, None)

    def _time(self, ctx: Any) -> int | None:
        if ctx.timestamp is None:
            raise ValueError(
                "an interval join got a record without a timestamp: call assign_timestamps_and_watermarks() on both "
                "streams before key_by()"
            )
        timestamp_ms: int = ctx.timestamp
        if timestamp_ms > ctx.current_watermark():
            return timestamp_ms
        ctx._drop_late()
        return None

    def _keep(self, side: str, at_ms: int, value: Any, after_ms: int, ctx: ProcessContext[Any]) -> None:
        insort(ctx.state.setdefault(side, []), (at_ms, value), key=_time_of)
        ctx.timer_service().register_event_time_timer(at_ms + after_ms)

    @staticmethod
    def _between(ctx: ProcessContext[Any], side: str, from_ms: int, to_ms: int) -> list[tuple[int, Any]]:
        records: list[tuple[int, Any]] = ctx.state.get(side, [])
        first, end = bisect_left(records, from_ms, key=_time_of), bisect_right(records, to_ms, key=_time_of)
        return records[first:end]


def _time_of(record: tuple[int, Any]) -> int:
    return record[0]


def _sided(side: int, key: Callable[[Any], Any], record: Any) -> tuple[Any, int, Any]:
    return (key(record), side, record)


def _gap_of(gap: Callable[[Any], int], sided: tuple[Any, int, Any]) -> int:
    return gap(sided[2])


def _product(function: Callable[[Any, Any], Any], _: Any, window: Window, records: list[Any]) -> Iterable[Any]:
    left = [record for _, side, record in records if side == 0]
    right = [record for _, side, record in records if side == 1]
    return (function(one, other) for one in left for other in right)


def _signed(name: str, given: str | timedelta) -> int:
    is_negative = given < timedelta(0) if isinstance(given, timedelta) else str(given).strip().startswith("-")
    size = abs(given) if isinstance(given, timedelta) else str(given).strip().lstrip("-")
    microseconds = duration_us(name, size)
    if microseconds % 1000:
        raise ConfigError(f"between({given!r}): must be a whole number of milliseconds", setting=name, value=given)
    return -(microseconds // 1000) if is_negative else microseconds // 1000
