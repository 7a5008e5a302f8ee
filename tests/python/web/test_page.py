"""The page in a browser: what it shows is what the API says, and it asks nobody else."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

import flownet as fn
from flownet import errors


def told(ui: fn.observation.Ui, path: str) -> Any:
    headers = {"Authorization": f"Bearer {ui.token}"}
    request = urllib.request.Request(f"http://127.0.0.1:{ui.port}/api/v1/{path}", headers=headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def until(page: Page, holds: Callable[[], Any]) -> Any:
    """Wait until something is true of the page, and give it."""
    while not (value := holds()):
        page.wait_for_timeout(50)
    return value


def sentence(page: Page) -> str:
    return page.locator("#sentence").text_content() or ""


def boxes(page: Page) -> list[str]:
    return [box.get_attribute("aria-label") or "" for box in page.locator("#graph [role=link]").all()]


def test_it_follows_a_job_whose_pressure_changes(page: Page, ui: fn.observation.Ui, tmp_path: Path) -> None:
    gate = tmp_path / "fast"

    def work(number: int, gate: str = str(gate)) -> int:
        if not os.path.exists(gate):
            time.sleep(0.003)
        return number

    def rest(number: int, gate: str = str(gate)) -> int:
        if os.path.exists(gate):
            time.sleep(0.003)
        return number

    env = fn.Environment(name="<img src=x onerror=alert(1)>", status_interval="50ms", stop_timeout="100s")
    first = env.from_iterable(itertools.count()).rebalance().map(work).name("<b>first</b>")
    first.rebalance().map(rest).name("second").filter(lambda _: False).collect()
    with env.execute_async(ui=ui) as job:
        page.goto(job.ui_url or "")
        until(page, lambda: sentence(page).startswith("Bottleneck: <b>first</b>"))
        assert page.locator("#name").text_content() == "<img src=x onerror=alert(1)>"
        shown = until(page, lambda: told(ui, "jobs/1")["bottleneck"])
        assert shown.startswith("<b>first</b> (")
        bottleneck = page.locator("#graph .bottleneck .name")
        assert bottleneck.text_content() == "<b>first</b>"
        until(page, lambda: "back-pressure HIGH" in boxes(page)[0])
        assert page.locator("#graph .edge.blocked").count() == 1
        gate.touch()
        until(page, lambda: sentence(page).startswith("Bottleneck: second"))
        until(page, lambda: page.locator("#graph .edge.blocked").count() == 2)
        page.locator("#lines path.line").first.wait_for(state="attached")
        job.stop()
        result = job.wait()
        until(page, lambda: page.locator("#state").text_content() == "ended")
    for task, box in zip(result.tasks, boxes(page), strict=True):
        assert box.startswith(
            f"{task.name}: {task.records_in:,} in, {task.records_out:,} out; busy {task.busy * 100:.0f} %"
        )


def widths(page: Page, position: int) -> dict[str, float]:
    """Of the parts of the bar in the box of a task, as shares of it."""
    rectangles = page.locator("#graph [role=link]").nth(position).locator("rect").all()
    drawn = {one.get_attribute("class") or "": float(one.get_attribute("width") or 0) for one in rectangles}
    return {part: drawn[part] / drawn["frame"] for part in drawn if part not in {"frame", "box"}}


def test_bars_show_what_a_task_works_on_and_words_what_it_waits_for(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(segment_size="1KiB", max_in_flight_time=None)
    numbers = env.from_iterable(itertools.repeat("x" * 200, 2000)).rebalance()
    numbers.map(lambda text: sum(range(20_000))).name("burn").collect()
    result = env.execute(ui=ui)
    page.goto(f"{ui.url}#/jobs/1/tasks/0")
    until(page, lambda: len(boxes(page)) == len(result.tasks))
    for position, task in enumerate(result.tasks):
        drawn = widths(page, position)
        parts = (task.python, task.serialising, task.rust, task.back_pressured, task.interpreter, task.idle)
        assert list(drawn) == ["python", "serialising", "rust", "back-pressured", "interpreter", "idle"]
        assert list(drawn.values()) == pytest.approx(parts, abs=0.001)
        assert sum(drawn.values()) == pytest.approx(1, abs=0.001)
    burn = result.tasks[1]
    assert f"busy {burn.busy * 100:.0f} % ({burn.python * 100:.0f} % Python" in boxes(page)[1]
    waits = f"{result.tasks[0].waiting_for_credit * 100:.0f} % waiting for credit"
    assert waits in boxes(page)[0]
    until(page, lambda: waits in (page.locator("#task-facts").text_content() or ""))


class Counts(fn.MapFunction[int, int]):
    """Has metrics of its own."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")
        self.half = ctx.metrics.gauge("half")
        self.sizes = ctx.metrics.histogram("sizes")

    def map(self, value: int) -> int:
        self.seen.inc()
        self.half.set(value / 2)
        return value


