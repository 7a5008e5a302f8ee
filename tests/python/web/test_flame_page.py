"""The flame graph of a subtask in a browser: by mouse, by keyboard, and of a job of a thousand subtasks."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from playwright.sync_api import Page, Route

import flownet as fn

from .test_page import until


def burn(rounds: int) -> int:
    return sum(number * number for number in range(rounds))


def work(number: int) -> int:
    burn(20_000)
    return number


def frames(page: Page) -> list[str]:
    return [frame.get_attribute("aria-label") or "" for frame in page.locator("#flame .flame button").all()]


def focused(page: Page) -> str:
    said: str = page.evaluate("document.activeElement.closest('#flame .flame') ? document.activeElement.ariaLabel : ''")
    return said


def answer_with(page: Page, answer: dict[str, Any]) -> None:
    """Let whoever asks for samples be told this."""

    def tell(route: Route) -> None:
        route.fulfill(status=200, content_type="application/json", body=json.dumps(answer))

    page.route("**/flame/**", tell)


def test_a_subtask_is_sampled_and_what_it_does_is_drawn(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(status_interval="50ms")
    numbers = env.from_iterable(itertools.count()).rebalance()
    numbers.map(work).name("work").filter(lambda _: False).collect()
    with env.execute_async(ui=ui) as job:
        until(page, lambda: job.status().tasks[1].records_in > 0)
        page.goto(f"{job.ui_url}/tasks/1/subtasks/0")
        page.get_by_label("Samples", exact=True).fill("50")
        page.get_by_label("milliseconds apart").fill("20")
        page.get_by_role("button", name="Sample", exact=True).click()
        page.get_by_role("progressbar", name="samples taken").wait_for()
        until(page, lambda: any(frame.startswith("burn, ") for frame in frames(page)))
        assert not page.get_by_role("progressbar").is_visible()
        said = page.locator("#flame [role=status]").text_content() or ""
        assert " of 50 samples in " in said
        assert "Back-pressure OK: it waits for output in 0 % of the samples, in 0 % of the time by its ledger" in said
        (shown,) = (frame for frame in frames(page) if frame.startswith("burn, "))
        assert shown.startswith(f"burn, {__file__}:{burn.__code__.co_firstlineno + 1}: ")
        name = page.locator("#flame .flame button", has_text="burn web/test_flame_page.py:").first
        assert name.is_visible()
        page.goto(f"{job.ui_url}/tasks/0/subtasks/0")
        until(page, lambda: not frames(page))
        page.get_by_role("button", name="Sample", exact=True).click()
        page.get_by_role("button", name="Leave it").click()
        until(page, lambda: page.locator("#flame [role=status]").text_content() == "It was left.")
        page.goto(f"{job.ui_url}/tasks/0")
        until(page, lambda: not page.locator("#flame").is_visible())


NAME = "<img src=x onerror=alert(1)>"
GRAPH = {
    "asked": 1000,
    "taken": 1000,
    "every_seconds": 0.05,
    "seconds": 50.0,
    "has_ended": False,
    "back_pressured": 0.1,
    "ledger_back_pressured": 0.11,
    "frames": [
        {"below": None, "samples": 899, "function": "main", "file": f"/home/{NAME}/job.py", "line": 3, "state": None},
        {"below": None, "samples": 100, "function": None, "file": None, "line": None, "state": "soft_back_pressured"},
        {"below": 0, "samples": 600, "function": NAME, "file": "/home/job.py", "line": 7, "state": None},
        {"below": 0, "samples": 298, "function": "other", "file": "/home/job.py", "line": 9, "state": None},
        {"below": 0, "samples": 1, "function": "rare", "file": "/home/job.py", "line": 11, "state": None},
        {"below": 3, "samples": 200, "function": None, "file": None, "line": None, "state": "waiting_for_tea"},
        {"below": None, "samples": 1, "function": None, "file": None, "line": None, "state": "missed"},
    ],
}


def test_one_goes_from_frame_to_frame_and_into_them_by_keyboard(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(status_interval="50ms")
    env.from_iterable(itertools.count(), rate_limit=10).collect()
    answer_with(page, GRAPH)
    with env.execute_async(ui=ui) as job:
        page.goto(f"{job.ui_url}/tasks/0/subtasks/0")
        page.get_by_label("Samples", exact=True).press("Enter")
        until(page, lambda: len(frames(page)) == 6)
        assert page.locator("#flame img").count() == 0
        assert (
            "Back-pressure OK: it waits for output in 10 % of the samples, in 11 % of the time by its ledger (LOW)"
            in (page.locator("#flame [role=status]").text_content() or "")
        )
        page.get_by_role("button", name="Sample", exact=True).focus()
        page.keyboard.press("Tab")
        assert focused(page) == "all 1,000 samples"
        for key, lands in [
            ("ArrowLeft", "all 1,000 samples"),
            ("ArrowDown", f"main, /home/{NAME}/job.py:3: 899 of 1,000 samples, 90 %"),
            ("ArrowRight", "waiting for output, between records: 100 of 1,000 samples, 10 %"),
            ("ArrowLeft", f"main, /home/{NAME}/job.py:3: 899 of 1,000 samples, 90 %"),
            ("ArrowDown", f"{NAME}, /home/job.py:7: 600 of 1,000 samples, 60 %"),
            ("ArrowRight", "other, /home/job.py:9: 298 of 1,000 samples, 30 %; 98 in itself"),
            ("ArrowDown", "waiting for tea: 200 of 1,000 samples, 20 %"),
            ("ArrowUp", "other, /home/job.py:9: 298 of 1,000 samples, 30 %; 98 in itself"),
            ("Enter", "other, /home/job.py:9: 298 of 1,000 samples, 30 %; 98 in itself"),
        ]:
            page.keyboard.press(key)
            assert focused(page) == lands
            assert (page.locator("#flame .flame-detail").text_content() or "") == lands
        assert [frame.split(":")[0].split(",")[0] for frame in frames(page)] == [
            "all 1",
            "main",
            "other",
            "waiting for tea",
        ]
        other = page.locator("#flame .flame button", has_text="other").bounding_box()
        graph = page.locator("#flame .flame").bounding_box()
        assert other is not None
        assert graph is not None
        assert other["width"] == pytest.approx(graph["width"], abs=1), "it was zoomed into"
        page.keyboard.press("ArrowRight")
        assert focused(page).startswith("rare, "), "too narrow to be drawn before"
        page.keyboard.press("Escape")
        assert focused(page).startswith("main, ")
        page.keyboard.press("Escape")
        assert len(frames(page)) == 6
        page.keyboard.press("Tab")
        assert focused(page) == "", "one step for Tab, however many frames there are"


def test_too_long_is_said_before_anybody_is_asked(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(status_interval="50ms")
    env.from_iterable(itertools.count(), rate_limit=10).collect()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/flame/" in request.url else None)
    with env.execute_async(ui=ui) as job:
        page.goto(f"{job.ui_url}/tasks/0/subtasks/0")
        page.get_by_label("milliseconds apart").fill("601")
        page.get_by_role("button", name="Sample", exact=True).click()
        why = page.get_by_label("milliseconds apart").evaluate("input => input.validationMessage")
        assert why == "60.1 s in all: at most 60 s"
        page.get_by_label("milliseconds apart").fill("10")
        page.get_by_label("Samples", exact=True).fill("1")
        page.get_by_role("button", name="Sample", exact=True).click()
        until(page, lambda: len(asked) == 1)
        assert asked[0].endswith("/api/v1/jobs/1/flame/0/0?samples=1&every_ms=10")
