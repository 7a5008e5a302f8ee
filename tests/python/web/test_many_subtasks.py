"""A job of a thousand subtasks in a browser: an update changes cells in place, and makes no more than are in view."""

from __future__ import annotations

import itertools
from typing import Any

from playwright.sync_api import Page

import flownet as fn

from .test_page import told, until

WIDE = 499
WATCH = """() => {
  window.made = { elements: 0, elsewhere: 0, texts: 0, updates: 0 };
  const watched = document.querySelector("#subtasks");
  new MutationObserver((changes) => {
    for (const { target, addedNodes } of changes) {
      for (const node of addedNodes) {
        const isIn = watched.contains(target);
        if (node.nodeType === Node.TEXT_NODE) made.texts += isIn;
        else if (isIn) made.elements += 1 + node.querySelectorAll("*").length;
        else if (!target.closest("#lines, #log")) made.elsewhere += 1 + node.querySelectorAll("*").length;
      }
    }
  }).observe(document.body, { childList: true, subtree: true });
  window.first = watched.querySelector("tbody tr:not(.space)");
  const ask = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await ask(...asked);
    made.updates += String(asked[0]).includes("/subtasks?task=");
    return answer;
  };
}"""


def thousand() -> fn.Environment:
    """Describe a job of 1,000 subtasks, most of which have one channel each way."""
    env = fn.Environment(name="wide", network_memory="512MiB", status_interval="200ms")
    numbers = (
        env.from_iterable(itertools.count(), rate_limit=5_000).rebalance().map(lambda number: number).name("split")
    )
    split = numbers.set_parallelism(WIDE).disable_chaining()
    split.map(lambda number: number).name("wide").set_parallelism(WIDE).disable_chaining().filter(
        lambda _: False
    ).collect()
    return env


def test_an_update_of_a_thousand_subtasks_makes_no_elements(page: Page, ui: fn.observation.Ui) -> None:
    with thousand().execute_async(ui=ui) as job:
        until(page, lambda: job.status().state == "running")
        assert sum(task["parallelism"] for task in told(ui, "jobs/1")["tasks"]) >= 1000
        page.goto(f"{job.ui_url}/tasks/2")
        rows = page.locator("#subtasks tbody tr:not(.space)")
        until(page, lambda: rows.count() > 5)
        until(page, lambda: rows.first.locator("td").nth(6).text_content() != "0")
        page.evaluate(WATCH)
        before = rows.count()

        def made() -> dict[str, Any]:
            counts: dict[str, Any] = page.evaluate("made")
            return counts

        until(page, lambda: made()["updates"] >= 5)
        counts = made()
        assert before < 60, "those in view and a few beyond"
        assert rows.count() == before
        assert counts["elements"] == 0, "no row, cell or bar is made anew"
        assert counts["elsewhere"] == 0
        cells = before * page.locator("#subtasks th").count()
        assert counts["texts"] <= (counts["updates"] + 1) * cells
        assert counts["texts"] > 0, "numbers change"
        assert page.evaluate("document.querySelector('#subtasks tbody tr:not(.space)') === first")
        place = page.locator("#subtasks .table")
        place.evaluate("place => { place.scrollTop = place.scrollHeight / 2 }")
        until(page, lambda: int(rows.first.locator("td").first.text_content() or "0") > WIDE // 3)
        made_by_scrolling = made()["elements"]
        assert made_by_scrolling < 20 * page.locator("#subtasks tbody tr:not(.space)").first.locator("*").count(), (
            "in the middle there are rows beyond both ends of the view"
        )
