"""What the tests of the page share: a browser, and a page that watches what it is told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

import flownet as fn

from .debian import unpacked

BROWSER = "chromium-headless-shell"
EXPECTED = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "status of 409")
"""What a browser notes of a server that has gone, and of an action that is refused."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program, environment = shutil.which(BROWSER), dict(os.environ)
    if program is None:
        root = unpacked(BROWSER)
        libraries = {str(path.parent) for path in root.rglob("*.so*")}
        environment["LD_LIBRARY_PATH"] = ":".join(sorted(libraries))
        program = str(root / "usr" / "lib" / "chromium" / BROWSER)
    with sync_playwright() as playwright:
        # Its sandbox needs rights that a container does not give; it sees pages of this process alone.
        arguments = {"executable_path": program, "env": environment, "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**arguments)  # type: ignore[arg-type]
        yield browser
        browser.close()


@pytest.fixture
def ui() -> Iterator[fn.observation.Ui]:
    with fn.serve_ui(0, actions=True) as ui:
        yield ui


@pytest.fixture
def page(browser: Browser, ui: fn.observation.Ui) -> Iterator[Page]:
    """Give an empty page that has seen no error and asked nobody else when the test has ended."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    context.close()
    elsewhere = [url for url in asked if not url.startswith(f"http://127.0.0.1:{ui.port}/")]
    unexpected = [text for text in wrong if not any(expected in text for expected in EXPECTED)]
    assert (elsewhere, unexpected) == ([], [])
