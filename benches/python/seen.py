"""What it costs to be looked at, and how soon the page shows what is: rates, times of answers, first paint, age.

``rate``     a job without a page and with one, by turns, while a client reads the page's events and asks for
             ``/metrics`` and ``/subtasks`` each second: believe the ratios, which are those of one round, and on a
             machine that does other work that of processor time. Objects go through a keyed exchange of two workers.
``answers``  how long the requests for a job of a thousand subtasks take, on a connection that is there.
``paint``    a browser that opens the page of a job: when it paints first, and how much it has loaded.
``age``      from a change to the page: a job ends, and another task becomes the one that holds the job up, which is
             said by what the last seconds were like, so status() says it later than it is so.

The browser is headless Chromium (chromium-headless-shell): where none is to be had, the last two are left out and said
to be. What was asked for is beside each figure.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import os
import runpy
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flownet as fn

WORKERS = 2
BROWSER = "chromium-headless-shell"
FIND = Path(__file__).parents[2] / "tests" / "python" / "web" / "debian.py"
Row = dict[str, Any]


class Discard(fn.Sink[Any]):
    """Takes everything and keeps nothing."""

    def write(self, records: list[Any]) -> None:
        """Drop them."""


def environment(parallelism: int, records: int) -> fn.Environment:
    """Describe ints by key, summed."""
    env = fn.Environment(parallelism=parallelism, name="seen", network_memory="256MB")
    pairs = env.from_iterable(lambda subtask, subtasks: range(subtask, records, subtasks)).map(lambda x: (x % 1000, x))
    pairs.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1])).sink_to(Discard())
    return env


def run(env: fn.Environment, *, is_seen: bool) -> tuple[float, float]:
    """Run a job; records a second, and seconds of processors that its processes took."""
    if not is_seen:
        return run_at(env, None)
    with fn.serve_ui(0) as ui, looking(ui.port):
        return run_at(env, ui)


def run_at(env: fn.Environment, ui: fn.observation.Ui | None) -> tuple[float, float]:
    """Run a job that is shown there."""
    own = time.process_time()
    with env.execute_async(WORKERS, ui=ui) as job:
        result = job.wait()
        workers = sum(process.cpu_seconds for process in job.sample().workers if process.worker > 0)
    return max(task.records_per_second for task in result.tasks), workers + time.process_time() - own


@contextmanager
def looking(port: int) -> Iterator[None]:
    """Have a process look at job 1 for as long."""
    process = multiprocessing.get_context("spawn").Process(target=look, args=(port,))
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def look(port: int) -> None:
    """Read the events of a job, and ask once a second for all that the page and Prometheus ask for."""
    while True:
        events = http.client.HTTPConnection("127.0.0.1", port)
        events.request("GET", "/api/v1/jobs/1/events")
        answer = events.getresponse()
        if answer.status == 200:
            break
        events.close()
        time.sleep(0.05)
    threading.Thread(target=answer.read, daemon=True).start()
    asking = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        for path in ("/metrics", "/api/v1/jobs/1/subtasks"):
            asking.request("GET", path)
            asking.getresponse().read()
        time.sleep(1)


def rates(options: argparse.Namespace) -> Iterator[Row]:
    """Run each job without and with who looks, by turns."""
    for name, parallelism, records in (
        ("objects, 2 x 2 channels", 2, options.records),
        (f"objects, {options.wide} x {options.wide} channels", options.wide, options.records // 2),
    ):
        rounds = []
        for number in range(options.repeat):
            # Who is first has the colder machine.
            order = (False, True) if number % 2 else (True, False)
            found = {is_seen: run(environment(parallelism, records), is_seen=is_seen) for is_seen in order}
            rounds.append((found[False], found[True]))
        for what, unit, asked, column, scale in (
            ("rate", "M records/s", ">= 0.99", 0, 1e6),
            ("processor time", "s", "", 1, 1.0),
        ):
            yield {
                "what": f"{what} of a job that is looked at: {name}",
                "unit": "of that without",
                "value": spread([seen[column] / without[column] for without, seen in rounds]),
                "asked": asked,
                "beside": f"{statistics.median([without[column] for without, _ in rounds]) / scale:.2f} {unit} without",
            }


def idle(subtask: int, subtasks: int) -> Iterator[int]:
    """Give a record now and then."""
    for number in itertools.count():
        time.sleep(0.5)
        yield number


def answers(options: argparse.Namespace) -> Iterator[Row]:
    """Ask for a job with very many subtasks."""
    env = fn.Environment(parallelism=options.subtasks, name="many", network_memory="256MB")
    env.from_iterable(idle).sink_to(Discard())
    asked = {"/metrics": "< 20", "/api/v1/jobs/1": "", "/api/v1/jobs/1/subtasks": ""}
    with fn.serve_ui(0) as ui, env.execute_async(WORKERS, ui=ui) as job:
        while not all(task.seconds > 0 for task in job.sample().tasks):
            time.sleep(0.05)
        connection = http.client.HTTPConnection("127.0.0.1", ui.port)
        taken: dict[str, list[float]] = {path: [] for path in asked}
        sizes = {}
        for _, path in itertools.product(range(options.answers), asked):
            began = time.perf_counter()
            connection.request("GET", path)
            sizes[path] = len(connection.getresponse().read())
            taken[path].append(1000 * (time.perf_counter() - began))
        connection.close()
        job.cancel()
    for path, limit in asked.items():
        yield {
            "what": f"GET {path}, {options.subtasks} subtasks",
            "unit": "ms",
            "value": spread(taken[path]),
            "asked": limit,
            "beside": f"{sizes[path] / 1000:.0f} kB",
        }


@contextmanager
def browser() -> Iterator[Any]:
    """Start the browser; None where there is none."""
    import pytest
    from playwright.sync_api import sync_playwright

    program, variables = shutil.which(BROWSER), dict(os.environ)
    if program is None:
        try:
            root: Path = runpy.run_path(str(FIND))["unpacked"](BROWSER)
        except pytest.skip.Exception:
            yield None
            return
        variables["LD_LIBRARY_PATH"] = ":".join(sorted({str(path.parent) for path in root.rglob("*.so*")}))
        program = str(root / "usr" / "lib" / "chromium" / BROWSER)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, env={**variables}, args=["--no-sandbox"])
        yield started
        started.close()


def paint(options: argparse.Namespace, browser: Any) -> Iterator[Row]:
    """Open the page of a job that runs, each time in a browser without a cache."""
    env = fn.Environment(parallelism=4, name="painted")
    env.from_iterable(idle).rebalance().map(lambda number: number).rebalance().sink_to(Discard())
    painted, loaded = [], []
    with fn.serve_ui(0) as ui, env.execute_async(ui=ui) as job:
        for _ in range(options.paints):
            with browser.new_context() as context:
                page, size = context.new_page(), list[int]()
                page.on("response", lambda answer, size=size: size.append(size_of(answer)))
                page.goto(job.ui_url or "")
                page.wait_for_selector("#graph [role=link]")
                painted.append(told(page, "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"))
                loaded.append(sum(size) / 1000)
        job.cancel()
    yield {"what": "first paint, loopback", "unit": "ms", "value": spread(painted), "asked": "< 200", "beside": ""}
    beside = "not compressed, without what it asks of the job"
    yield {"what": "files of the page", "unit": "kB", "value": spread(loaded), "asked": "< 300", "beside": beside}


def size_of(answer: Any) -> int:
    """Of a file of the page; what is told of jobs is not one."""
    return 0 if "/api/" in answer.url else int(answer.headers.get("content-length", "0"))


def ages(options: argparse.Namespace, browser: Any) -> Iterator[Row]:
    """Let a job change, and see when the page does."""
    ages: dict[str, list[float]] = {"its end": [], "another task holds it up": [], "of what status() says of that": []}
    for _ in range(options.repeat):
        with browser.new_context() as context, fn.serve_ui(0) as ui, tempfile.TemporaryDirectory() as folder:
            page, gate = context.new_page(), Path(folder, "gate")
            with switching(str(gate)).execute_async(ui=ui) as job:
                page.goto(job.ui_url or "")
                noticed(page, "sentence", "Bottleneck: first")
                wait_for(page)
                noticed(page, "sentence", "Bottleneck: second")
                gate.touch()
                began = time.time()
                while not (job.status().bottleneck or "").startswith("second"):
                    page.wait_for_timeout(5)
                said = time.time()
                shown = wait_for(page)
                ages["another task holds it up"].append(shown - began)
                ages["of what status() says of that"].append(shown - said)
                noticed(page, "state", "ended")
                job.stop()
                job.wait()
                began = time.time()
                ages["its end"].append(wait_for(page) - began)
    for what, values in ages.items():
        yield {"what": f"age of the page: {what}", "unit": "s", "value": spread(values), "asked": "< 1", "beside": ""}


def switching(gate: str) -> fn.Environment:
    """Describe a job whose first task is slow, and then its second."""

    def work(number: int) -> int:
        time.sleep(0 if os.path.exists(gate) else 0.003)
        return number

    def rest(number: int) -> int:
        time.sleep(0.003 if os.path.exists(gate) else 0)
        return number

    env = fn.Environment(name="switching")
    first = env.from_iterable(itertools.count()).rebalance().map(work).name("first")
    first.rebalance().map(rest).name("second").sink_to(Discard())
    return env


def noticed(page: Any, element: str, beginning: str) -> None:
    """Have the page note when an element's text begins so."""
    script = """([id, beginning]) => {
      window.seenAt = null;
      const look = () => {
        if (document.getElementById(id).textContent.startsWith(beginning)) window.seenAt ??= Date.now();
      };
      window.watching?.disconnect();
      window.watching = new MutationObserver(look);
      window.watching.observe(document.body, { subtree: true, childList: true, characterData: true });
      look();
    }"""
    page.evaluate(script, [element, beginning])


