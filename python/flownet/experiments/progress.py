"""Shows on a terminal how an experiment goes; elsewhere it adds a line now and then."""

from __future__ import annotations

from typing import TextIO

from ..internal.terminal import Lines
from ..internal.units import format_seconds, format_value
from .run_counter import RunCounter


class Progress:
    """Prints a `RunCounter` as it changes.

    Parameters
    ----------
    stream
        Where to write; in place if it is a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._lines = Lines(stream)
        self._last_line_at = float("-inf")
        self._last_done = -1

    def show(self, tally: RunCounter) -> None:
        """Show ``tally``."""
        if self._lines.in_place:
            self._lines.rewrite(progress_lines(tally))
        elif tally.done != self._last_done and (
            tally.seconds - self._last_line_at >= _SECONDS_BETWEEN_LINES or tally.done == tally.total
        ):
            self._last_line_at, self._last_done = tally.seconds, tally.done
            self._lines.add("; ".join(line.strip() for line in progress_lines(tally)))

    def clear(self) -> None:
        """Take away what was shown in place."""
        self._lines.clear()


def progress_lines(tally: RunCounter) -> list[str]:
    """Lines that show ``tally``: the counts, what runs, the best so far, the last failure."""
    left = "" if tally.seconds_left is None else f", {format_seconds(tally.seconds_left)} left"
    lines = [
        f"{tally.experiment.name}  {tally.done} of {tally.total} done, {len(tally.running)} running, "
        f"{tally.failed} failed  {format_seconds(tally.seconds)}{left}"
    ]
    if tally.running:
        lines.append(f"  running: {' | '.join(tally.running)}")
    if tally.best is not None:
        cell, value = tally.best
        name, figure = tally.experiment.headline
        lines.append(f"  best {name}: {format_value(value, figure.unit)} with {cell}")
    if tally.last_error is not None:
        lines.append(f"  last failure: {tally.last_error.splitlines()[0]}")
    return lines


_SECONDS_BETWEEN_LINES = 5.0
