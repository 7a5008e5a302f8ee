"""``flownet top``: shows a job in another process, live in the terminal."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ConfigError, NoSuchJobError, UiTimeoutError, UiUnreachableError
from ..internal.extras import need
from ..internal.waiting import TerminationExit, exit_code, sigterm_raised
from .job_snapshot import JobSnapshot, look_at
from .page import add_job, add_page, newest_job, open_page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..client import Client

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``top`` to the command line."""
    parser = commands.add_parser(
        "top",
        help="look at a running job: who is busy, who is held up, and by whom",
        description="Show a job of a process that was started with --ui or execute(ui=True), live in the terminal. q "
        "or Ctrl-C leaves; the job goes on.",
    )
    add_page(parser)
    add_job(parser, "the newest that runs")
    parser.add_argument("--subtasks", action="store_true", help="a line for each subtask")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=0.5, help="from one look to the next (default: 0.5)"
    )
    parser.add_argument(
        "--once", action="store_true", help="show it once and end, as where standard output is no terminal"
    )
    parser.set_defaults(command=_top)


def _top(options: argparse.Namespace) -> int:
    if not (math.isfinite(options.interval) and 0.05 <= options.interval <= 3600):
        raise ConfigError(
            f"--interval {options.interval:g}: must lie between 0.05 and 3600 seconds",
            setting="interval",
            value=options.interval,
        )
    need("rich", "flownet top", "top")
    from rich.console import Console

    if hasattr(sys.stdout, "reconfigure"):
        # A name may have letters that the terminal's encoding has not.
        sys.stdout.reconfigure(errors="replace")
    # While it waits for an answer it takes no key.
    client = open_page(options.url, options.token, timeout=3.0)
    job = newest_job(client, options.job).id
    # Where nobody looks there is no width to keep to.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    look = look_at(client, job)
    code = 0
    if console.is_terminal and not options.once and not look.has_ended:
        look, code = _watch(console, client, look, options)
    console.print(_drawn(look, options, console, fits=False))
    return code


def _watch(console: Console, client: Client, look: JobSnapshot, options: argparse.Namespace) -> tuple[JobSnapshot, int]:
    """Show the job until it has ended, its process has gone, or the user leaves: what was seen last, and the exit code.

    The screen is then as it was before.
    """
    from rich.live import Live

    from .keys import Keys

    try:
        with sigterm_raised(), Live(console=console, screen=True, auto_refresh=False) as live, Keys() as keys:
            while True:
                live.update(_drawn(look, options, console, fits=True), refresh=True)
                if "q" in keys.wait(options.interval):
                    return look, 0
                try:
                    look = look_at(client, look.job)
                except UiTimeoutError as error:
                    look = replace(look, remark=str(error))
                except (UiUnreachableError, NoSuchJobError):
                    gone = f"the process behind {client.url} has gone; this is what was seen last"
                    return replace(look, remark=gone), 0
                if look.has_ended:
                    return look, 0
    except (KeyboardInterrupt, TerminationExit) as signalled:
        # Not said as by other commands: nothing was cancelled.
        return look, exit_code(signalled)


def _drawn(look: JobSnapshot, options: argparse.Namespace, console: Console, *, fits: bool) -> RenderableType:
    from .top_view import drawn

    return drawn(look, console, subtasks=options.subtasks, height=console.height if fits else None)