def wait_for(page: Any) -> float:
    """Give when it noted it, in seconds since the epoch."""
    return told(page, "window.seenAt") / 1000


def told(page: Any, number: str) -> float:
    """Wait until there is a number."""
    while (found := page.evaluate(number)) is None:
        page.wait_for_timeout(20)
    return float(found)


def spread(values: list[float]) -> list[float]:
    """Median, least and most."""
    return [statistics.median(values), min(values), max(values)]


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Run everything that was chosen; yield a row for each figure."""
    chosen = options.only or ["rate", "answers", "paint", "age"]
    if "rate" in chosen:
        yield from rates(options)
    if "answers" in chosen:
        yield from answers(options)
    if {"paint", "age"} & set(chosen):
        with browser() as started:
            for name, run in (("paint", paint), ("age", ages)):
                if name in chosen and started is not None:
                    yield from run(options, started)
                elif name in chosen:
                    print(f"left out: {name}, which needs {BROWSER}", flush=True)


def show(row: Row) -> str:
    """Write a row for people."""
    median, least, most = row["value"]
    asked = f"asked {row['asked']}" if row["asked"] else ""
    return (
        f"{row['what']:72} {median:7.3g} [{least:.3g}-{most:.3g}] {row['unit']:15} {asked:14} {row['beside']}".rstrip()
    )


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["rate", "answers", "paint", "age"], help="only these")
    parser.add_argument(
        "--records", type=int, default=20_000_000, help="of the job with two subtasks; half as many else"
    )
    parser.add_argument("--wide", type=int, default=32, help="subtasks of the job with many channels")
    parser.add_argument("--subtasks", type=int, default=1000, help="of the job that is asked about")
    parser.add_argument("--answers", type=int, default=50, help="requests of each kind")
    parser.add_argument("--paints", type=int, default=15)
    parser.add_argument("--repeat", type=int, default=9, help="rounds of rates and ages")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each row")
    parser.add_argument("--smoke", action="store_true", help="once, and small: only to see that it works")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.wide, options.subtasks = 20_000, 4, 20
        options.answers, options.paints, options.repeat = 2, 1, 1
    print(f"medians of {options.repeat}, {options.answers} and {options.paints} on {os.cpu_count()} cores")
    for row in measure(options):
        print(json.dumps(row) if options.json else show(row), flush=True)


if __name__ == "__main__":
    main()
