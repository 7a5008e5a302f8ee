"""``flownet flame``: profiles a subtask of a job in another process."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..internal.units import pressure
from .page import add_job, add_page, newest_job, open_page

if TYPE_CHECKING:
    from ..client import Client
    from ..observation.flame import Flame

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``flame`` to the command line."""
    parser = commands.add_parser(
        "flame",
        help="sample a subtask of a running job: which functions take its time, and what it waits for",
        description="Take samples of a subtask of a process that was started with --ui or execute(ui=True), and print "
        "each stack in a line with its samples, as flamegraph.pl, inferno and speedscope read them.",
    )
    add_page(parser)
    parser.add_argument("task", metavar="TASK", help="name of the task, or its position from 0, upstream first")
    parser.add_argument("subtask", metavar="SUBTASK", type=int, help="index among its subtasks, from 0")
    add_job(parser, "the newest that runs")
    parser.add_argument("--samples", metavar="N", type=int, default=100, help="how many, up to 1000 (default: 100)")
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=float,
        default=0.05,
        help="from one sample to the next, from 0.01 to 1; at most 60 s in all (default: 0.05)",
    )
    parser.add_argument("--json", action="store_true", help="write frames, samples and shares as JSON")
    parser.set_defaults(command=_flame)


def _flame(options: argparse.Namespace) -> int:
    if not math.isfinite(options.interval):
        raise ConfigError(
            f"--interval {options.interval:g}: must be seconds", setting="interval", value=options.interval
        )
    client = open_page(options.url, options.token)
    job = newest_job(client, options.job).id
    task = _position(client, job, options.task)
    every_ms = round(options.interval * 1000)
    seconds = options.samples * every_ms / 1000
    print(f"flownet: sampling subtask {options.subtask} of task {task} for {seconds:g} s", file=sys.stderr)
    flame = client.flame(job, task, options.subtask, samples=options.samples, every_ms=every_ms)
    if options.json:
        print(json.dumps(dataclasses.asdict(flame)))
    else:
        for stack in flame.folded():
            print(stack)
    print(f"flownet: {_summary(flame)}", file=sys.stderr)
    return 0


def _position(client: Client, job: str, task: str) -> int:
    if task.isascii() and task.isdigit():
        return int(task)
    names = [one.name for one in client.status(job).tasks]
    if names.count(task) == 1:
        return names.index(task)
    listed = ", ".join(f"{position} ({name})" for position, name in enumerate(names)) or "none yet"
    how_many = f"{names.count(task)} tasks are" if task in names else "no task is"
    raise ConfigError(f"{how_many} called {task!r}, say which by its position: {listed}", setting="TASK", value=task)


def _summary(flame: Flame) -> str:
    taken = f"{flame.taken} of {flame.asked} samples in {flame.seconds:.1f} s"
    if flame.back_pressured is None or flame.ledger_back_pressured is None:
        return taken
    word = pressure(flame.back_pressured)
    return (
        f"{taken}; back-pressure {word}, {flame.back_pressured:.0%} of the samples, "
        f"{flame.ledger_back_pressured:.0%} of the time by its ledger"
    )
