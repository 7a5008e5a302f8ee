"""A process that runs jobs and serves their page, for the commands that ask it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from flownet.client import Client
from flownet.observation import JobStatus

PROGRAM = """
import json, logging, os, sys, time
import flownet as fn

names, slow, actions, token = json.loads(sys.argv[1])


def work(n):
    if slow:
        time.sleep(0.002)
    if os.path.exists("fail"):
        logging.getLogger("work").warning("about to fail")
        raise ValueError("told to fail")
    return n


def start(name, page):
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", name=name, restart="none")
    env.enable_checkpointing("200ms", storage="storage/" + name[:9])
    numbers = env.from_collection(range(1_000_000), rate_limit=20_000).uid("numbers").set_parallelism(1)
    worked = numbers.rebalance().map(work).name("slow").uid("slow").disable_chaining()
    worked.key_by(lambda n: n % 7).count().uid("count").filter(lambda count: False).uid("filter").print()
    return env.execute_async(ui=page)


with fn.serve_ui(0, actions=actions, token=token) as page:
    jobs = [start(name, page) for name in names]
    print(page.url if actions and token is None else f"http://127.0.0.1:{page.port}", flush=True)
    sys.stdin.read()
for job in jobs:
    job.close()
"""
"""Ends when its standard input does."""


class Served:
    """A process with jobs and their page."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, url: str, token: str | None) -> None:
        self.process = process
        self.url = url
        self.client = Client(url, token)
        self._folder = folder

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment, for a command that is to have more of them."""
        return dict(os.environ)

    def storage(self, name: str) -> Path:
        """Where a job keeps its checkpoints."""
        return self._folder / "storage" / name

    def wait_for(self, is_so: Callable[[JobStatus], bool], job: str = "1") -> None:
        """Wait until a job is so."""
        while not is_so(self.client.status(job)):
            time.sleep(0.02)

    def fail(self) -> None:
        """Let the jobs' function raise."""
        (self._folder / "fail").touch()

    def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        self.process.wait()


class Serve(Protocol):
    """Starts jobs of these names in a process of their own, which serves their page."""

    def __call__(self, *names: str, slow: bool = False, actions: bool = False, token: str | None = None) -> Served: ...
