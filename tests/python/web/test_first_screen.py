"""The first screen of the page: how a job ended, and what an operator has to know of it at once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import flownet as fn
from flownet import errors

from .test_page import sentence, until


def alerts(page: Page) -> list[str]:
    return page.locator("#alerts li").all_text_contents()


def test_late_records_restarts_and_checkpoints_are_on_the_first_screen(
    page: Page, ui: fn.observation.Ui, tmp_path: Path
) -> None:
    go_on = threading.Event()
    strategy: fn.WatermarkStrategy[int] = fn.WatermarkStrategy.for_monotonous_timestamps()

    def work(number: int, failed: Path = tmp_path / "failed") -> int:
        if number == 50 and not failed.exists():
            failed.touch()
            raise ValueError("<i>no price</i>")
        if number == 100:
            go_on.wait()
        return number

    def numbers() -> itertools.chain[int]:
        # Those that come again are late.
        return itertools.chain(range(100), range(100), itertools.count(100))

    env = fn.Environment(restart="fixed:3:10ms", status_interval="50ms", name="watched", object_reuse=True)
    env.enable_checkpointing(
        "100ms", storage=tmp_path / "kept", timeout="2s", tolerable_failures=1000, allow_non_replayable=True
    )
    timed = env.from_iterable(lambda subtask, subtasks: numbers(), rate_limit=300).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda number: number * 1000)
    )
    worked = timed.rebalance().map(work).name("<b>price</b>")
    worked.key_by(lambda number: 0).window(fn.Tumbling("10s")).count().name("windows").collect()
    with env.execute_async(ui=ui) as job:
        page.goto(job.ui_url or "")
        until(page, lambda: any(line.startswith("Restarts: once, the last at ") for line in alerts(page)))
        until(page, lambda: any("is under way for" in line for line in alerts(page)))
        under_way = next(line for line in alerts(page) if "is under way for" in line)
        assert "waits for " in under_way
        assert "1 subtask of <b>price</b> (0)" in under_way, under_way
        until(page, lambda: any(line.startswith("Failed checkpoints: ") for line in alerts(page)))
        failed = next(line for line in alerts(page) if line.startswith("Failed checkpoints: "))
        assert "tasks have not answered within 2s" in failed
        assert page.locator("#alerts").bounding_box()["y"] < 400  # type: ignore[index]
        go_on.set()
        until(page, lambda: any(line.startswith("Late records: windows") for line in alerts(page)))
        assert "<i>no price</i>" in next(line for line in alerts(page) if line.startswith("Restarts"))
        job.cancel()
        with pytest.raises(errors.CancelledError):
            job.wait()


def test_between_two_attempts_it_says_what_failed_and_rates_are_zero(page: Page, ui: fn.observation.Ui) -> None:
    def work(number: int) -> int:
        if number == 2000:
            raise ValueError("no price for 2000")
        return number

    env = fn.Environment(restart="fixed:1:1h", status_interval="50ms")
    env.from_iterable(itertools.count(), rate_limit=2000).name("orders").rebalance().map(work).name("price").collect()
    with env.execute_async(ui=ui) as job:
        page.goto(job.ui_url or "")
        until(page, lambda: page.locator("#state").text_content() == "restarting")
        until(page, lambda: sentence(page).startswith("Restarting after: operator 'price'"))
        status = job.status()
        assert [(task.records_per_second, task.busy) for task in status.tasks] == [(0, 0)] * len(status.tasks)
        assert (status.state, status.bottleneck, status.records > 0) == ("restarting", None, True)
        job.cancel()
        with pytest.raises(errors.OperatorError, match="no price for 2000"):
            job.wait()


def test_flownet_run_shows_the_end_of_its_job_to_who_watches(browser: Browser, tmp_path: Path, free_port: int) -> None:
    os.mkfifo(tmp_path / "go")
    (tmp_path / "watched.py").write_text(
        "import flownet as fn\nenv = fn.Environment()\nenv.from_iterable(iter(open('go'))).write_text('out')\n"
    )
    command = [sys.executable, "-m", "flownet", "run", "--ui", f"{free_port}", "watched:env"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    context = browser.new_context()
    page = context.new_page()
    with (tmp_path / "go").open("w"):
        while "is shown at" not in process.stderr.readline():
            assert process.poll() is None
        page.goto(f"http://127.0.0.1:{free_port}/")
        until(page, lambda: page.locator("#state").text_content() == "running")
    process.communicate()
    until(page, lambda: page.locator("#state").text_content() == "ended")
    until(page, lambda: (page.locator("#jobs small").text_content() or "").endswith(", ended"))
    until(page, lambda: "The process has ended." in (page.locator("#connection").text_content() or ""))
    context.close()


def test_a_process_that_is_killed_leaves_a_job_that_was_last_seen_running(
    browser: Browser, tmp_path: Path, free_port: int
) -> None:
    (tmp_path / "killed.py").write_text(
        "import flownet as fn, itertools\nenv = fn.Environment()\n"
        "env.from_iterable(itertools.count(), rate_limit=10).filter(lambda n: False).print()\n"
    )
    command = [sys.executable, "-m", "flownet", "run", "--ui", f"{free_port}", "killed:env"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "is shown at" not in process.stderr.readline():
        assert process.poll() is None
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{free_port}/")
    until(page, lambda: page.locator("#state").text_content() == "running")
    process.kill()
    process.communicate()
    until(page, lambda: page.locator("#state").text_content() == "last seen running")
    context.close()
