"""Joins of two streams: by window, by interval of event time, and by version (as-of)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from ..api.functions import OutputTag
from ..api.window import WindowAssigner
from ..errors import ConfigError, PlanError
from ..internal.config import duration_us
from ..planning import spec
from ..planning.dataflow import Origin
from .checks import function_of, key_of, kind_of
from .stream import Stream
from .windowed import WindowedStream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")


class JoinedStreams(Generic[T, U]):
    """A window join of two streams. Created by `Stream.join`."""

    def __init__(self, left: Stream[T], right: Stream[U]) -> None:
        self._left = left
        self._right = right
        self._keys: dict[str, Callable[..., object]] = {}
        self._window: WindowAssigner | None = None

    def where(self, key: Callable[[T], Any] | int | str | tuple[int | str, ...]) -> JoinedStreams[T, U]:
        """Set the key of the first stream, as for `Stream.key_by`."""
        return self._with(left=key_of("where", key))

    def equal_to(self, key: Callable[[U], Any] | int | str | tuple[int | str, ...]) -> JoinedStreams[T, U]:
        """Set the key of the second stream, as for `Stream.key_by`."""
        return self._with(right=key_of("equal_to", key))

    def window(self, window: WindowAssigner) -> JoinedStreams[T, U]:
        """Set the windows, as for `KeyedStream.window`.

        A function that returns the gap of a session is called with records of both streams.
        """
        joined = self._with()
        joined._window = window
        return joined

    def apply(self, function: Callable[[T, U], R]) -> Stream[R]:
        """Call a function with each pair of records of the same key and window.

        Parameters
        ----------
        function
            Called with a record of each stream, when the window ends. Its result is emitted.

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
        left, right = self._left.key_by(self._keys["left"]), self._right.key_by(self._keys["right"])
        both: Stream[Any] = Stream(left._env, of_both(left, right))
        windowed: WindowedStream[Any, Any] = WindowedStream._of(both, self._window)
        return windowed._fold("join", "pairs", {"pair": function}).name("join")

    def _with(self, **keys: Callable[..., object]) -> JoinedStreams[T, U]:
        joined = JoinedStreams(self._left, self._right)
        joined._keys, joined._window = {**self._keys, **keys}, self._window
        return joined


class IntervalJoin(Generic[T, U]):
    """An interval join of two keyed streams, without bounds. Created by `KeyedStream.interval_join`."""

    def __init__(self, left: Stream[T], right: Stream[U]) -> None:
        self._left = left
        self._right = right

    def between(self, lower: str | timedelta, upper: str | timedelta) -> BoundedJoin[T, U]:
        """Set the bounds of the time difference between two records.

        The difference is the time of the second stream's record minus the time of the first stream's record.

        Parameters
        ----------
        lower, upper
            The bounds, both included: ``between("-5s", "1min")``. Negative durations mean earlier. In whole
            milliseconds.
        """
        return BoundedJoin(self._left, self._right, _Bounds(*bounds_ms("between", lower, upper)))


@dataclass(frozen=True, slots=True)
class _Bounds:
    lower_ms: int
    upper_ms: int
    excludes_lower: bool = False
    excludes_upper: bool = False
    late_tags: tuple[str | None, str | None] = (None, None)


class BoundedJoin(Generic[T, U]):
    """An interval join with bounds. Created by `IntervalJoin.between`."""

    def __init__(self, left: Stream[T], right: Stream[U], bounds: _Bounds) -> None:
        self._left, self._right, self._bounds = left, right, bounds

    def lower_bound_exclusive(self) -> BoundedJoin[T, U]:
        """Exclude pairs whose time difference is exactly the lower bound."""
        return self._with(excludes_lower=True)

    def upper_bound_exclusive(self) -> BoundedJoin[T, U]:
        """Exclude pairs whose time difference is exactly the upper bound."""
        return self._with(excludes_upper=True)

    def side_output_left_late_data(self, tag: OutputTag) -> BoundedJoin[T, U]:
        """Send late records of the first stream to a side output of the result, instead of dropping them."""
        return self._with(late_tags=_tags(self._bounds.late_tags, 0, tag))

    def side_output_right_late_data(self, tag: OutputTag) -> BoundedJoin[T, U]:
        """Send late records of the second stream to a side output of the result, instead of dropping them."""
        return self._with(late_tags=_tags(self._bounds.late_tags, 1, tag))

    def process(self, function: Callable[[T, U], R] | None = None) -> Stream[Any]:
        """Call a function with each matching pair and emit its result.

        A pair is emitted as soon as both records have arrived. Its time is the later one of the two. Records older than
        the watermark are late. They have no match. They are dropped and counted as ``late_records`` of the task, unless
        you set a side output.

        Parameters
        ----------
        function
            Called with a record of each stream. Default: None, pairs are emitted as tuples.
        """
        bounds = self._bounds
        lower_ms, upper_ms = bounds.lower_ms + bounds.excludes_lower, bounds.upper_ms - bounds.excludes_upper
        if lower_ms > upper_ms:
            raise ConfigError(
                f"between: from {bounds.lower_ms} ms to {bounds.upper_ms} ms without these ends there is nothing",
                setting="lower",
                value=bounds.lower_ms,
            )
        late_tags = list(bounds.late_tags)
        settings: spec.IntervalJoin = {"lower_ms": lower_ms, "upper_ms": upper_ms, "late_tags": late_tags}
        return _paired(self._left, self._right, {"interval_join": settings}, function)

    def _with(self, **said: Any) -> BoundedJoin[T, U]:
        return BoundedJoin(self._left, self._right, replace(self._bounds, **said))


