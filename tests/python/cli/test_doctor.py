"""``flownet doctor`` says what a machine has and lacks, and runs a job to see."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flownet.cli import checks

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_it_runs_a_job_and_names_each_extra(python: Python) -> None:
    finished = python("-m", "flownet", "doctor", "--json")
    assert finished.returncode == 0, finished.stdout
    said = json.loads(finished.stdout)
    assert said["can_run"] is True
    verdicts = {check["name"]: check["verdict"] for check in said["checks"]}
    assert verdicts["a job"] == verdicts["loopback"] == "ok"
    assert {"[spark]", "[kafka]", "[lab]"} <= set(verdicts)


def test_for_people_it_is_a_line_a_check(python: Python) -> None:
    finished = python("-m", "flownet", "doctor")
    assert finished.returncode == 0, finished.stdout
    lines = finished.stdout.splitlines()
    assert lines[-1] == "jobs can run here"
    assert [line for line in lines if line.split()[:3] == ["ok", "a", "job"]]


def test_where_no_worker_can_start_the_exit_code_is_1(python: Python) -> None:
    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))

    finished = python("-m", "flownet", "doctor", preexec_fn=few_files)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "Traceback" not in finished.stderr
    failed = [line for line in finished.stdout.splitlines() if line.startswith("fails")]
    assert any("a job" in line for line in failed), finished.stdout
    assert finished.stdout.splitlines()[-1].startswith("no job can run here")


def test_a_folder_for_temporary_files_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    check = checks.temporary_files()
    assert (check.verdict, check.found) == ("note", "No such file or directory")
    assert "TMPDIR" in check.advice


def test_a_low_limit_of_files_comes_with_the_command_that_raises_it() -> None:
    assert checks.open_files(256, 4096).advice == "ulimit -n 1024"
    assert checks.open_files(256, resource.RLIM_INFINITY).advice == "ulimit -n 1024"
    assert checks.open_files(256, 512).advice == "raise the hard limit to 1024 or more, as root"
    assert checks.open_files(1024, 1024).verdict == "ok"
    assert "enough for 192 workers" in checks.open_files(1024, 1024).found


def test_java_before_17_and_none_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert checks.java_version() is None
    answers = {'openjdk version "17.0.15" 2025-04-15': 17, 'java version "1.8.0_401"': 8, "what": None}
    for said, version in answers.items():
        command.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        command.chmod(0o755)
        assert checks.java_version() == version
    assert [checks.java(version).verdict for version in (None, 8, 16, 17, 21)] == ["note", "note", "note", "ok", "ok"]


def test_memory_that_no_two_workers_fit_into_is_told() -> None:
    verdicts = [checks.memory(free).verdict for free in (64 << 20, 200 << 20, 8 << 30, None)]
    assert verdicts == ["note", "note", "ok", "ok"]
