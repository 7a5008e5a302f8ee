"""Where samples found a subtask: its functions, and what it did where it was in none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class FlameFrame:
    """A function or a state in which samples found a subtask, on what led there."""

    below: int | None
    """Position of the frame that it is on; none at the bottom."""
    samples: int
    """Samples in it, and in what is on it."""
    function: str | None
    """Name of the function; none where it is a state."""
    file: str | None
    """File of the function."""
    line: int | None
    """Line in which the function was found most often."""
    state: str | None
    """Where it is no function: ``busy`` (at work in Rust), ``missed`` (at work, which was over before its stack could
    be read), ``interpreter``, ``soft_back_pressured`` (waiting for output between two records), ``hard_back_pressured``
    (within one), ``idle``, ``awaiting``, ``aligning`` or ``waiting_for_barrier``."""

    @property
    def label(self) -> str:
        """What it is in one word or two: ``burn (jobs/count.py:7)``, ``[idle]``."""
        if self.function is None:
            return f"[{self.state}]"
        place = "/".join(PurePath(self.file or "").parts[-2:])
        return f"{self.function} ({place}:{self.line})" if place else self.function


@dataclass(frozen=True, slots=True)
class Flame:
    r"""Samples of one subtask.

    Examples
    --------
    >>> from flownet.observation import Flame, FlameFrame
    >>> main = FlameFrame(None, 9, "main", "/home/me/job.py", 3, None)
    >>> burn = FlameFrame(0, 7, "burn", "/home/me/job.py", 8, None)
    >>> idle = FlameFrame(None, 1, None, None, None, "idle")
    >>> flame = Flame(10, 10, 0.05, 0.5, False, 0.0, 0.01, (main, burn, idle))
    >>> print(*flame.folded(), sep="\n")
    main (me/job.py:3) 2
    main (me/job.py:3);burn (me/job.py:8) 7
    [idle] 1
    """

    asked: int
    """Samples that were asked for."""
    taken: int
    """Those that say something: others fell due while the interpreter was waited for, or after the subtask's end."""
    every_seconds: float
    """From one to the next, in seconds."""
    seconds: float
    """From the first moment to the last, in seconds."""
    has_ended: bool
    """Whether the subtask has ended meanwhile."""
    back_pressured: float | None
    """Share of the samples that found it waiting for outputs; none without samples."""
    ledger_back_pressured: float | None
    """Share of the same time in which it waited for outputs, as it keeps account of it itself; none without time."""
    frames: tuple[FlameFrame, ...]
    """All of them, each behind the one that it is on."""

    def folded(self) -> Iterator[str]:
        """Give each stack in a line with its samples, as flamegraph.pl, inferno and speedscope read them."""
        own = [frame.samples for frame in self.frames]
        stacks: list[str] = []
        for frame in self.frames:
            label = " ".join(frame.label.replace(";", ":").split())
            if frame.below is None:
                stacks.append(label)
            else:
                own[frame.below] -= frame.samples
                stacks.append(f"{stacks[frame.below]};{label}")
        return (f"{stack} {samples}" for stack, samples in zip(stacks, own, strict=True) if samples > 0)
