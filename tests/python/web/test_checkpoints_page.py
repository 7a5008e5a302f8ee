"""Checkpoints in a browser, each with what it is made of; and the same for programs."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

import flownet as fn
from flownet.client import Client

from .test_page import told, until
from .test_server import until as until_true


def counting(tmp_path: Path) -> fn.Environment:
    """Describe a job whose second task keeps state by key, in two subtasks."""
    env = fn.Environment(parallelism=2, status_interval="50ms")
    env.enable_checkpointing("100ms", storage=tmp_path / "checkpoints")
    numbers = env.from_collection(range(10_000_000), rate_limit=20_000).uid("numbers").set_parallelism(1)
    counts = numbers.key_by(lambda number: number % 100).count().name("count").uid("count")
    counts.filter(lambda _: False).uid("none").collect()
    return env


def test_a_checkpoint_says_what_each_task_has_of_it(ui: fn.observation.Ui, tmp_path: Path, workers: int) -> None:
    with counting(tmp_path).execute_async(workers, ui=ui) as job:
        until_true(lambda: job.status().checkpoints_made >= 12)
        status = job.status()
        seen = Client(ui.url).status("1").checkpoints
    first, last = status.checkpoints[0], status.checkpoints[-1]
    assert first.parts == (), "of the last ten"
    assert [(part.task, part.subtasks) for part in last.parts] == [(0, 1), (1, 2), (2, 1)]
    assert sum(part.bytes for part in last.parts) == last.bytes
    assert sum(part.written_bytes for part in last.parts) >= last.written_bytes > 0
    assert max(part.aligned_seconds for part in last.parts) == last.aligned_seconds
    assert max(part.stood_still_seconds for part in last.parts) == last.stood_still_seconds
    assert all(0 <= part.seconds for part in last.parts)
    assert last.parts[1].bytes > last.parts[0].bytes, "a count by key"
    assert last in seen or seen[-1].number > last.number


def test_a_checkpoint_opens_into_its_tasks_and_stays_open(page: Page, ui: fn.observation.Ui, tmp_path: Path) -> None:
    with counting(tmp_path).execute_async(ui=ui) as job:
        until(page, lambda: job.status().checkpoints_made >= 3)
        page.goto(job.ui_url or "")
        newest = page.locator("#checkpoints .table").first.locator("tbody button").first
        newest.wait_for()
        newest.focus()
        page.keyboard.press("Enter")
        title = page.locator("#checkpoint-title")
        until(page, title.is_visible)
        focused = page.evaluate_handle("document.activeElement")
        number = int((title.text_content() or "").removeprefix("Checkpoint "))
        parts = page.locator("#checkpoints .table").nth(1).locator("tbody tr:not(.space)")
        names = [task["name"] for task in told(ui, "jobs/1")["tasks"]]
        assert [row.locator("td").first.text_content() for row in parts.all()] == names
        until(page, lambda: told(ui, "jobs/1")["checkpoints"][-1]["number"] > number + 10)
        assert title.text_content() == f"Checkpoint {number}"
        assert parts.count() == len(names)
        opened = page.get_by_role("button", name=f"checkpoint {number}", exact=True)
        assert opened.get_attribute("aria-expanded") == "true"
        assert focused.evaluate("button => button === document.activeElement")
        assert focused.evaluate("button => button.textContent") == str(number), "rows came in front of its row"
        page.keyboard.press("Enter")
        until(page, lambda: not title.is_visible())
