"""What benches share whose jobs run by turns: when things happened in whatever process, and what came of all rounds."""

from __future__ import annotations

import statistics
import time
from pathlib import Path


def note(file: Path) -> None:
    """Add the time to a file; all processes of a machine have this clock."""
    with file.open("a") as notes:
        notes.write(f"{time.monotonic()}\n")


def last_noted(file: Path) -> float:
    """Give the last of the times, and begin anew."""
    times = map(float, file.read_text().split())
    file.unlink()
    return max(times)


def shown(values: list[float]) -> str:
    """Show the median, and from where to where they go."""
    return f"{statistics.median(values):7.2f} [{min(values):.2f}-{max(values):.2f}]"
