"""The order of the runs."""

from __future__ import annotations

import dataclasses

from flownet.experiments import Experiment
from flownet.experiments.plan import missing, plan

EXPERIMENT = Experiment("order", "exchange", grid={"channels": list(range(1, 9))}, repetitions=4, seed=7)


def test_each_repetition_runs_every_cell_once_in_an_order_of_its_own() -> None:
    runs = plan(EXPERIMENT)
    assert [run.position for run in runs] == list(range(32))
    rounds = [[run.cell.index for run in runs if run.repetition == repetition] for repetition in range(4)]
    assert all(sorted(cells) == list(range(8)) for cells in rounds)
    assert len({tuple(cells) for cells in rounds}) == 4
    assert [run.repetition for run in runs] == sorted(run.repetition for run in runs)


def test_the_order_and_the_seeds_are_those_of_the_seed() -> None:
    assert plan(EXPERIMENT) == plan(EXPERIMENT)
    other = plan(dataclasses.replace(EXPERIMENT, seed=8))
    assert [run.cell.index for run in other] != [run.cell.index for run in plan(EXPERIMENT)]
    assert not {run.seed for run in other} & {run.seed for run in plan(EXPERIMENT)}


def test_more_repetitions_keep_the_order_of_those_before() -> None:
    assert plan(dataclasses.replace(EXPERIMENT, repetitions=9))[:32] == plan(EXPERIMENT)


def test_what_is_missing_keeps_its_order() -> None:
    runs = plan(EXPERIMENT)
    left = missing(runs, {run.key for run in runs[:5]} | {runs[9].key})
    assert left == [*runs[5:9], *runs[10:]]
