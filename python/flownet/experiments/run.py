"""Runs an experiment: what is missing of it, where it was told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import ConfigError
from . import runners
from .description import Experiment
from .execute import Row, Session
from .plan import missing, plan
from .run_counter import RunCounter
from .store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["local", "spread", "across"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call of `run` ended.

    Parameters
    ----------
    done
        Runs in the folder, those of earlier calls included.
    failed
        Those of them that failed.
    ran
        Runs of this call.
    seconds
        Time that the call took.
    seconds_in_runs
        Time of that inside of runs, added up: more than ``seconds`` where several ran at once.
    """

    done: int
    failed: int
    ran: int
    seconds: float
    seconds_in_runs: float


def run(
    experiment: Experiment,
    folder: str | Path,
    *,
    on: Mode = "local",
    spark: SparkSession | None = None,
    resume: bool = False,
    watch: Callable[[RunCounter], None] = lambda tally: None,
) -> Outcome:
    """Run an experiment and leave one row a run in a folder.

    Parameters
    ----------
    experiment
        What to run.
    folder
        For the results of any number of experiments. On a cluster, one that driver and executors share.
    on
        ``local``: one run after the other on this host, each in a process of its own. ``spread``: each run a Spark
        task, and in it a process, of its own, as many at once as slots and cores allow. ``across``: one run at a time,
        in this process, its workers on different executors of Spark.
    spark
        The session, for ``spread`` and ``across``.
    resume
        Run what is missing in the folder. Runs that failed are there, as rows with their error.
    watch
        Called when something has changed, and about twice a second with ``spread``.

    Raises
    ------
    ConfigError
        The folder has runs of this experiment and ``resume`` is not set; or they are of another description; or the
        workload cannot be run that way.
    """
    _check_mode(experiment, on, spark)
    session = Session.of(experiment, on)
    store = Store(Path(folder), experiment.name)
    earlier = store.new_rows()
    store.check(session, earlier, resume)
    runs = plan(experiment)
    todo = missing(runs, {(row["cell"], row["repetition"]) for row in earlier})
    tally = RunCounter(experiment, len(earlier) + len(todo))
    tally.add(earlier)
    tally.start()

    def on_change(rows: Sequence[Row], running: Sequence[str]) -> None:
        tally.add(rows)
        tally.running = running
        watch(tally)

    try:
        if not todo:
            watch(tally)
        elif on == "local":
            runners.run_local(session, todo, store, on_change)
        elif spark is not None:
            (runners.run_spread if on == "spread" else runners.run_across)(spark, session, todo, store, on_change)
    finally:
        store.clear_running()
    return Outcome(tally.done, tally.failed, tally.done - len(earlier), tally.seconds, tally.seconds_in_runs)


def _check_mode(experiment: Experiment, on: Mode, spark: SparkSession | None) -> None:
    work = experiment.work
    if on not in ("local", "spread", "across"):
        raise ConfigError(f"on={on!r} must be 'local', 'spread' or 'across'", setting="on", value=on)
    if on == "across" and not work.goes_across:
        raise ConfigError(
            f"the workload {work.name!r} has its processes on one host: run it on 'local' or 'spread'",
            setting="on",
            value=on,
        )
    if on != "across" and (
        cell := next((cell for cell in experiment.all_cells if work.needs_spark(cell.parameters)), None)
    ):
        raise ConfigError(f"cell {cell.label} needs Spark itself: run it on 'across'", setting="on", value=on)
    if on != "local" and spark is None:
        raise ConfigError(f"on={on!r} needs a Spark session: pass spark", setting="on", value=on)
