"""Takes the picture of the web UI: ``python docs/pictures/draw_ui.py [BROWSER]`` writes ``ui.png`` beside itself.

It runs a small job whose operator ``score`` is slow, and photographs its page. Needs playwright and the program of
Chromium's headless shell, by default ``chromium-headless-shell``. Run it again after a change of the page.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

import flownet as fn

SECONDS = 12
"""How long the job runs before the picture is taken, so that its time lines have a shape."""


def clicks(subtask: int, subtasks: int) -> Iterator[tuple[int, int]]:
    """Make clicks of a thousand users, without an end."""
    return ((number % 1000, number) for number in itertools.count(subtask, subtasks))


def score(click: tuple[int, int]) -> tuple[int, int]:
    """Be slow, as a model or a service is."""
    if click[1] % 21 == 0:
        time.sleep(0.001)
    return click


def describe() -> fn.Environment:
    """Describe a job with a bottleneck."""
    env = fn.Environment(parallelism=2, name="clicks", latency_interval="1s")
    read = env.from_iterable(clicks).name("read clicks")
    scored = read.rebalance().map(score).name("score")
    counts = scored.key_by(0).window(fn.Tumbling("1s")).count().name("count by user")
    counts.filter(lambda count: count[1] > 1_000_000).print()
    return env


def main() -> None:
    """Run the job, and take the picture."""
    program = shutil.which(sys.argv[1] if sys.argv[1:] else "chromium-headless-shell")
    if program is None:
        sys.exit("needs chromium-headless-shell: name its path (Debian: apt-get install chromium-headless-shell)")
    with fn.serve_ui(0) as ui, describe().execute_async(workers=2, ui=ui) as job, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, env=dict(os.environ), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 690})
        page.goto(job.ui_url or "")
        time.sleep(SECONDS)
        page.screenshot(path=Path(__file__).parent / "ui.png")
        browser.close()
        job.cancel()


if __name__ == "__main__":
    main()