def test_a_task_shows_what_its_functions_count(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2)
    env.from_collection(range(10)).rebalance().map(Counts()).name("<i>counts</i>").collect()
    env.execute(ui=ui)
    page.goto(f"{ui.url}#/jobs/1/tasks/1")
    rows = page.locator("#users-metrics tbody tr:not(.space)")
    until(page, lambda: rows.count() == 6)
    shown = sorted(tuple(row.locator("td").all_text_contents()) for row in rows.all())
    expected = [("half", "gauge", {"4", "4.5"}), ("seen", "counter", {"5"}), ("sizes", "histogram", {"0"})]
    for position, (name, kind, values) in enumerate(expected):
        own = shown[2 * position : 2 * position + 2]
        assert [row[:4] for row in own] == [("<i>counts</i>", name, subtask, kind) for subtask in ("0", "1")]
        assert {row[4] for row in own} == values
    page.goto(f"{ui.url}#/jobs/1/tasks/0")
    until(page, lambda: not page.locator("#users-metrics").is_visible())


def test_a_task_shows_what_goes_through_its_operators(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2)
    numbers = env.from_collection(range(1000)).name("numbers").rebalance()
    numbers.flat_map(lambda n: [n] * 3).name("<i>threes</i>").filter(lambda n: n % 2 == 0).collect()
    env.execute(ui=ui)
    told_operators = told(ui, "jobs/1")["tasks"][1]["operators"]
    assert [(one["name"], one["records_in"], one["records_out"]) for one in told_operators] == [
        ("<i>threes</i>", 1000, 3000),
        ("filter", 3000, 1500),
    ]
    page.goto(f"{ui.url}#/jobs/1/tasks/1")
    rows = page.locator("#operators tbody tr:not(.space)")
    until(page, lambda: rows.count() == 2)
    cells = [row.locator("td").all_text_contents() for row in rows.all()]
    names_and_counts = [[cell[0], *cell[3:]] for cell in cells]
    assert names_and_counts == [
        ["<i>threes</i>", "1,000", "3,000", "", ""],
        ["filter", "3,000", "1,500", "", ""],
    ]
    assert all(rate.endswith("/s") for cell in cells for rate in cell[1:3])


def test_a_task_shows_how_long_records_take_to_it(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2, latency_interval="5ms")
    env.from_iterable(range(100), rate_limit=200).rebalance().map(lambda number: number).name("next").collect()
    result = env.execute(ui=ui)
    page.goto(f"{ui.url}#/jobs/1/tasks/1")
    facts = page.locator("#task-facts")
    until(page, lambda: "latency from the sources" in (facts.text_content() or ""))
    told = re.search(r"sources ([\d.]+) (.*) median, .* for 99 %, .* at most", facts.text_content() or "")
    assert told is not None
    seconds = float(told[1]) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[told[2]]
    assert seconds == pytest.approx(result.tasks[1].latency_p50_seconds, rel=0.5)
    page.goto(f"{ui.url}#/jobs/1/tasks/0")
    until(page, lambda: "latency" not in (facts.text_content() or ""))


def test_a_task_shows_what_it_holds_and_what_is_left_to_read(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2)
    env.from_collection(range(10)).key_by(lambda number: number % 3).count().name("counts").collect()
    env.execute(ui=ui)
    facts = page.locator("#task-facts")
    page.goto(f"{ui.url}#/jobs/1/tasks/1")
    until(page, lambda: "; 3 keys" in (facts.text_content() or ""))
    page.goto(f"{ui.url}#/jobs/1/tasks/0")
    until(page, lambda: "; 0 records to read" in (facts.text_content() or ""))
    assert "keys" not in (facts.text_content() or "")


