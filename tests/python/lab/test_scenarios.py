"""Each scenario in short, with real workers: directions and exact accounts; how fast the machine is does not matter."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flownet.lab.scenarios import SCENARIOS

if TYPE_CHECKING:
    from tests.python.lab.conftest import Python


def by_control(lab: Python, scenario: str, *arguments: str) -> dict[str, dict[str, Any]]:
    finished = lab(scenario, "--json", *arguments)
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert {line["scenario"] for line in lines} == {scenario}
    return {line["control"]: line for line in lines}


def assert_accounts(line: dict[str, Any]) -> None:
    """Every byte that was sent has arrived or was counted as dropped, unless the run was stopped."""
    if line["stopped_after_s"] is None:
        assert line["lost_bytes"] == 0
        assert line["sent_bytes"] > 0


def test_overflow(lab: Python) -> None:
    lines = by_control(lab, "overflow")
    assert list(lines) == ["credit", "tcp", "static", "storm", "pid", "drop", "unbounded"]
    for line in lines.values():
        assert_accounts(line)
    credit = lines["credit"]
    assert credit["time_to_full_s"] is not None
    assert credit["peak_in_flight_bytes"] < 1_000_000
    assert credit["settled_rate_ratio"] < 1.5
    assert {name for name, line in lines.items() if line["dropped_bytes"]} == {"static", "drop"}
    assert lines["static"]["dropped_before_change_bytes"] == 0
    assert lines["drop"]["dropped_before_change_bytes"] > 0
    stopped = {name for name, line in lines.items() if line["stopped_after_s"] is not None}
    # A controller that looks once a second may come too late.
    assert {"unbounded"} <= stopped <= {"unbounded", "pid"}


def test_head_of_line(lab: Python) -> None:
    lines = by_control(lab, "head-of-line", "--control", "credit,tcp,drop")
    for line in lines.values():
        assert_accounts(line)
    credit, tcp, drop = lines["credit"], lines["tcp"], lines["drop"]
    assert credit["b4_ratio"] < 0.2
    assert credit["b3_ratio"] > 2 * tcp["b3_ratio"]
    assert credit["dropped_bytes"] == tcp["dropped_bytes"] == 0
    assert drop["dropped_bytes"] > 0


def test_propagation(lab: Python) -> None:
    lines = by_control(lab, "propagation", "--control", "credit")
    credit = lines["credit"]
    assert_accounts(credit)
    after = credit["throttled_after_s"]
    assert list(after) == ["source", "map 1", "map 2"]
    assert after["map 2"] < after["map 1"] < after["source"]
    assert credit["within_bound"] is True
    assert credit["peak_in_flight_bytes"] <= credit["bound_bytes"]
    assert credit["dropped_bytes"] == 0


def test_varying(lab: Python) -> None:
    lines = by_control(lab, "varying", "--control", "credit,static")
    for line in lines.values():
        assert_accounts(line)
    credit = lines["credit"]
    assert 0.3 < credit["efficiency"] <= 1.02
    assert credit["peak_in_flight_bytes"] <= credit["bound_bytes"]


def test_skew(lab: Python) -> None:
    lines = by_control(lab, "skew", "--control", "credit", "--control", "drop")
    for line in lines.values():
        assert_accounts(line)
    assert lines["credit"]["dropped_bytes"] == 0
    assert lines["credit"]["sent_ratio"] < 0.9
    assert lines["drop"]["dropped_bytes"] > 0


def test_buffer_timeout(lab: Python) -> None:
    credit = by_control(lab, "buffer-timeout")["credit"]
    for measure in ("records_per_s", "p50_us", "p99_us"):
        assert list(credit[measure]) == ["-1", "100", "10", "5", "1", "0"]
        assert min(credit[measure].values()) > 0
    assert credit["p50_us"]["0"] < credit["p50_us"]["100"]


def test_every_sample_is_a_row(lab: Python, tmp_path: Path) -> None:
    finished = lab("skew", "--control", "credit", "--rows", "rows.csv", "--json")
    assert finished.returncode == 0, finished.stderr
    with open(tmp_path / "rows.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["scenario", "control", "seconds", "task", "measure", "value"]
    assert {row["task"] for row in rows} == {"producer", "hot", "others", "flow"}
    times = sorted({float(row["seconds"]) for row in rows})
    assert times[0] < 0.1
    assert len(times) >= 10 * 1.5, "sampled at 10 Hz or faster"
    assert len({(row["seconds"], row["task"], row["measure"]) for row in rows}) == len(rows)
    for task in ("hot", "others"):
        taken = [float(row["value"]) for row in rows if (row["task"], row["measure"]) == (task, "in_bytes")]
        assert taken == sorted(taken)
        assert taken[-1] > 0


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_the_defaults_of_a_scenario_make_sense(name: str) -> None:
    scenario = SCENARIOS[name]()
    scenario.check()
    assert scenario.duration() < 60
    assert scenario.question.endswith("?")
