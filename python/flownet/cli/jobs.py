"""``flownet jobs``, ``flownet cancel`` and ``flownet stop``, for jobs in another process."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from typing import TYPE_CHECKING

from ..internal.tables import text_table
from ..internal.units import format_seconds, format_value
from .page import add_job, add_page, only_job, open_page

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``jobs``, ``cancel`` and ``stop`` to the command line."""
    jobs = commands.add_parser(
        "jobs",
        help="list the jobs of a process that runs",
        description="List the jobs of a process that was started with --ui or execute(ui=True), the newest first.",
    )
    jobs.add_argument("--json", action="store_true", help="write them as JSON")
    jobs.set_defaults(command=_list)
    cancel = commands.add_parser(
        "cancel",
        help="end a job of another process as it is",
        description="End a job as it is: sinks are closed and not flushed. The page has to allow it: --ui-actions.",
    )
    cancel.set_defaults(command=_cancel)
    stop = commands.add_parser(
        "stop",
        help="end a job of another process well",
        description="End a job well: its sources end, what is in flight is worked off, sinks complete. A job with "
        "checkpoints resumes where it stopped; of one without, open windows and pending timers fire. Returns at once. "
        "The page has to allow it: --ui-actions.",
    )
    drain = stop.add_mutually_exclusive_group()
    drain.add_argument(
        "--drain",
        action="store_true",
        default=None,
        dest="drain",
        help="fire open windows and pending timers of a job with checkpoints, too: it has nothing left to do then",
    )
    drain.add_argument(
        "--no-drain",
        action="store_false",
        dest="drain",
        help="fire none of a job without checkpoints, either: what they would have given is lost",
    )
    stop.add_argument("--savepoint", metavar="PATH", help="where to copy the state that it ends with")
    stop.set_defaults(command=_stop)
    for parser in (jobs, cancel, stop):
        add_page(parser)
    for parser in (cancel, stop):
        add_job(parser, "the only one that runs")


def place(path: str) -> str:
    """Write a path as the process of the job understands it, which may work in another folder."""
    return path if "://" in path else os.path.abspath(path)


def _list(options: argparse.Namespace) -> int:
    jobs = open_page(options.url, options.token).jobs()
    if options.json:
        print(json.dumps([dataclasses.asdict(job) for job in jobs]))
        return 0
    rows = [["id", "name", "state", "time", "rate", "bottleneck"]]
    for job in jobs:
        rate = format_value(job.records_per_second, "/s")
        state = job.outcome or job.state
        rows.append([job.id, job.name, state, format_seconds(job.seconds), rate, job.bottleneck or ""])
    print("\n".join(text_table(rows)) if jobs else "no jobs yet")
    return 0


def _cancel(options: argparse.Namespace) -> int:
    client = open_page(options.url, options.token)
    job = only_job(client, options.job)
    client.cancel(job.id)
    print(f"job {job.id}, {job.name}: told to cancel")
    return 0


def _stop(options: argparse.Namespace) -> int:
    client = open_page(options.url, options.token)
    job = only_job(client, options.job)
    savepoint = None if options.savepoint is None else place(options.savepoint)
    client.stop(job.id, drain=options.drain, savepoint=savepoint)
    print(f"job {job.id}, {job.name}: told to stop")
    return 0
