"""``flownet experiment``: lists, shows, runs and reports experiments."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..internal.parameter import assigned

if TYPE_CHECKING:
    from ..experiments import Experiment

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``experiment`` to the command line."""
    verbs = commands.add_parser(
        "experiment", help="run a grid of measurements, here or spread over Spark, and report it"
    ).add_subparsers(metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="list the experiments and workloads that come with flownet")
    listing.set_defaults(command=_list)
    show = verbs.add_parser(
        "show", help="check an experiment and say what it would run", description="Check an experiment; run nothing."
    )
    show.set_defaults(command=_show)
    run = verbs.add_parser(
        "run",
        help="run an experiment",
        description="Run every cell of a grid several times, in random order, and leave one row a run as Parquet.",
    )
    run.set_defaults(command=_run)
    for parser in (show, run):
        parser.add_argument("experiment", metavar="EXPERIMENT", help="a name of the list, or a .toml or .py file")
        parser.add_argument("--repetitions", metavar="N", type=int, help="runs of each cell")
        parser.add_argument("--seed", metavar="N", type=int, help="gives the order of the runs")
        parser.add_argument(
            "--set",
            metavar="NAME=VALUE",
            action="append",
            default=[],
            dest="settings",
            help="set a parameter in all cells, such as records=1000000",
        )
    run.add_argument("--out", metavar="DIR", default="experiments", help="folder of the results (default: %(default)s)")
    run.add_argument(
        "--on",
        choices=["local", "spread", "across"],
        default="local",
        help="local: one run after the other in this process; spread: each run a Spark task, as many at once as slots "
        "and cores allow; across: one run at a time, its workers on different executors (default: %(default)s)",
    )
    run.add_argument(
        "--master", metavar="URL", help="master of Spark, such as local[4] (default: Spark's own settings)"
    )
    run.add_argument("--resume", action="store_true", help="run what is missing in DIR")
    report = verbs.add_parser(
        "report",
        help="write a page about results",
        description="Write NAME.html into DIR for each experiment that has results there.",
    )
    report.add_argument("folder", metavar="DIR", help="folder of the results")
    report.add_argument("--experiment", metavar="NAME", help="only this one")
    report.set_defaults(command=_report)


def _list(options: argparse.Namespace) -> int:
    from ..experiments import find_experiment, ready_made, workloads

    print("experiments:")
    for name in ready_made():
        experiment = find_experiment(name)
        print(f"  {name:16} {experiment.heading} ({_size(experiment)})")
    print("workloads:")
    for workload in workloads.each():
        print(f"  {workload.name:16} {workload.doc}")
        for name, parameter in workload.parameters.items():
            default = "" if parameter.default is None else f" (default: {parameter.default})"
            print(f"    {name:20} {parameter.doc}: {parameter.allowed}{default}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from ..experiments import ready_made

    experiment = _found(options)
    if path := ready_made().get(options.experiment):
        print(f"{path}:")
    print(f"{experiment.name}: {experiment.heading}")
    print(f"workload {experiment.work.name}: {experiment.work.doc}")
    print(f"figures: {', '.join(experiment.shown)}")
    print(f"{_size(experiment)}:")
    for cell in experiment.all_cells:
        print(f"  {experiment.written(cell.parameters)}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from ..experiments import run
    from ..experiments.progress import Progress
    from ..experiments.session import spark_session
    from ..internal.units import format_seconds

    experiment = _found(options)
    if options.on == "local" and options.master is not None:
        raise ConfigError("--master is for --on spread and --on across", setting="master", value=options.master)
    progress = Progress(sys.stderr)
    purpose = f"--on {options.on}"
    with nullcontext() if options.on == "local" else spark_session(purpose, options.master) as spark:
        try:
            outcome = run(
                experiment,
                options.out,
                on=options.on,
                spark=spark,
                resume=options.resume,
                watch=progress.show,
            )
        except KeyboardInterrupt:
            progress.clear()
            print(f"flownet: what has ended is in {options.out}; --resume runs the rest", file=sys.stderr)
            raise
    progress.clear()
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    print(
        f"{experiment.name}: {outcome.ran} runs in {format_seconds(outcome.seconds)} "
        f"({format_seconds(outcome.seconds_in_runs)} in runs); {outcome.done} in {options.out}{failed}"
    )
    print(f"next: flownet experiment report {options.out}")
    return 1 if outcome.done and outcome.failed == outcome.done else 0


def _report(options: argparse.Namespace) -> int:
    from ..experiments import report

    for page in report(options.folder, options.experiment):
        print(page)
    return 0


def _found(options: argparse.Namespace) -> Experiment:
    from ..experiments import find_experiment

    experiment = find_experiment(options.experiment)
    changes: dict[str, Any] = {
        name: getattr(options, name) for name in ("repetitions", "seed") if getattr(options, name) is not None
    }
    if options.settings:
        given = dict(assigned(written, "records=1000000") for written in options.settings)
        if in_cells := [name for name in given if name in experiment.grid or any(name in c for c in experiment.cells)]:
            name = in_cells[0]
            raise ConfigError(
                f"--set {name}={given[name]}: the cells of experiment {experiment.name!r} give {name} themselves: "
                f"copy its file and change them there",
                setting="--set",
                value=name,
            )
        changes["parameters"] = {**experiment.parameters, **given}
    return dataclasses.replace(experiment, **changes) if changes else experiment


def _size(experiment: Experiment) -> str:
    cells, repetitions = len(experiment.all_cells), experiment.repetitions
    return f"{cells} cells, {repetitions} times each: {cells * repetitions} runs"