class AsOfJoin(Generic[T, U]):
    """An as-of join with versions of another stream. Created by `KeyedStream.as_of_join`."""

    def __init__(
        self, left: Stream[T], right: Stream[U], how: str, late_tags: tuple[str | None, str | None] = (None, None)
    ) -> None:
        self._left, self._right, self._how, self._late_tags = left, right, how, late_tags
        self._keeps_unmatched = keeps_unmatched(how)

    def side_output_left_late_data(self, tag: OutputTag) -> AsOfJoin[T, U]:
        """Send late records of the first stream to a side output of the result, instead of dropping them."""
        return AsOfJoin(self._left, self._right, self._how, _tags(self._late_tags, 0, tag))

    def side_output_right_late_data(self, tag: OutputTag) -> AsOfJoin[T, U]:
        """Send late versions to a side output instead of dropping them."""
        return AsOfJoin(self._left, self._right, self._how, _tags(self._late_tags, 1, tag))

    def process(self, function: Callable[[T, Any], R] | None = None) -> Stream[Any]:
        """Call a function with each record and its version, and emit its result.

        The result has the record's time. Records of a key are emitted in the order of their times, when the watermark
        reaches them. Records and versions older than the watermark are late. They are dropped and counted as
        ``late_records`` of the task, unless you set a side output.

        Parameters
        ----------
        function
            Called with a record and its version. With ``how="left"``, the version is None if there is none. Default:
            None, pairs are emitted as tuples.
        """
        settings: spec.AsOfJoin = {"keeps_unmatched": self._keeps_unmatched, "late_tags": list(self._late_tags)}
        return _paired(self._left, self._right, {"as_of_join": settings}, function)


JoinKind = Literal["inner", "left"]
"""Whether an as-of join drops records without a version, or pairs them with None."""


def keeps_unmatched(how: str) -> bool:
    """Return whether an as-of join emits records without a version."""
    if how not in ("inner", "left"):
        raise ConfigError(f'as_of_join(how={how!r}): must be "inner" or "left"', setting="how", value=how)
    return how == "left"


def bounds_ms(method: str, lower: str | timedelta, upper: str | timedelta) -> tuple[int, int]:
    """Convert the bounds of an interval to milliseconds."""
    lower_ms, upper_ms = _signed(method, "lower", lower), _signed(method, "upper", upper)
    if lower_ms > upper_ms:
        raise ConfigError(
            f"{method}({lower!r}, {upper!r}): the first must not be greater", setting="lower", value=lower
        )
    return lower_ms, upper_ms


def of_both(left: Stream[Any], right: Stream[Any]) -> tuple[Origin, ...]:
    """Return the inputs of an operator with two sides."""
    return (*left._origins, *(replace(origin, side=1) for origin in right._origins))


def _paired(left: Stream[Any], right: Stream[Any], kind: spec.OperatorKind, function: Any) -> Stream[Any]:
    functions = None if function is None else {"pair": function_of("process", function)}
    env = left._env
    node = env._dataflow.add(kind, inputs=of_both(left, right), function=functions)
    return Stream(env, (Origin(node),))


def _tags(tags: tuple[str | None, str | None], side: int, tag: OutputTag) -> tuple[str | None, str | None]:
    if not isinstance(tag, OutputTag):
        raise PlanError(f"late data goes to a flownet.OutputTag, not to {kind_of(tag)}")
    return (tag.name, tags[1]) if side == 0 else (tags[0], tag.name)


def _signed(method: str, name: str, given: object) -> int:
    is_negative, size = False, given
    if isinstance(given, timedelta):
        is_negative, size = given < timedelta(0), abs(given)
    elif isinstance(given, str):
        is_negative, size = given.strip().startswith("-"), given.strip().removeprefix("-")
    microseconds = duration_us(name, size)
    if microseconds % 1000:
        raise ConfigError(f"{method}({given!r}): must be a whole number of milliseconds", setting=name, value=given)
    return -(microseconds // 1000) if is_negative else microseconds // 1000
