"""What all harnesses do: time passes, what comes out is noted, and what is kept can be taken along."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .. import _flownet
from ..api.environment import Environment
from ..api.functions import OutputTag, ProcessFunction
from ..api.window import milliseconds as of_duration
from ..errors import FlownetError, PlanError
from ..metrics import UserMetric
from ..planning.dataflow import Origin
from ..streams.stream import Stream
from .script import Active, Idle, Said, Step, Watermark, milliseconds

Own = TypeVar("Own", bound="HarnessBase")

HarnessState: TypeAlias = _flownet.HarnessState
"""What operators of a harness kept. Made by `snapshot`."""


class EmittedRecord(NamedTuple):
    """A record that came out."""

    value: Any
    timestamp_ms: int | None
    """Its event time, in milliseconds since 1970-01-01 UTC; None if it has none."""


class HarnessBase:
    """What `Harness` and `RowsHarness` have in common."""

    def __init__(self, env: Environment, inputs: int, *, timestamps: bool) -> None:
        self._env = env
        self._inputs = [_Input() for _ in range(inputs)]
        self._timestamps = timestamps
        self._emitted: list[EmittedRecord] = []
        self._sides: dict[str, list[EmittedRecord]] = {}

    def _streams(self) -> list[Stream[Any]]:
        return [self._stream(number, each) for number, each in enumerate(self._inputs)]

    def _note(self, built: Stream[Any], sides: dict[OutputTag, Stream[Any]]) -> None:
        """Take note of what comes out, and of what goes to side outputs."""
        built.process(_Recorder(self._emitted)).name("harness")
        for tag, side in sides.items():
            records = self._sides.setdefault(tag.name, [])
            side.process(_Recorder(records)).name(f"harness of {tag.name!r}")

    def _open(self, now_ms: int, restored: HarnessState | None) -> None:
        if restored is not None and not isinstance(restored, HarnessState):
            raise PlanError(f"restored= takes what snapshot() of a harness has given, not {restored!r:.100}")
        plan = self._env._dataflow.build(1, None)
        settings, _ = self._env._settings(0)
        self._runs = _flownet.Harness(
            plan.operators, plan.edges, settings, plan.objects, milliseconds("now_ms", now_ms), restored
        )

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
        return self._came_out(lambda: self._give(said, self._of(input)))

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

    def snapshot(self) -> HarnessState:
        """Take what operators keep as a checkpoint would have it, which stands: sinks commit what they prepared for it.

        Returns
        -------
        HarnessState
            For ``restored=`` of another harness of the same operators, which goes on from there: with state, windows,
            timers and how far event time was, and an empty input. Its clock shows what its ``now_ms`` says.
        """
        return self._runs.snapshot()

    def close(self) -> None:
        """Close the functions, as at the end of a job. What a second call finds closed stays so."""
        self._runs.close()

    @property
    def emitted(self) -> list[EmittedRecord]:
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

    def side_output_emitted(self, tag: OutputTag) -> list[EmittedRecord]:
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

    def __enter__(self: Own) -> Own:
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
        return f"<{type(self).__name__} of {len(self._inputs)} streams, {len(self._emitted)} records emitted>"

    def _stream(self, number: int, each: _Input) -> Stream[Any]:
        node = self._env._dataflow.add(
            {"from_script": {"timestamps": self._timestamps}},
            name=f"input {number}",
            function=each,
            parallelism=1,
            is_parallel=False,
            chaining="never",
        )
        return Stream(self._env, (Origin(node),))

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

    def __init__(self, into: list[EmittedRecord]) -> None:
        self._into = into

    def process(self, value: Any, ctx: Any) -> None:
        self._into.append(EmittedRecord(value, ctx.timestamp))


def parameters(what: str, build: Callable[..., Any]) -> int:
    """Count the streams that a function wants."""
    if not callable(build):
        raise PlanError(f"{what}() needs a function of streams, not {build!r:.100}")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [each for each in inspect.signature(build).parameters.values() if each.kind in kinds]
    count = sum(each.default is inspect.Parameter.empty for each in wanted)
    if not count:
        raise PlanError(f"{what}() needs a function of at least one stream: lambda stream: stream.map(...)")
    return count