def test_a_subtask_opens_into_its_channels(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2, status_interval="50ms")
    numbers = env.from_iterable(lambda subtask, subtasks: itertools.count()).rebalance()
    numbers.map(lambda number: time.sleep(0.01)).name("slow").filter(lambda _: False).collect()
    with env.execute_async(workers=2, ui=ui) as job:
        until(page, lambda: job.status().state == "running")
        page.goto(f"{job.ui_url}/tasks/1")
        page.get_by_role("link", name="channels of subtask 1").click()
        rows = page.locator("#channels-in tbody tr:not(.space)")
        until(page, lambda: rows.count() == 2)
        assert page.url.endswith("#/jobs/1/tasks/1/subtasks/1")
        cells = [row.locator("td").all_text_contents() for row in rows.all()]
        assert [cell[:2] for cell in cells] == [["from_iterable", "0"], ["from_iterable", "1"]]
        until(page, lambda: rows.filter(has_text=re.compile("none$")).count() >= 1)
        read = re.compile(r"^from_iterable[01]\d[\d,]+[\d.]+( [kM])?/s[\d.]+ ([KM]i)?B[\d.]+ ([KM]i)?B/s")
        until(page, lambda: rows.filter(has_text=read).count() == 2)
        assert page.locator("#channels-out tbody tr:not(.space)").count() == 1
        page.get_by_role("link", name="channels of subtask 1").click()
        until(page, lambda: not page.locator("#channels-in .table").is_visible())
        page.goto(f"{job.ui_url}/tasks/0/subtasks/0")
        until(page, lambda: page.locator("#channels-out tbody tr:not(.space)").count() == 2)
        assert not page.locator("#channels-in .table").is_visible()
        job.stop()
        job.wait()
        until(page, lambda: "does not run now" in (page.locator("#channels-facts").text_content() or ""))


def test_it_shows_what_functions_say_as_it_comes(page: Page, ui: fn.observation.Ui, tmp_path: Path) -> None:
    gate = tmp_path / "more"

    def say(number: int, gate: str = str(gate)) -> int:
        if number == 1:
            while not os.path.exists(gate):
                time.sleep(0.01)
        print(f"<b>line</b> {number}")
        logging.getLogger("jobs").warning("record %d", number)
        return number

    env = fn.Environment()
    env.from_collection([0, 1]).rebalance().map(say).name("say").disable_chaining().collect()
    with env.execute_async(workers=1, ui=ui) as job:
        page.goto(job.ui_url or "")
        entries = page.locator("#log .entry")
        until(page, lambda: entries.count() == 2)
        assert entries.locator(".text").all_text_contents() == ["<b>line</b> 0", "jobs: record 0"]
        assert entries.locator(".speaker").all_text_contents() == ["say", "say"]
        gate.touch()
        until(page, lambda: entries.count() == 4)
        job.wait()
    page.get_by_label("Show").select_option("warning and worse")
    until(page, lambda: entries.locator(".text").all_text_contents() == ["jobs: record 0", "jobs: record 1"])
    page.get_by_label("Show").select_option("error and worse")
    until(page, lambda: (page.locator("#log .facts").text_content() or "") == "Nothing was said yet.")


def test_it_shows_what_each_process_takes(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2)
    env.from_collection([1, 2]).rebalance().map(lambda number: gc.collect()).collect()
    env.execute(workers=2, ui=ui)
    page.goto(f"{ui.url}#/jobs/1")
    rows = page.locator("#workers tbody tr:not(.space)")
    until(page, lambda: rows.count() == 3)
    for row, process in zip(rows.all(), told(ui, "jobs/1/subtasks")["workers"], strict=True):
        cells = row.locator("td").all_text_contents()
        assert cells[2].endswith("s")
        assert cells[3].startswith(f"{process['gc_collections']:,} in ")
        assert cells[4:6] == [str(process["threads"]), str(process["open_files"] or "")]


