"""Options of commands that query the web UI of a running process: its address, token and job."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ..errors import ConfigError, NoSuchJobError
from ..observation.ui import DEFAULT_PORT, TOKEN_VARIABLE

if TYPE_CHECKING:
    from ..client import Client, JobSummary

DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add the page and its token to a command."""
    parser.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help=f"page of the process that runs the job (default: FLOWNET_UI, or {DEFAULT_URL})",
    )
    add_token(parser)


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add the token of the page to a command."""
    parser.add_argument("--token", metavar="TOKEN", help="what the page wants to be shown (FLOWNET_UI_TOKEN)")


def add_job(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the choice of a job to a command."""
    parser.add_argument("--job", metavar="ID", help=f"the job, as flownet jobs lists it (default: {default})")


def open_page(url: str | None, token: str | None, *, timeout: float = 10.0) -> Client:
    """Find the page and see that a flownet answers there; ``timeout`` in seconds is for each answer."""
    # Only these commands pay for HTTP.
    from ..client import Client

    url = url or os.environ.get("FLOWNET_UI") or DEFAULT_URL
    if url.isdecimal():
        raise ConfigError(
            f"{url!r} is no address of a page, such as {DEFAULT_URL}: --job {url} if a job is meant",
            setting="url",
            value=url,
        )
    client = Client(url, token or os.environ.get(TOKEN_VARIABLE), timeout=timeout)
    client.check()
    return client


def newest_job(client: Client, job: str | None) -> JobSummary:
    """Find a job by its id; without one the newest that runs, or else the newest of all."""
    jobs = client.jobs()
    if job is not None:
        return _by_id(client, jobs, job)
    if not jobs:
        raise NoSuchJobError(f"{client.url} has no job yet: flownet jobs lists them when there are", url=client.url)
    return next((one for one in jobs if not one.has_ended), jobs[0])


def only_job(client: Client, job: str | None) -> JobSummary:
    """Find a job by its id; without one the only one that runs."""
    jobs = client.jobs()
    if job is not None:
        return _by_id(client, jobs, job)
    running = [one for one in jobs if not one.has_ended]
    if not running:
        raise NoSuchJobError(f"{client.url} has no job that runs", url=client.url)
    if len(running) > 1:
        listed = ", ".join(f"{one.id} ({one.name})" for one in running)
        raise NoSuchJobError(f"{len(running)} jobs run at {client.url}, say which by --job: {listed}", url=client.url)
    return running[0]


def _by_id(client: Client, jobs: tuple[JobSummary, ...], job: str) -> JobSummary:
    for one in jobs:
        if one.id == job:
            return one
    listed = ", ".join(f"{one.id} ({one.name})" for one in jobs) or "none"
    raise NoSuchJobError(f"{client.url} has no job {job!r}; it has: {listed}", url=client.url, job=job)
