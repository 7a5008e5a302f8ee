"""``flownet experiment``, in processes of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import TOY

Python = Callable[..., subprocess.CompletedProcess[str]]
UNTIL_ALLOWED = TOY.replace(
    "def measure(parameters, place):",
    """def measure(parameters, place):
    import pathlib, time
    while len(list(pathlib.Path("out/experiment=toy").glob("run-*"))) >= 3 and not pathlib.Path("go on").exists():
        time.sleep(0.01)
""",
)
"""Measures three times, and then as soon as a file says that it may."""


@pytest.fixture
def experiment(python: Python) -> Python:
    def experiment(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return python("-m", "flownet", "experiment", *arguments, **options)

    return experiment


def test_the_list_has_every_experiment_and_workload(experiment: Python) -> None:
    finished = experiment("list")
    assert finished.returncode == 0, finished.stderr
    for part in ("  buffer-timeout ", "  flink-grid ", "  exchange ", "  latency ", "runs)", "    partitioner "):
        assert part in finished.stdout


def test_show_checks_and_runs_nothing(experiment: Python, tmp_path: Path) -> None:
    finished = experiment("show", "flink-grid", "--repetitions", "2", "--set", "records=5000")
    assert finished.returncode == 0, finished.stderr
    assert "6 cells, 2 times each: 12 runs" in finished.stdout
    assert "  records=5000, writers=10, channels=1000, buffer_timeout=1 ms, partitioner=skewed" in finished.stdout
    assert list(tmp_path.iterdir()) == []


def test_run_leaves_parquet_and_says_what_it_did(experiment: Python, tmp_path: Path, toy_file: Any) -> None:
    toy_file()
    finished = experiment("run", "toy.py", "--out", "out")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("toy: 9 runs in ")
    assert "; 9 in out, 3 failed\n" in finished.stdout
    assert "9 of 9 done, 0 running, 3 failed" in finished.stderr
    assert len(list((tmp_path / "out" / "experiment=toy").glob("*.parquet"))) == 9
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["experiment=toy"]


def test_an_experiment_of_which_every_run_failed_is_a_failure(experiment: Python, toy_file: Any) -> None:
    toy_file("grid={'load': [13]}")
    assert experiment("run", "toy.py").returncode == 1


def test_a_bench_can_be_run_small(experiment: Python, tmp_path: Path) -> None:
    finished = experiment(
        "run", "buffer-timeout", "--set", "records=1000", "--set", "segment_size=4KiB", "--repetitions", "1"
    )
    assert finished.returncode == 0, finished.stderr
    assert " failed\n" not in finished.stdout
    assert len(list((tmp_path / "experiments" / "experiment=buffer-timeout").glob("*.parquet"))) > 4


def test_what_was_interrupted_goes_on_where_it_was(
    experiment: Python, tmp_path: Path, toy_file: Any, child_pids: Callable[[int], set[int]]
) -> None:
    toy_file("grid={'load': [1, 2, 3]}, repetitions=5", UNTIL_ALLOWED)
    command = [sys.executable, "-m", "flownet", "experiment", "run", "toy.py", "--out", "out"]
    results = tmp_path / "out" / "experiment=toy"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while len(list(results.glob("run-*.parquet"))) < 3:
            assert process.poll() is None, "it waits for leave to go on"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr.endswith("flownet: what has ended is in out; --resume runs the rest\nflownet: cancelled\n")
    done = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    assert 3 <= len(done) < 15

    (tmp_path / "go on").touch()
    finished = experiment("run", "toy.py", "--out", "out", "--resume")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith(f"toy: {15 - len(done)} runs in ")
    assert "; 15 in out\n" in finished.stdout
    assert len(list(results.iterdir())) == 15
    assert all(path.stat().st_mtime_ns == written for path, written in done.items())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["show", "nothing"], "ConfigError: there is no experiment 'nothing'; there are: "),
        (["run", "channels", "--set", "chanels=3"], "(did you mean 'channels'?)"),
        (["run", "channels", "--set", "writers"], "--set 'writers': write NAME=VALUE"),
        (["run", "channels", "--set", "channels=3"], "the cells of experiment 'channels' give channels themselves"),
        (["run", "channels", "--repetitions", "0"], "repetitions=0 must lie between 1 and 10000"),
        (["run", "channels", "--master", "local[2]"], "--master is for --on spread and --on across"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(experiment: Python, arguments: list[str], text: str) -> None:
    finished = experiment(*arguments)
    assert finished.returncode == 1
    assert text in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert finished.stdout == ""


def test_a_package_that_is_missing_is_named_with_the_extra(python: Python, toy_file: Any) -> None:
    toy_file()
    script = "import sys; sys.modules['pyarrow'] = None; from flownet.cli import main; sys.exit(main(sys.argv[1:]))"
    finished = python("-c", script, "experiment", "run", "toy.py")
    assert finished.returncode == 1
    assert "needs pyarrow: pip install 'flownet-streams[experiments]'" in finished.stderr
    assert finished.stderr.count("\n") == 1
