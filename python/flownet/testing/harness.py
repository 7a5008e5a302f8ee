"""One function or windowed operation by itself: fed step by step, on a clock that the test moves."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, NamedTuple

from .. import _flownet
from ..dataflow import Origin
from ..environment import Environment
from ..errors import FlownetError, PlanError
from ..functions import OutputTag, ProcessFunction, Window
from ..metrics import UserMetric
from ..streams.changing import ChangeStream
from ..streams.handle import StreamSink
from ..streams.stream import Stream
from ..timed import without_expiry
from ..window import TimeDomain
from ..window import milliseconds as of_duration
from .script import Active, Idle, Record, Said, Step, Watermark, milliseconds


class Emitted(NamedTuple):
    """A record that came out."""

    value: Any
    timestamp_ms: int | None
    """Its event time, in milliseconds since 1970-01-01 UTC; None if it has none."""


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


class Harness:
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
        build: Callable[..., Stream[Any] | ChangeStream[Any] | StreamSink],
        *,
        side_outputs: Iterable[OutputTag] = (),
        timestamps: bool = True,
        now_ms: int = 0,
        codec: Literal["typed", "pickle"] = "typed",
        object_reuse: bool = False,
    ) -> None:
        env = Environment(codec=codec, object_reuse=object_reuse, name="harness")
        self._inputs = [_Input() for _ in range(_parameters(build))]
        self._timestamps = timestamps
        built = build(*(self._stream(env, number, each) for number, each in enumerate(self._inputs)))
        if isinstance(built, ChangeStream):
            built = built.to_stream()
        self._emitted: list[Emitted] = []
        self._sides: dict[str, list[Emitted]] = {}
        if isinstance(built, Stream):
            built.process(_Recorder(self._emitted)).name("harness")
            for tag in side_outputs:
                records = self._sides.setdefault(tag.name, [])
                built.side_output(tag).process(_Recorder(records)).name(f"harness of {tag.name!r}")
        elif not isinstance(built, StreamSink):
            raise PlanError(
                f"Harness() needs a function that returns a stream or a sink, and it returned {built!r:.100}"
            )
        plan = env._dataflow.build(1, None)
        settings, _ = env._settings(0)
        self._runs = _flownet.Harness(
            plan.operators, plan.edges, settings, plan.objects, milliseconds("now_ms", now_ms)
        )

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

    def watermark(self, timestamp_ms: int, *, input: int | None = None) -> list[Any]:
        """Let event time come so far, and return what came out.

        Parameters
        ----------
        timestamp_ms
            In milliseconds since 1970-01-01 UTC. Steps back are passed over.
        input
            By which of the streams; event time is that of the one that is behind. Default: all of them.
        """
        return self._say(Watermark(timestamp_ms), input)

    def idle(self, *, input: int | None = None) -> list[Any]:
        """Let a stream, by default all, say that nobody should wait for it, and return what came out."""
        return self._say(Idle(), input)

    def active(self, *, input: int | None = None) -> list[Any]:
        """Let a stream, by default all, say that its records come again, and return what came out."""
        return self._say(Active(), input)

    def play(self, script: Iterable[Step], *, input: int = 0) -> list[Any]:
        """Let all of a script arrive by one of the streams, and return what came out."""
        said = [step._said() for step in script]
        return self._came_out(lambda: self._give(said, [self._inputs[input]]))

    def advance(self, duration: str | timedelta) -> list[Any]:
        """Let processing time pass, and return what came out.

        Each timer on the way fires at its time, and finds the clock at it.

        Parameters
        ----------
        duration
            ``"10s"`` or a ``timedelta``, at least 1 ms.
        """
        return self.advance_to(self.now_ms + of_duration("advance", "duration", duration))

    def advance_to(self, now_ms: int) -> list[Any]:
        """Let processing time pass until the clock shows ``now_ms``, as `advance` does, and return what came out."""
        until_ms = milliseconds("advance_to", now_ms)
        if until_ms < self.now_ms:
            raise PlanError(f"advance_to({now_ms}): the clock shows {self.now_ms} and does not go back")
        return self._came_out(lambda: self._runs.advance_to(until_ms))

    def end(self, *, input: int | None = None) -> list[Any]:
        """Let a stream, by default all, come to its end, and return what came out.

        When all have, time ends: windows and timers of both clocks fire and ``finish`` is called.
        """

        def end() -> None:
            for each in self._of(input):
                each.has_ended = True
            self._runs.run()

        return self._came_out(end)

    def close(self) -> None:
        """Close the functions, as at the end of a job. What a second call finds closed stays so."""
        self._runs.close()

    @property
    def emitted(self) -> list[Emitted]:
        """All that came out so far, with timestamps."""
        return list(self._emitted)

    def side_output(self, tag: OutputTag) -> list[Any]:
        """List all that went to a side output so far.

        Raises
        ------
        PlanError
            The harness was not made with this tag.
        """
        return [record.value for record in self.side_output_emitted(tag)]

    def side_output_emitted(self, tag: OutputTag) -> list[Emitted]:
        """List all that went to a side output so far, with timestamps."""
        if tag.name not in self._sides:
            raise PlanError(f"make the harness with side_outputs=[OutputTag({tag.name!r})]: it has {list(self._sides)}")
        return list(self._sides[tag.name])

    @property
    def now_ms(self) -> int:
        """What the clock of processing time shows, in milliseconds since 1970-01-01 UTC."""
        return self._runs.now_ms()

    @property
    def watermark_ms(self) -> int | None:
        """How far event time has come where records arrive first; None before the first watermark."""
        _, watermarks = self._runs.counters()
        return watermarks[0] if watermarks else None

    @property
    def late_records(self) -> int:
        """Records that came too late and were dropped, so far."""
        late, _ = self._runs.counters()
        return late

    @property
    def metrics(self) -> tuple[UserMetric, ...]:
        """What functions counted by ``ctx.metrics`` so far."""
        return tuple(UserMetric.of(metric) for metric in self._runs.user_metrics())

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

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except FlownetError:
            # What went wrong first is what the test should show.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Harness of {len(self._inputs)} streams, {len(self._emitted)} records emitted>"

    def _stream(self, env: Environment, number: int, each: _Input) -> Stream[Any]:
        node = env._dataflow.add(
            "from_script",
            name=f"input {number}",
            function=each,
            settings={"timestamps": self._timestamps},
            parallelism=1,
            is_parallel=False,
            chaining="never",
        )
        return Stream(env, (Origin(node),))

    def _say(self, step: Step, input: int | None) -> list[Any]:
        said = step._said()
        return self._came_out(lambda: self._give([said], self._of(input)))

    def _give(self, said: list[Said], inputs: list[_Input]) -> None:
        for each in inputs:
            if each.has_ended:
                raise FlownetError("this stream of the harness has come to its end: nothing arrives by it any more")
            each.steps.extend(said)
        self._runs.run()

    def _of(self, input: int | None) -> list[_Input]:
        if input is not None and not 0 <= input < len(self._inputs):
            raise PlanError(f"input={input!r}: the harness has {len(self._inputs)} streams, counted from 0")
        return [each for each in self._inputs if not each.has_ended] if input is None else [self._inputs[input]]

    def _came_out(self, happens: Callable[[], None]) -> list[Any]:
        before = len(self._emitted)
        happens()
        return [record.value for record in self._emitted[before:]]


class _Input:
    """What is yet to arrive by one of the streams."""

    def __init__(self) -> None:
        self.steps: deque[Said] = deque()
        self.has_ended = False

    def __call__(self, subtask: int, subtasks: int) -> Iterator[Said | None]:
        while self.steps or not self.has_ended:
            yield self.steps.popleft() if self.steps else None


class _Recorder(ProcessFunction[Any, Any]):
    """Takes note of what arrives."""

    def __init__(self, into: list[Emitted]) -> None:
        self._into = into

    def process(self, value: Any, ctx: Any) -> None:
        self._into.append(Emitted(value, ctx.timestamp))


def _parameters(build: Callable[..., Any]) -> int:
    """Count the streams that a function wants."""
    if not callable(build):
        raise PlanError(f"Harness() needs a function of streams, not {build!r:.100}")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [each for each in inspect.signature(build).parameters.values() if each.kind in kinds]
    count = sum(each.default is inspect.Parameter.empty for each in wanted)
    if not count:
        raise PlanError("Harness() needs a function of at least one stream: lambda stream: stream.map(...)")
    return count


def _live(mapping: dict[str, Any]) -> dict[str, Any]:
    """Show the mapping of a key without when its parts expire."""
    return {name: without_expiry(held) for name, held in mapping.items()}
