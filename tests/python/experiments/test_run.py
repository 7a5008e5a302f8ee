"""Experiments that run in this process, and the rows that they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset

import flownet as fn
from flownet.errors import ConfigError
from flownet.experiments import Experiment, find_experiment, run
from flownet.experiments.progress import progress_lines
from flownet.experiments.run_counter import RunCounter
from flownet.experiments.store import COLUMNS

from .conftest import TOY

Toy = Callable[..., Experiment]
ToyFile = Callable[..., Path]


def wait_until(look: Callable[[], bool]) -> None:
    while not look():
        time.sleep(0.01)


def rows_of(folder: Path, name: str = "toy") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dataset.dataset(folder, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted((row for row in rows if row["experiment"] == name), key=lambda row: row["position"])


def test_every_run_is_a_row_with_what_it_takes_to_repeat_it(toy: Toy, tmp_path: Path) -> None:
    outcome = run(toy("grid={'load': [1, 2]}, repetitions=2, seed=5"), tmp_path / "out")
    assert (outcome.done, outcome.failed, outcome.ran) == (4, 0, 4)
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 4
    for row in rows:
        assert set(row) == set(COLUMNS)
        assert row["status"] == "ok"
        assert dict(row["parameters"]) == {"load": row["cell"].removeprefix("load="), "wait": "1 ms"}
        load = int(row["cell"].removeprefix("load="))
        assert dict(row["numbers"]) == {"load": load, "wait_us": 1000}
        assert dict(row["figures"]) == {"rate": load * 10 + row["seed"] % 5, "cost": 1}
        assert dict(row["versions"])["flownet"] == fn.__version__
        assert int(dict(row["host"])["cores"]) > 0
        assert row["mode"] == "local"
        assert row["run_seconds"] > 0
        assert row["started_at"] is not None
        described = json.loads(row["description"])
        assert (described["seed"], described["repetitions"], described["workload"]) == (5, 2, "toy")
    assert len({row["seed"] for row in rows}) == 4


def test_the_rows_are_in_the_planned_order(toy: Toy, tmp_path: Path) -> None:
    run(toy("grid={'load': list(range(6))}, repetitions=2"), tmp_path / "out")
    rows = rows_of(tmp_path / "out")
    assert [row["position"] for row in rows] == list(range(12))
    assert [row["started_at"] for row in rows] == sorted(row["started_at"] for row in rows)


def test_a_run_that_fails_is_a_row_with_its_error(toy: Toy, tmp_path: Path) -> None:
    outcome = run(toy(), tmp_path / "out")
    assert (outcome.done, outcome.failed) == (9, 3)
    failed = [row for row in rows_of(tmp_path / "out") if row["status"] == "failed"]
    assert [row["cell"] for row in failed] == ["load=13"] * 3
    for row in failed:
        assert row["error"] == "ValueError: 13 is bad luck"
        assert "in measure" in json.loads(row["details"])["traceback"]
        assert row["figures"] == []


DEADLY = TOY.replace(
    "    if parameters",
    """    import os, signal, sys
    match parameters["load"]:
        case 2:
            os._exit(3)
        case 3:
            os.kill(os.getpid(), signal.SIGKILL)
        case 4:
            sys.exit()
    if parameters""",
    1,
)


def test_a_run_that_ends_its_process_is_a_row_and_the_rest_goes_on(toy_file: ToyFile, tmp_path: Path) -> None:
    experiment = find_experiment(str(toy_file("grid={'load': [1, 2, 3, 4]}, repetitions=1", DEADLY)))
    outcome = run(experiment, tmp_path / "out")
    assert (outcome.done, outcome.failed) == (4, 3)
    errors = {row["cell"]: row["error"] for row in rows_of(tmp_path / "out")}
    assert errors == {
        "load=1": None,
        "load=2": "the process of the run ended itself with exit code 3 before it was done",
        "load=3": "the process of the run was killed by SIGKILL (for want of memory, perhaps) before it was done",
        "load=4": "the process of the run ended itself with exit code 0 before it was done",
    }


def test_nothing_of_a_run_is_left_when_the_caller_is_killed(toy_file: ToyFile, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    body = TOY.replace(
        "    if parameters",
        f"""    import os, time
    with open({str(pids)!r} + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename({str(pids)!r} + ".part", {str(pids)!r})
    time.sleep(600)
    if parameters""",
        1,
    )
    script = f"from flownet.experiments import *; run(find_experiment({str(toy_file(body=body))!r}), {str(tmp_path)!r})"
    folders = tmp_path / "temporary"
    folders.mkdir()
    caller = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(folders)})
    wait_until(pids.exists)
    pid = int(pids.read_text())
    assert Path(f"/proc/{pid}").exists()
    assert list(folders.glob("flownet-run-*"))
    caller.kill()
    caller.wait()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not list(folders.glob("flownet-run-*"))


def test_what_cannot_be_sent_to_a_process_is_an_error_that_names_it(toy_file: ToyFile, tmp_path: Path) -> None:
    body = TOY.replace("def measure(", "import threading\nlock = threading.Lock()\n\ndef measure(", 1)
    body = body.replace("    if parameters", "    lock.acquire()\n    if parameters", 1)
    with pytest.raises(ConfigError, match=r"'toy': .*lock.* cannot be sent to the process of a run"):
        run(find_experiment(str(toy_file(body=body))), tmp_path / "out")


def test_a_bench_is_a_row_too_with_a_histogram_that_can_be_read(tmp_path: Path) -> None:
    from hdrh.histogram import HdrHistogram

    experiment = Experiment(
        "bench", "latency", parameters={"seconds": 0.2, "buffer_timeout": "0"}, grid={"rate": [1000]}, repetitions=1
    )
    run(experiment, tmp_path / "out")
    (row,) = rows_of(tmp_path / "out", "bench")
    assert row["error"] is None
    figures = dict(row["figures"])
    assert set(figures) == set(experiment.work.figures)
    read = HdrHistogram.decode(row["histogram"])
    assert read.get_value_at_percentile(50) / 1000 == pytest.approx(figures["p50_us"], rel=0.002)
    assert read.get_total_count() == json.loads(row["details"])["samples"]
    assert json.loads(row["details"])["settings"]["network"]["segment_bytes"] == 32768


def test_what_is_there_is_not_run_again_unless_it_was_asked_to_go_on(toy: Toy, tmp_path: Path) -> None:
    run(toy("grid={'load': [1, 2]}, repetitions=2"), tmp_path / "out")
    with pytest.raises(ConfigError, match=r"has 4 runs of 'toy': run what is missing with resume"):
        run(toy("grid={'load': [1, 2]}, repetitions=2"), tmp_path / "out")
    assert run(toy("grid={'load': [1, 2]}, repetitions=2"), tmp_path / "out", resume=True).ran == 0
    outcome = run(toy("grid={'load': [1, 2]}, repetitions=3"), tmp_path / "out", resume=True)
    assert (outcome.ran, outcome.done) == (2, 6)
    assert len(rows_of(tmp_path / "out")) == 6


def test_runs_of_another_description_are_not_mixed(toy: Toy, tmp_path: Path) -> None:
    run(toy("grid={'load': [1, 2]}"), tmp_path / "out")
    with pytest.raises(ConfigError, match="has runs of another 'toy': its cells differ"):
        run(toy("grid={'load': [1, 3]}"), tmp_path / "out", resume=True)
    with pytest.raises(ConfigError, match="its seed differ"):
        run(toy("grid={'load': [1, 2]}, seed=2"), tmp_path / "out", resume=True)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"on": "cloud"}, "on='cloud' must be 'local', 'spread' or 'across'"),
        ({"on": "spread"}, "on='spread' needs a Spark session"),
        ({"on": "across"}, "the workload 'toy' has its processes on one host"),
    ],
)
def test_a_way_that_cannot_be_is_refused(toy: Toy, tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run(toy(), tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_progress_says_done_running_failed_left_and_best(toy: Toy, tmp_path: Path) -> None:
    seen = list[list[str]]()
    run(
        toy("grid={'load': [1, 2, 13]}, repetitions=1"), tmp_path / "out", watch=lambda tally: seen.append(lines(tally))
    )

    def ended(number: int) -> list[str]:
        return next(shown for shown in seen if f" {number} of 3 done, 0 running" in shown[0])

    assert " 0 of 3 done, 1 running, 0 failed" in seen[0][0]
    assert seen[0][1].startswith("  running: load=")
    assert " left" not in seen[0][0]
    assert " left" in ended(1)[0]
    last = ended(3)
    assert ", 1 failed" in last[0]
    assert last[1].startswith("  best rate: 2")
    assert last[1].endswith("1/s with load=2")
    assert last[2] == "  last failure: load=13: ValueError: 13 is bad luck"


def lines(tally: RunCounter) -> list[str]:
    return progress_lines(tally)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_live_stream_is_counted_and_every_line_has_its_latency(tmp_path: Path, workers: int) -> None:
    experiment = Experiment(
        "live",
        "live-counts",
        parameters={"seconds": 0.4, "workers": workers},
        grid={"rate": [2000]},
        repetitions=1,
    )
    run(experiment, tmp_path / "out")
    (row,) = rows_of(tmp_path / "out", "live")
    assert row["error"] is None
    figures = dict(row["figures"])
    assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["p999_us"]
    assert figures["records_per_s"] > 0


def test_what_needs_spark_is_not_started_without(tmp_path: Path) -> None:
    experiment = Experiment("live", "live-counts", grid={"engine": ["spark", "flownet"]})
    with pytest.raises(ConfigError, match="cell engine=spark needs Spark itself: run it on 'across'"):
        run(experiment, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_scenario_of_the_laboratory_is_a_row(tmp_path: Path) -> None:
    experiment = Experiment(
        "lab",
        "head-of-line",
        parameters={"alone": "400ms", "both": "400ms", "crawling": "1200ms"},
        grid={"control": ["credit"]},
        repetitions=1,
    )
    run(experiment, tmp_path / "out")
    (row,) = rows_of(tmp_path / "out", "lab")
    assert row["error"] is None
    assert dict(row["figures"])["b3_ratio"] > 0
    assert dict(row["figures"])["dropped_bytes"] == 0
    with pytest.raises(ConfigError, match="crawl=20000 must be less than offered"):
        Experiment("lab", "head-of-line", parameters={"offered": "1kB/s"}, grid={"control": ["credit"]})
