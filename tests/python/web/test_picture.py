"""The job of the picture in the README runs, and its page names the bottleneck."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from flownet.observation import Ui

from .test_page import sentence, until

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"


def test_the_page_names_the_slow_operator(page: Page, ui: Ui, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PICTURES))
    import draw_ui  # type: ignore[import-not-found]

    with draw_ui.describe().execute_async(ui=ui) as job:
        page.goto(job.ui_url or "")
        until(page, lambda: "score" in sentence(page))
        job.cancel()
