"""Scripts: what arrives, in which order and when, as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import PlanError
from ..planning.dataflow import Dataflow, Node

Said: TypeAlias = tuple[int, int | None, Any]
"""A step as the source takes it: what it is, when, and the record."""


class Step:
    """One thing that a script says: a `Record`, a `Watermark`, `Idle` or `Active`."""

    __slots__ = ()

    def _said(self) -> Said:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Record(Step):
    """A record arrives."""

    value: Any
    timestamp_ms: int | None = None
    """Its event time, in milliseconds since 1970-01-01 UTC. None: it has none."""

    def _said(self) -> Said:
        return (0, None if self.timestamp_ms is None else milliseconds("Record", self.timestamp_ms), self.value)


@dataclass(frozen=True, slots=True)
class Watermark(Step):
    """Event time comes so far: no record of this time or an earlier one is expected. Steps back are passed over."""

    timestamp_ms: int

    def _said(self) -> Said:
        return (1, milliseconds("Watermark", self.timestamp_ms), None)


@dataclass(frozen=True, slots=True)
class Idle(Step):
    """Nothing comes for now, and nobody waits for it, until the next step that says otherwise."""

    def _said(self) -> Said:
        return (2, None, None)


@dataclass(frozen=True, slots=True)
class Active(Step):
    """Records come again."""

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
    """Hands each subtask its script."""

    def __init__(self, said: list[list[Said]]) -> None:
        self._said = said

    def __call__(self, subtask: int, subtasks: int) -> Iterator[Said]:
        if subtasks != len(self._said):
            raise PlanError(
                f"from_script() has {len(self._said)} scripts, one for each subtask, and {subtasks} subtasks"
            )
        return iter(self._said[subtask])


def milliseconds(what: str, timestamp_ms: Any) -> int:
    """Refuse what is no time."""
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not -(2**63) < timestamp_ms < 2**63 - 1:
        raise PlanError(f"{what}: a time is an int of milliseconds since 1970-01-01 UTC, not {timestamp_ms!r:.100}")
    return timestamp_ms
