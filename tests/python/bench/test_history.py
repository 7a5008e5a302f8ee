"""``benches/history.py``: results of benches are kept with commit, date and machine."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HISTORY = ROOT / "benches" / "history.py"
CODEC = ROOT / "benches" / "python" / "object_codec.py"


def history(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HISTORY), "--history", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def kept(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_results_of_a_bench_are_appended_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    for _ in range(2):
        finished = history(file, "run", "object_codec", sys.executable, str(CODEC), "--smoke", "--json", "tuple")
        assert (finished.returncode, finished.stderr) == (0, "")
        assert "encode_ns" in finished.stdout
    assert [result["name"] for result in kept(file)] == 2 * ["tuple/str,int", "tuple/str,int,float"]
    result = kept(file)[0]
    assert result["bench"] == "object_codec"
    assert result["numbers"].keys() >= {"encoded_bytes", "encode_ns", "decode_ns"}
    assert result["numbers"]["encoded_bytes"] == 8
    assert result["machine"]["python"] == platform.python_version()
    lines = history(file, "show", "str,int,float").stdout.splitlines()
    assert len(lines) == 2
    assert all("object_codec  tuple/str,int,float" in line for line in lines)


def test_lists_of_numbers_are_numbers_and_words_are_the_name(tmp_path: Path) -> None:
    row = {"job": "reduce", "place": "local", "reuse": True, "rate": [1234567.89, 1.0, 2.5], "records": 10}
    program = f"import json; print('2 cores'); print(json.dumps({row!r}))"
    finished = history(tmp_path / "file", "run", "jobs", sys.executable, "-c", program)
    assert finished.stdout.splitlines()[0] == "2 cores"
    (result,) = kept(tmp_path / "file")
    assert result["name"] == "reduce/local/True"
    assert result["numbers"] == {"rate": [1234570.0, 1.0, 2.5], "records": 10}


def test_a_bench_that_fails_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    program = 'import sys; print(\'{"job": "one", "seconds": 1.5}\'); sys.exit(3)'
    assert history(tmp_path / "file", "run", "jobs", sys.executable, "-c", program).returncode == 3
    assert not (tmp_path / "file").exists()


def test_a_history_that_is_not_there_is_said(tmp_path: Path) -> None:
    finished = history(tmp_path / "file", "show")
    assert finished.returncode == 1
    assert finished.stderr.endswith("file: no results yet; `make bench` adds some\n")


def test_new_estimates_of_criterion_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command writes what Criterion 0.8 writes, into the folder that it is given."""
    program = """
import json, os, pathlib
def write(name, estimates, throughput):
    folder = pathlib.Path(os.environ["CRITERION_HOME"], name, "new")
    folder.mkdir(parents=True)
    (folder / "estimates.json").write_text(json.dumps(estimates))
    (folder / "benchmark.json").write_text(json.dumps({"full_id": name, "throughput": throughput}))
def estimate(at, lower, upper):
    return {"point_estimate": at, "confidence_interval": {"lower_bound": lower, "upper_bound": upper}}
write("flat/one", {"mean": estimate(50.0, 40.0, 80.0), "slope": None}, {"Elements": 100})
write("linear", {"mean": estimate(9.0, 9.0, 9.0), "slope": estimate(5.0, 4.0, 8.0)}, None)
"""
    monkeypatch.setenv("CRITERION_HOME", str(tmp_path / "criterion"))
    finished = history(tmp_path / "file", "run", "exchange", sys.executable, "-c", program)
    assert (finished.returncode, finished.stderr) == (0, "")
    results = {result["name"]: result["numbers"] for result in kept(tmp_path / "file")}
    assert results["flat/one"] == {"ns": [50.0, 40.0, 80.0], "elements_per_s": [2e9, 1.25e9, 2.5e9]}
    assert results["linear"] == {"ns": [5.0, 4.0, 8.0]}
    assert history(tmp_path / "file", "run", "exchange", sys.executable, "-c", "pass").returncode == 0
    assert len(kept(tmp_path / "file")) == 2, "earlier estimates are kept once"
