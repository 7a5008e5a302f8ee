"""Scripts for test sources: records, watermarks and idleness, as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import PlanError
from ..planning.dataflow import Dataflow, Node

Said: TypeAlias = tuple[int, int | None, Any]
"""A step in the form of the source: kind, timestamp and record."""


class Step:
    """Base class of the steps of a script: `Record`, `Watermark`, `Idle` and `Active`."""

    __slots__ = ()

    def _said(self) -> Said:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Record(Step):
    """Emit a record, with a timestamp if you give one."""

    value: Any
    timestamp_ms: int | None = None
    """Event time in milliseconds since 1970-01-01 UTC. Default: None, no timestamp."""

    def _said(self) -> Said:
        return (0, None if self.timestamp_ms is None else milliseconds("Record", self.timestamp_ms), self.value)


@dataclass(frozen=True, slots=True)
class Watermark(Step):
    """Emit a watermark: expect no more records of this time or earlier.

    Watermarks that go back are ignored.
    """

    timestamp_ms: int

    def _said(self) -> Said:
        return (1, milliseconds("Watermark", self.timestamp_ms), None)


@dataclass(frozen=True, slots=True)
class Idle(Step):
    """Mark the source as idle, so that it does not delay the watermark."""

    def _said(self) -> Said:
        return (2, None, None)


@dataclass(frozen=True, slots=True)
class Active(Step):
    """Mark the source as active again."""

    def _said(self) -> Said:
        return (3, None, None)


def from_script(dataflow: Dataflow, scripts: Sequence[Iterable[Step]]) -> Node:
    """Add a source with a subtask for each script."""
    if not scripts:
        raise PlanError("from_script() needs a script for each subtask of the source, at least one")
    steps = [list(script) for script in scripts]
    for number, script in enumerate(steps):
        for step in script:
            if not isinstance(step, Step):
                raise PlanError(
                    f"from_script(): script {number} has {step!r:.100}, and its steps are flownet.testing.Record, "
                    "Watermark, Idle and Active"
                )
    said = [[step._said() for step in script] for script in steps]
    timed = [step.timestamp_ms is not None for script in steps for step in script if isinstance(step, Record)]
    has_time = any(timed) or any(isinstance(step, Watermark) for script in steps for step in script)
    return dataflow.add(
        {"from_script": {"timestamps": has_time}},
        function=_ScriptSource(said),
        parallelism=len(said),
        is_parallel=len(said) > 1,
        is_bounded=True,
    )


class _ScriptSource:
    """Give each subtask its script."""

    def __init__(self, said: list[list[Said]]) -> None:
        self._said = said

    def __call__(self, subtask: int, subtasks: int) -> Iterator[Said]:
        if subtasks != len(self._said):
            raise PlanError(
                f"from_script() has {len(self._said)} scripts, one for each subtask, and {subtasks} subtasks"
            )
        return iter(self._said[subtask])


def milliseconds(what: str, timestamp_ms: Any) -> int:
    """Check that a timestamp is an int of milliseconds, and return it."""
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not -(2**63) < timestamp_ms < 2**63 - 1:
        raise PlanError(f"{what}: a time is an int of milliseconds since 1970-01-01 UTC, not {timestamp_ms!r:.100}")
    return timestamp_ms
