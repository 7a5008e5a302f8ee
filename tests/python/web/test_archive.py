"""Jobs that ended in other processes, from a folder."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import flownet as fn
from flownet import errors

from .test_page import until
from .test_server import Client

PROGRAM = """
import flownet as fn, sys
env = fn.Environment(name=sys.argv[1], parallelism=2)
numbers = env.from_collection(range(100)).rebalance()
failing = int(sys.argv[2])


def divide(number, failing=failing):
    print("seen", number)
    return 1 // (number - failing)


numbers.map(divide).name("divide").collect()
"""


def run(folder: Path, name: str, failing: int = -1) -> subprocess.CompletedProcess[str]:
    """Run a job in a process of its own, which keeps it in a folder."""
    (folder / "program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "flownet",
        "run",
        "--workers",
        "1",
        "--ui",
        "0",
        "--ui-archive",
        "ended",
        "program:env",
    ]
    return subprocess.run([*command, "--", name, str(failing)], cwd=folder, capture_output=True, text=True, check=False)


@contextmanager
def archive(folder: Path) -> Iterator[int]:
    """Serve the folder by the command; gives the port."""
    command = [sys.executable, "-m", "flownet", "archive", "ended", "--ui", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = re.search(r"at http://127\.0\.0\.1:(\d+)/", process.stderr.readline())
    assert said is not None
    try:
        yield int(said[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130


def get(port: int, path: str) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", f"/api/v1{path}")
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, text if path.endswith("events") else json.loads(text)


def test_jobs_are_shown_after_their_processes_have_ended(browser: Browser, tmp_path: Path) -> None:
    assert run(tmp_path, "well").returncode == 0
    assert run(tmp_path, "badly", failing=7).returncode == 1
    files = list((tmp_path / "ended").iterdir())
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    with archive(tmp_path) as port:
        jobs = get(port, "/jobs")[1]["jobs"]
        assert [(job["name"], job["state"], job["outcome"]) for job in jobs] == [
            ("badly", "ended", "failed"),
            ("well", "ended", "finished"),
        ]
        failed, finished = (f"/jobs/{job['id']}" for job in jobs)
        assert "ZeroDivisionError" in get(port, failed)[1]["error"]
        job = get(port, finished)[1]
        assert [task["records_in"] for task in job["tasks"]] == [100, 100, 100]
        assert len(get(port, f"{finished}/subtasks?task=1")[1]["tasks"]) == 2
        assert get(port, f"{finished}/workers")[1]["workers"]
        assert get(port, f"{finished}/history")[0] == 200
        assert "divide" in get(port, f"{finished}/plan")[1]["explain"]
        entries = get(port, f"{finished}/log?most=3")[1]["entries"]
        assert (len(entries), len(get(port, f"{finished}/log?after={entries[-1]['number']}")[1]["entries"])) == (3, 97)
        assert get(port, f"{finished}/log?level=error")[1]["entries"] == []
        assert re.findall(r"event: (\w+)", get(port, f"{finished}/events")[1]) == ["job", "end"]
        status, answer = get(port, f"{finished}/flame/0/0")
        assert (status, "has ended, and so has its process" in answer["error"]) == (409, True)
        assert get(port, "/jobs/1-2-3")[0] == 404
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        until(page, lambda: page.locator("#state").text_content() == "failed")
        page.get_by_role("link", name="well").click()
        until(page, lambda: page.locator("#state").text_content() == "ended")
        until(page, lambda: page.locator("#graph [role=link]").count() == len(job["tasks"]))
        until(page, lambda: page.locator("#log .entry").count() > 5)
        page.close()


def test_a_page_with_jobs_shows_those_of_the_folder_once(tmp_path: Path) -> None:
    folder = tmp_path / "ended"
    assert run(tmp_path, "before").returncode == 0
    env = fn.Environment(name="now")
    env.from_collection([1]).collect()
    with fn.serve_ui(0, archive=folder) as ui:
        env.execute(ui=ui)
        client = Client(ui)
        while len(list(folder.iterdir())) < 2:
            time.sleep(0.02)
        jobs = client.get("/api/v1/jobs")["jobs"]
        assert [job["name"] for job in jobs] == ["now", "before"]
    with fn.serve_ui(0, archive=folder) as ui:
        assert [job["name"] for job in Client(ui).get("/api/v1/jobs")["jobs"]] == ["now", "before"]


def test_the_folder_has_a_limit_and_the_oldest_jobs_go(tmp_path: Path) -> None:
    env = fn.Environment(name="small")
    env.from_collection([1]).collect()
    folder = tmp_path / "ended"
    for _ in range(3):
        with fn.serve_ui(0, archive=folder) as ui:
            env.execute(ui=ui)
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    assert len(sizes) == 3
    # There is room for one of them and some digits.
    with fn.serve_ui(0, archive=folder, archive_size=max(sizes.values()) * 3 // 2) as ui:
        env.execute(ui=ui)
    (kept,) = os.listdir(folder)
    assert kept not in sizes
    with fn.serve_ui(0, archive=folder, archive_size="1KiB") as ui:
        env.execute(ui=ui)
    assert os.listdir(folder) == [kept], "it has no room at all, and takes nobody's"


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, python: Callable[..., Any]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigError, match="cannot keep jobs that have ended in"):
        fn.serve_ui(0, archive=tmp_path / "file" / "below")
    finished = python("-m", "flownet", "archive", "nowhere")
    assert (finished.returncode, "there is no folder 'nowhere'" in finished.stderr) == (1, True)
