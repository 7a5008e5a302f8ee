"""``flownet logs``: shows the log of a job in another process."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from datetime import datetime
from typing import TYPE_CHECKING

from .page import add_job, add_page, newest_job, open_page

if TYPE_CHECKING:
    from ..observation.log import LogEntry

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``logs`` to the command line."""
    logs = commands.add_parser(
        "logs",
        help="show what functions of a job print and log",
        description="Show what was said in a job, the oldest first: what its functions print and log in workers, and "
        "what flownet has to say of it.",
    )
    logs.add_argument("--follow", "-f", action="store_true", help="go on until the job has ended")
    logs.add_argument(
        "--level",
        choices=["debug", "info", "warning", "error", "critical"],
        help="only records that are at least as bad (default: all, and what was printed)",
    )
    logs.add_argument("--json", action="store_true", help="write them as JSON, one a line")
    add_page(logs)
    add_job(logs, "the newest that runs, or else the newest")
    logs.set_defaults(command=_logs)


def _logs(options: argparse.Namespace) -> int:
    client = open_page(options.url, options.token)
    job = newest_job(client, options.job)
    names = [(task.name, task.parallelism) for task in client.status(job.id).tasks]
    after = 0
    while True:
        # Before the entries: what is said until the end is among them.
        has_ended = not options.follow or client.status(job.id).state == "ended"
        while True:
            entries, last = client.log(job.id, after=after, level=options.level)
            for entry in entries:
                text = json.dumps(dataclasses.asdict(entry)) if options.json else _line(entry, names)
                print(text, flush=options.follow)
            if last == after:
                break
            after = last
        if has_ended:
            return 0
        time.sleep(_SECONDS_BETWEEN)


def _line(entry: LogEntry, names: list[tuple[str, int]]) -> str:
    said_at = datetime.fromtimestamp(entry.at_ms / 1000).strftime("%H:%M:%S.%f")[:-3]
    kind = (entry.level or entry.kind).upper()
    where = f" {entry.logger}:" if entry.logger else ""
    return f"{said_at} {kind:8} [{entry.speaker(names)}]{where} {entry.text}"


_SECONDS_BETWEEN = 0.5
