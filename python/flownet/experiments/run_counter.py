"""What is known of an experiment while it runs: done, running, failed, time left, current best."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .description import Experiment
from .execute import Row


@dataclass
class RunCounter:
    """Counts runs as they end.

    Parameters
    ----------
    experiment
        What runs.
    total
        Runs that there will be, those done before included.
    """

    experiment: Experiment
    total: int
    done: int = 0
    failed: int = 0
    running: Sequence[str] = ()
    last_error: str | None = None
    seconds_in_runs: float = 0.0
    _earlier: int = 0
    _began: float = field(default_factory=time.monotonic)
    _values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, rows: Iterable[Row]) -> None:
        """Count rows that are new."""
        headline, _ = self.experiment.headline
        for row in rows:
            self.done += 1
            self.seconds_in_runs += row["run_seconds"]
            if row["status"] == "failed":
                self.failed += 1
                self.last_error = f"{row['cell']}: {row['error']}"
            elif (value := dict(row["figures"]).get(headline)) is not None:
                self._values[row["cell"]].append(value)

    def start(self) -> None:
        """Begin to measure time: what was counted so far was done earlier."""
        self._earlier = self.done
        self.seconds_in_runs = 0.0
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since `start`."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Time that the rest will take if it goes on like this; None before the first run has ended."""
        ended = self.done - self._earlier
        return self.seconds / ended * (self.total - self.done) if ended else None

    @property
    def best(self) -> tuple[str, float] | None:
        """The cell whose median of the headline figure is the best so far, and that median."""
        _, figure = self.experiment.headline
        medians = {cell: statistics.median(values) for cell, values in self._values.items()}
        if not medians:
            return None
        return (max if figure.higher_is_better else min)(medians.items(), key=lambda item: item[1])
