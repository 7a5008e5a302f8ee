"""The order of the runs of an experiment: random, alternating, and the same again for the same seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .description import Cell, Experiment


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one cell.

    Parameters
    ----------
    cell
        What is run.
    repetition
        From 0.
    position
        Its place in the order of all runs, from 0.
    seed
        For what the workload draws at random.
    """

    cell: Cell
    repetition: int
    position: int
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """What names it in the folder of results."""
        return self.cell.label, self.repetition


def plan(experiment: Experiment) -> Sequence[Run]:
    """Order all runs of an experiment.

    Each repetition runs every cell once, in an order of its own, so that cells are compared under the same weather.
    More repetitions do not change the order of those before them.
    """
    runs = list[Run]()
    for repetition in range(experiment.repetitions):
        cells = list(experiment.all_cells)
        random.Random(f"{experiment.seed}/{repetition}").shuffle(cells)
        for cell in cells:
            runs.append(Run(cell, repetition, len(runs), _seed(experiment.seed, cell.label, repetition)))
    return runs


def missing(runs: Sequence[Run], done: Collection[tuple[str, int]]) -> Sequence[Run]:
    """Those that are not done, in the same order."""
    return [run for run in runs if run.key not in done]


def _seed(seed: int, label: str, repetition: int) -> int:
    digest = hashlib.sha256(f"{seed}/{label}/{repetition}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
