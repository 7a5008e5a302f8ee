"""Failures that a job went on from, in a browser: each with its traceback."""

from __future__ import annotations

import itertools
from pathlib import Path

from playwright.sync_api import Page

import flownet as fn

from .test_page import told, until


class FailsTwice(fn.MapFunction[int, int]):
    """Raises in the first two attempts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map(self, value: int) -> int:
        for attempt in ("first", "second"):
            flag = self.folder / attempt
            if not flag.exists():
                flag.touch()
                self.fail(attempt)
        return value

    def fail(self, attempt: str) -> None:
        raise ValueError(f"<b>{attempt}</b>")


def test_restarts_open_into_the_tracebacks_of_their_failures(page: Page, ui: fn.observation.Ui, tmp_path: Path) -> None:
    env = fn.Environment(restart="fixed:3:10ms", status_interval="50ms")
    env.from_iterable(lambda subtask, subtasks: itertools.count()).map(FailsTwice(tmp_path)).filter(
        lambda _: False
    ).collect()
    with env.execute_async(ui=ui) as job:
        until(page, lambda: job.status().restarted == 2 and job.status().state == "running")
        page.goto(job.ui_url or "")
        failures = page.locator("#failures details")
        until(page, lambda: failures.count() == 2)
        assert "ValueError: <b>second</b>" in (failures.first.locator("summary").text_content() or "")
        text = failures.first.locator("pre")
        assert not text.is_visible()
        failures.first.locator("summary").focus()
        page.keyboard.press("Enter")
        until(page, text.is_visible)
        expected = told(ui, "jobs/1")["restarts"][1]["traceback"]
        assert text.text_content() == expected
        assert expected.startswith("Traceback (most recent call last):")
        assert "in fail" in expected
        assert expected == job.status().restarts[1].traceback
        before = job.status().records
        until(page, lambda: job.status().records > before)
        assert text.is_visible(), "an update closes nothing"
