"""One function or windowed operation by itself: fed step by step, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from ..api.environment import Environment
from ..api.functions import OutputTag, Window
from ..api.window import TimeDomain
from ..errors import PlanError
from ..internal.expiring_value import without_expiry
from ..streams.changelog_stream import ChangelogStream
from ..streams.handle import StreamSink
from ..streams.stream import Stream
from .harness_base import HarnessBase, HarnessState, parameters
from .script import Record


class PendingTimer(NamedTuple):
    """A timer that is set."""

    clock: TimeDomain
    timestamp_ms: int
    """When it is due, in milliseconds since 1970-01-01 UTC."""
    key: Any
    """Whose it is. None for the end of windows that all keys share."""
    window: Window | None
    """The window that it is for; None for one of a process function."""


class OpenWindow(NamedTuple):
    """What a window holds for a key."""

    key: Any
    window: Window
    value: Any
    """The result so far; for `WindowedStream.process` and for evictors the list of its records."""
    state: dict[str, Any]
    """What a `ProcessWindowFunction` keeps in ``ctx.window_state``."""
    trigger_state: dict[str, Any]
    """What a `Trigger` keeps in ``ctx.state``."""


class Harness(HarnessBase):
    """Feeds a function or windowed operation, and shows what it emitted and what it keeps.

    What runs are the operators of a job, from the plan and the codec to windows, timers and state, on the caller's
    thread. Every call does all that there is to do and returns what came out; nothing happens between calls. Event
    time passes by `watermark` alone and the wall's by `advance` alone, so that nothing ever waits.

    Use it in a ``with`` block, or call `close`: that closes the functions.

    Parameters
    ----------
    build
        Called with a stream for each of its parameters; returns the stream whose records, or changes, are wanted, or a
        sink. It says what a job would say: ``lambda clicks: clicks.key_by(0).process(Quiet())``,
        ``lambda orders, names: orders.connect(names).map(f, g)``. Functions and objects are used as they are and not
        copied, so that a test can look at them.
    side_outputs
        Tags of what is wanted besides, for `side_output`.
    timestamps
        Whether records have event times; windows then go by these unless they say otherwise. False for windows of
        processing time, and for what assigns timestamps itself. Default: True.
    now_ms
        What the clock of processing time shows at first, in milliseconds since 1970-01-01 UTC. Default: 0.
    codec, object_reuse
        As of `Environment`.
    restored
        What `snapshot` of another harness of the same operators has given: they begin with that. Default: with nothing.

    Raises
    ------
    PlanError
        What ``build`` describes cannot run.
    OperatorError
        An ``open`` raised.

    Examples
    --------
    A function that emits each key once it has been quiet for a second:

    >>> import flownet as fn
    >>> from flownet import testing
    >>> class Quiet(fn.KeyedProcessFunction):
    ...     def process(self, value, ctx):
    ...         if "timer" in ctx.state:
    ...             ctx.delete_timer(ctx.state["timer"])
    ...         ctx.state["timer"] = ctx.now_ms() + 1000
    ...         ctx.set_timer(ctx.state["timer"])
    ...
    ...     def on_timer(self, timestamp_ms, ctx):
    ...         ctx.state.clear()
    ...         yield ctx.key
    >>> harness = testing.Harness(lambda words: words.key_by(str).process(Quiet()))
    >>> harness.send("to")
    []
    >>> harness.advance("600ms")
    []
    >>> harness.send("to")
    []
    >>> harness.state("to"), harness.timers
    ({'timer': 1600}, [PendingTimer(clock='processing', timestamp_ms=1600, key='to', window=None)])
    >>> harness.advance("1s")
    ['to']
    >>> harness.states
    {}
    >>> harness.close()
    """

    def __init__(
        self,
        build: Callable[..., Stream[Any] | ChangelogStream[Any] | StreamSink],
        *,
        side_outputs: Iterable[OutputTag] = (),
        timestamps: bool = True,
        now_ms: int = 0,
        codec: Literal["typed", "pickle"] = "typed",
        object_reuse: bool = False,
        restored: HarnessState | None = None,
    ) -> None:
        env = Environment(codec=codec, object_reuse=object_reuse, name="harness")
        super().__init__(env, parameters("Harness", build), timestamps=timestamps)
        built = build(*self._streams())
        if isinstance(built, ChangelogStream):
            built = built.to_stream()
        if isinstance(built, Stream):
            self._note(built, {tag: built.side_output(tag) for tag in side_outputs})
        elif not isinstance(built, StreamSink):
            raise PlanError(
                f"Harness() needs a function that returns a stream or a sink, and it returned {built!r:.100}"
            )
        self._open(now_ms, restored)

    def send(self, value: Any, timestamp_ms: int | None = None, *, input: int = 0) -> list[Any]:
        """Let a record arrive, and return what came out.

        Parameters
        ----------
        value
            The record.
        timestamp_ms
            Its event time, in milliseconds since 1970-01-01 UTC. Default: it has none.
        input
            By which of the streams, from 0. Default: the first.
        """
        if timestamp_ms is not None and not self._timestamps:
            raise PlanError("send(): this harness was made with timestamps=False, so its records have none")
        return self._say(Record(value, timestamp_ms), input)

    def state(self, key: Any) -> dict[str, Any]:
        """Show what is kept for a key, by name; empty where there is nothing.

        That is ``ctx.state`` and typed state, the state of an aggregating one being its accumulator. What `reduce`,
        `count` and the like keep has the name ``"value"``; the records that a join by time keeps of its two inputs are
        ``"left"`` and ``"right"``. What has expired is shown until it is freed.
        """
        return self.states.get(key, {})

    @property
    def states(self) -> dict[Any, dict[str, Any]]:
        """What is kept for each key, by name, as `state` shows it."""
        states: dict[Any, dict[str, Any]] = {}
        for _, what, key, _, value in self._runs.kept():
            if what == "state":
                states.setdefault(key, {}).update(_live(value))
            elif what == "value":
                states.setdefault(key, {})["value"] = value
            elif what in ("left", "right"):
                states.setdefault(key, {}).setdefault(what, []).append(value)
        return states

    @property
    def broadcast_state(self) -> dict[Any, Any]:
        """What a `KeyedBroadcastProcessFunction` keeps for all keys."""
        kept = self._runs.kept()
        return {key: held for _, what, _, _, value in kept if what == "broadcast_state" for key, held in value.items()}

    def global_state(self, key: Any) -> dict[str, Any]:
        """Show what a `ProcessWindowFunction` keeps for a key over all windows."""
        kept = self._runs.kept()
        found = (value for _, what, of, _, value in kept if what == "global_state" and of == key)
        return {name: held for value in found for name, held in value.items()}

    @property
    def windows(self) -> list[OpenWindow]:
        """The windows that hold something, each for each key, in order of time."""
        kept = self._runs.kept()
        # By the operator as well: two may have windows.
        beside = [(what, (operator, key, window), value) for operator, what, key, window, value in kept]

        def of(wanted: str, whose: object) -> dict[str, Any]:
            return {
                name: held
                for what, of, value in beside
                if (what, of) == (wanted, whose)
                for name, held in value.items()
            }

        found = [
            OpenWindow(whose[1], Window(*whose[2]), value, of("window_state", whose), of("trigger_state", whose))
            for what, whose, value in beside
            if what == "window" and whose[2] is not None
        ]
        return sorted(found, key=lambda each: each.window)

    @property
    def timers(self) -> list[PendingTimer]:
        """The timers that are set, of both clocks, the earliest first; also those that windows wait for."""
        timers = [
            PendingTimer(clock, at_ms, key, None if window is None else Window(*window))
            for _, clock, at_ms, key, window in self._runs.timers()
        ]
        return sorted(timers, key=lambda timer: timer.timestamp_ms)


def _live(mapping: dict[str, Any]) -> dict[str, Any]:
    """Show the mapping of a key without when its parts expire."""
    return {name: without_expiry(held) for name, held in mapping.items()}