def test_it_says_why_a_job_failed(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment()
    env.from_collection([1, 0]).map(lambda number: 1 // number).name("divide").collect()
    with pytest.raises(errors.OperatorError):
        env.execute(ui=ui)
    page.goto(f"{ui.url}#/jobs/%")
    until(page, lambda: page.locator("#state").text_content() == "failed")
    assert sentence(page).startswith("operator 'divide' (subtask 1 of 1")
    traceback = page.locator("#error").text_content() or ""
    assert traceback == told(ui, "jobs/1")["error"].split("\n", 1)[1]
    assert "ZeroDivisionError" in traceback


def test_tasks_open_by_keyboard_and_exchanges_do_not_cross_boxes(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(parallelism=2, name="diamond", status_interval="50ms")
    numbers = env.from_iterable(itertools.count(), rate_limit=1000).rebalance().map(lambda number: number).name("split")
    left = numbers.key_by(lambda number: number % 2).map(lambda number: number).name("left")
    right = numbers.key_by(lambda number: number % 3).map(lambda number: number).name("right")
    farther = right.rebalance().map(lambda number: number).name("farther")
    left.union(farther).key_by(lambda number: number).count().name("join").filter(lambda _: False).collect()
    with env.execute_async(ui=ui) as job:
        page.goto(job.ui_url or "")
        until(page, lambda: len(boxes(page)) == len(told(ui, "jobs/1")["tasks"]) > 5)
        frames = [box.bounding_box() for box in page.locator("#graph .box").all()]
        for one, other in itertools.combinations(frames, 2):
            assert one is not None
            assert other is not None
            apart = one["x"] + one["width"] <= other["x"] or one["y"] + one["height"] <= other["y"]
            assert apart or other["x"] + other["width"] <= one["x"] or other["y"] + other["height"] <= one["y"]
        focused = "document.activeElement.dataset.task ?? ''"
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == "1":
                break
        assert page.evaluate(focused) == "1"
        page.keyboard.press("Enter")
        until(page, lambda: page.locator("#subtasks tbody tr:not(.space)").count() == 2)
        assert (page.locator("#task-title").text_content() or "").startswith("split")
        assert page.url.endswith("#/jobs/1/tasks/1")
        page.go_back()
        until(page, lambda: not page.locator("#task").is_visible())


def test_of_many_subtasks_those_in_view_are_there(page: Page, ui: fn.observation.Ui) -> None:
    env = fn.Environment(name="wide", network_memory="256MiB")
    numbers = env.from_iterable(itertools.count(), rate_limit=100).rebalance().map(lambda number: number)
    numbers.set_parallelism(400).filter(lambda _: False).collect()
    with env.execute_async(ui=ui) as job:
        until(page, lambda: job.status().state == "running")
        page.goto(f"{job.ui_url}/tasks/1")
        rows = page.locator("#subtasks tbody tr:not(.space)")
        until(page, lambda: rows.count() > 5)
        assert rows.count() < 60
        place = page.locator("#subtasks .table")
        place.evaluate("place => { place.scrollTop = place.scrollHeight }")
        until(page, lambda: rows.last.locator("td").first.text_content() == "399")
        assert rows.count() < 60


def test_jobs_are_cancelled_after_asking_and_a_server_that_has_gone_is_missed(
    page: Page, ui: fn.observation.Ui, tmp_path: Path
) -> None:
    env = fn.Environment(name="to be cancelled")
    env.from_iterable(itertools.count(), rate_limit=100).filter(lambda _: False).collect()
    with env.execute_async(ui=ui) as job:
        page.goto(job.ui_url or "")
        page.get_by_role("button", name="Take a savepoint").click()
        page.get_by_label("Folder for the savepoint").fill(str(tmp_path / "saved"))
        page.get_by_role("button", name="Do it").click()
        until(page, lambda: "enable_checkpointing" in (page.locator("#ask-answer").text_content() or ""))
        page.get_by_role("button", name="Leave it").click()
        assert job.status().state == "running"
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Do it").click()
        with pytest.raises(errors.CancelledError):
            job.wait()
        until(page, lambda: page.locator("#state").text_content() == "cancelled")
        assert "failed" not in (page.locator("#sentence").get_attribute("class") or "")
        until(page, lambda: (page.locator("#jobs small").text_content() or "").endswith(", cancelled"))
    assert not page.locator("#connection").is_visible()
    ui.close()
    until(page, lambda: (page.locator("#connection").text_content() or "").startswith("Nobody answers since"))
    assert page.locator("#name").text_content() == "to be cancelled"
