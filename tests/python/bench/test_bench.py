"""``flownet bench`` at sizes at which figures mean nothing: they must be there, and sums must be checked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Python = Callable[..., subprocess.CompletedProcess[str]]

KEYS = {
    "bench",
    "settings",
    "seconds",
    "records_per_s",
    "bytes_per_s",
    "cpu_ns_per_record",
    "cpu_cores",
    "peak_rss_mb",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "raw_tcp_records_per_s",
    "ratio_to_raw_tcp",
    "details",
    "machine",
    "versions",
}
LATENCIES = ["p50_us", "p99_us", "p999_us", "max_us"]


@pytest.fixture
def bench(python: Python) -> Python:
    def bench(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return python("-m", "flownet", "bench", *arguments, **options)

    return bench


def runs_of(finished: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert finished.returncode == 0, finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--writers", "2", "--channels", "3", "--partitioner", "hash", "--buffer-timeout", "0"],
        ["--channels", "3", "--partitioner", "broadcast", "--buffer-timeout", "none"],
        ["--writers", "2", "--channels", "3", "--partitioner", "skewed", "--buffer-timeout", "1ms"],
        ["--channels", "9", "--active", "2", "--exclusive-buffers", "0", "--segment-size", "4KiB"],
        ["--record-bytes", "40000"],
        ["--local", "--channels", "2"],
        ["--flow-control", "tcp", "--writers", "2", "--channels", "3"],
    ],
    ids=" ".join,
)
def test_an_exchange_is_one_line_of_json_with_every_figure(bench: Python, arguments: list[str]) -> None:
    (run,) = runs_of(bench("exchange", "--records", "2000", "--json", *arguments))
    assert set(run) == KEYS
    assert run["bench"] == "exchange"
    copies = 3 if "broadcast" in arguments else 1
    assert run["records_per_s"] * run["seconds"] == pytest.approx(2000 * copies)
    assert run["bytes_per_s"] == pytest.approx(run["records_per_s"] * (run["settings"]["record_bytes"] + 4))
    for key in ("cpu_ns_per_record", "cpu_cores", "peak_rss_mb", "raw_tcp_records_per_s", "ratio_to_raw_tcp"):
        assert run[key] > 0, key
    assert [run[key] for key in LATENCIES] == [None] * 4
    assert run["machine"]["cores"] > 0
    assert set(run["versions"]) == {"build", "flownet", "python"}
    assert (run["details"]["sender"]["bytes_out"] > 0) == ("--local" not in arguments)


def test_what_was_asked_for_is_what_was_run(bench: Python) -> None:
    arguments = ["--writers", "2", "--channels", "3", "--buffer-timeout", "250us", "--record-bytes", "16"]
    runs = runs_of(bench("exchange", "--records", "100", "--repeat", "2", "--json", *arguments))
    assert len(runs) == 2
    for run in runs:
        settings = run["settings"]
        assert (settings["writers"], settings["channels"], settings["record_bytes"]) == (2, 3, 16)
        assert (settings["buffer_timeout_us"], settings["records"], settings["partitioner"]) == (250, 100, "rr")


def test_the_grid_runs_its_rows_in_turn_and_ends_in_a_table(bench: Python) -> None:
    finished = bench("exchange", "--grid", "flink", "--records", "20000", "--repeat", "2")
    assert finished.returncode == 0, finished.stderr
    head, columns, *rows = finished.stdout.splitlines()
    assert "cores of" in head
    assert columns.split()[0] == "exchange"
    assert [row.split("  ")[0] for row in rows] == [
        "1 writer x 1 channel, 100 ms, 8 B, rr",
        "4 writers x 100 channels, 100 ms, 8 B, rr",
        "4 writers x 1000 channels, 1 ms, 8 B, rr",
        "4 writers x 1000 channels, 100 ms, 8 B, rr",
        "10 writers x 1000 channels, 1 ms, 8 B, skewed",
        "4 writers x 100 channels, 100 ms, 8 B, broadcast",
    ]
    progress = finished.stderr.splitlines()
    assert len(progress) == 12
    assert progress[6].startswith("run 7 of 12: 1 writer x 1 channel, 100 ms, 8 B, rr: ")


def test_a_latency_has_its_quantiles_and_those_of_its_twin(bench: Python) -> None:
    (run,) = runs_of(bench("latency", "--rate", "2000", "--seconds", "0.3", "--json"))
    assert set(run) == KEYS
    latencies = [run[key] for key in LATENCIES]
    assert latencies == sorted(latencies)
    assert latencies[0] > 0
    assert run["ratio_to_raw_tcp"] > 0
    for twin in ("raw_tcp", "half_ping_pong", "wake_up"):
        assert run["details"][twin]["p50_us"] > 0, twin


def test_a_latency_is_a_table_too(bench: Python) -> None:
    finished = bench("latency", "--rate", "1000", "--seconds", "0.1", "--buffer-timeout", "2ms")
    assert finished.returncode == 0, finished.stderr
    _, columns, row = finished.stdout.splitlines()
    assert columns.startswith("latency")
    assert row.startswith("1 channel, 2 ms, 8 B, 1000/s ")


def test_an_idle_exchange_can_be_measured(bench: Python) -> None:
    (run,) = runs_of(bench("latency", "--rate", "0", "--channels", "20", "--seconds", "0.1", "--json"))
    assert run["p50_us"] is None
    assert 0 < run["cpu_cores"] < 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["exchange", "--writers", "0"], "flownet.errors.ConfigError: writers is 0, allowed is 1 to 1024"),
        (["exchange", "--record-bytes", "4"], "record-bytes is 4, allowed is 8 to"),
        (["exchange", "--records", "0"], "records is 0, allowed is 1 to"),
        (["exchange", "--channels", "2", "--active", "3"], "active is 3, allowed is 1 to 2"),
        (["exchange", "--buffer-timeout", "5"], "buffer_timeout=5 needs a unit"),
        (["exchange", "--network-memory", "much"], "network_memory='much' is not a size"),
        (["exchange", "--repeat", "0"], "--repeat 0: must be at least 1"),
        (["exchange", "--network-memory", "32KiB"], "the sender failed: insufficient segments: "),
        (["latency", "--rate", "-1"], "rate is -1, allowed is 0 to"),
        (["latency", "--seconds", "0"], "seconds is 0, allowed is 0.05 to"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(bench: Python, arguments: list[str], text: str) -> None:
    finished = bench(*arguments)
    assert finished.returncode == 1
    assert text in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert finished.stdout == ""


def test_the_help_says_what_every_figure_means(bench: Python) -> None:
    for name in ("exchange", "latency"):
        text = bench(name, "--help").stdout
        for key in KEYS - {"bench", "settings", "seconds", "p99_us", "p999_us"}:
            assert key in text, key


def test_ctrl_c_leaves_no_process(tmp_path: Path, child_pids: Callable[[int], set[int]]) -> None:
    command = [sys.executable, "-m", "flownet", "bench", "latency", "--rate", "10", "--seconds", "600"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while len(children := child_pids(process.pid)) < 2:
            assert process.poll() is None, "the processes of the bench did not start"
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr.endswith("flownet: cancelled\n")
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_the_processes_of_a_bench_that_was_killed_end_themselves(
    tmp_path: Path, child_pids: Callable[[int], set[int]]
) -> None:
    command = [sys.executable, "-m", "flownet", "bench", "latency", "--rate", "10", "--seconds", "600"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while len(children := child_pids(process.pid)) < 2:
            assert process.poll() is None, "the processes of the bench did not start"
            time.sleep(0.01)
        process.kill()
    # Did one outlive its bench, this would never end.
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.01)
