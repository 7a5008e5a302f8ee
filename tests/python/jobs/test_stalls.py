"""A job in which nothing moves although records wait says so, and goes on waiting.

Each of these waits for the ten seconds after which users are told; the decision itself is tested on virtual time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flownet as fn
from flownet import errors


class Shut:
    """Takes nothing until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.taken = 0

    def extend(self, records: list[int]) -> None:
        self.opened.wait()
        self.taken += len(records)


def wait_for_warning(job: fn.Job) -> errors.StalledWarning:
    """The first one, which is the only one of its wait."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        while not told:
            with contextlib.suppress(TimeoutError):
                job.wait(0.2)
    (warning,) = told
    # Shown with the line that waits, and not with one of flownet's.
    assert warning.filename == __file__
    assert isinstance(warning.message, errors.StalledWarning)
    return warning.message


def wait_until_it_moves(job: fn.Job) -> None:
    while job.status().stalled is not None:
        with contextlib.suppress(TimeoutError):
            job.wait(0.05)


def test_a_function_that_does_not_return_is_named_with_those_who_wait() -> None:
    env = fn.Environment(parallelism=2, segment_size="1KiB", name="shut")
    into = Shut()
    env.from_iterable(range(50_000)).rebalance().map(lambda n: n + 1).collect(into=into)
    with env.execute_async() as job:
        warning = wait_for_warning(job)
        assert (warning.job, warning.cause) == ("shut", "function")
        assert warning.seconds >= 10 > warning.since
        assert warning.summary == "collect (subtask 1 of 1) is at work and does not return"
        assert warning.chain[-1].startswith(f"{warning.summary}, for 1")
        assert any("map (subtask" in line and "waits for room" in line for line in warning.chain)
        headline = "nothing has moved for 10 s although records wait: " + warning.summary
        assert str(warning).startswith(f'job "shut": {headline}; since ')
        for stalled in (job.status().stalled, job.sample().stalled):
            assert stalled is not None
            assert stalled.endswith(f" although records wait: {warning.summary}")
        into.opened.set()
        # A second time would be an error here.
        result = job.wait()
    assert into.taken == 50_000
    assert result.stalled is not None
    assert result.stalled.startswith("once, for 1")
    assert f"\nstalled: {result.stalled}" in str(result)


def test_a_worker_that_stands_still_is_named_until_it_goes_on(child_pids: Callable[[], set[int]]) -> None:
    before = child_pids()
    env = fn.Environment(parallelism=2, segment_size="1KiB", heartbeat_timeout="1h")
    env.from_iterable(itertools.count()).rebalance().map(lambda n: n + 1).rebalance().map(lambda n: n - 1).collect(
        into=Shutter()
    )
    with env.execute_async(workers=2) as job:
        while job.status().tasks[-1].records_in == 0:
            with contextlib.suppress(TimeoutError):
                job.wait(0.05)
        victim = max(child_pids() - before)
        with stopped(victim):
            warning = wait_for_warning(job)
            assert warning.cause == "worker"
            assert " does not answer, where map" in warning.summary
            assert warning.chain[-1].startswith(f"{warning.summary}, for 1")
            assert warning.waiting >= 1
        wait_until_it_moves(job)
        with pytest.raises(TimeoutError):
            job.wait(0)


def test_the_command_line_says_it_and_goes_on(tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"
    (tmp_path / "waits.py").write_text(
        f"""
import os, time
import flownet as fn

def wait(n):
    while not os.path.exists({str(go_on)!r}):
        time.sleep(0.01)
    return n

env = fn.Environment(parallelism=1, segment_size="1KiB")
env.from_iterable(range(50_000)).rebalance().map(wait).collect()
"""
    )
    command = [sys.executable, "-m", "flownet", "run", "waits:env"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "StalledWarning" in line)
        assert said.startswith(
            'flownet.errors.StalledWarning: job "waits": nothing has moved for 10 s although records'
        )
        assert " wait: map (subtask 1 of 1) is at work and does not return; since " in said
        go_on.touch()
        rest = process.stderr.read()
    assert process.returncode == 0
    assert "\nstalled: once, for 1" in rest


class Shutter:
    """Takes everything and keeps nothing."""

    def extend(self, records: list[int]) -> None:
        pass


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
