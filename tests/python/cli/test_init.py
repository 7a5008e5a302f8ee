"""``flownet init`` writes a project whose job runs and whose tests pass."""

from __future__ import annotations

import csv
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(python: Python, tmp_path: Path) -> Path:
    finished = python("-m", "flownet", "init", "my-logs")
    assert finished.returncode == 0, finished.stderr
    assert "flownet run my_logs:env" in finished.stdout
    return tmp_path / "my-logs"


def test_its_tests_pass(python: Python, project: Path) -> None:
    finished = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert finished.returncode == 0, finished.stdout
    assert "3 passed" in finished.stdout


@pytest.mark.parametrize("name", ["counts", "parse", "logs", "testing"])
def test_its_tests_pass_whatever_it_is_called(python: Python, tmp_path: Path, name: str) -> None:
    assert python("-m", "flownet", "init", name).returncode == 0
    finished = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path / name)
    assert finished.returncode == 0, finished.stdout


def test_its_tests_can_fail(python: Python, project: Path) -> None:
    job = project / "my_logs.py"
    job.write_text(job.read_text().replace('Tumbling("10s")', 'Tumbling("5s")'))
    finished = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert finished.returncode == 1, finished.stdout


def test_its_job_counts_what_it_brings(python: Python, project: Path) -> None:
    finished = python("-m", "flownet", "run", "my_logs:env", "--workers", "2", cwd=project)
    assert finished.returncode == 0, finished.stderr
    rows = [row for path in (project / "counts").glob("*.csv") for row in csv.DictReader(path.read_text().splitlines())]
    lines = (project / "logs" / "sample.log").read_text().splitlines()
    assert sum(int(row["lines"]) for row in rows) == len(lines)
    assert {"begin": "2026-11-20T10:00:00+00:00", "level": "INFO", "lines": "3"} in rows


def test_its_job_reads_another_folder(python: Python, project: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "a.log").write_text("2026-11-20T10:00:01Z INFO one\n")
    assert python("-m", "flownet", "run", "my_logs:env", "--", "other", cwd=project).returncode == 0
    rows = [row for path in (project / "counts").glob("*.csv") for row in csv.DictReader(path.read_text().splitlines())]
    assert [row["lines"] for row in rows] == ["1"]


def test_its_files_name_each_other_and_nothing_is_left_to_fill_in(project: Path) -> None:
    described = tomllib.loads((project / "pyproject.toml").read_text())
    assert described["project"]["name"] == "my-logs"
    assert (project / f"{described['tool']['setuptools']['py-modules'][0]}.py").exists()
    assert '"my_logs:env"' in (project / "Dockerfile").read_text()
    assert (project / ".gitignore").exists()
    for path in project.rglob("*"):
        if path.is_file():
            assert "$name" not in path.read_text()
            assert "$module" not in path.read_text()


def test_a_folder_that_is_empty_will_do(python: Python, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert python("-m", "flownet", "init", "below").returncode == 0
    assert (tmp_path / "below" / "below.py").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("taken", "is there and not empty"),
        ("taken/file", "is there and not empty"),
        ("taken/file/below", "cannot be written: Not a directory"),
        ("a b", "is no name of a project"),
        ("..", "is no name of a project"),
        ("json", "would hide the module 'json'"),
        ("class", "would hide the module 'class'"),
        ("flownet", "would hide the module 'flownet'"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(python: Python, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    finished = python("-m", "flownet", "init", name)
    assert finished.returncode == 1
    assert finished.stderr.startswith("flownet.errors.ConfigError: ")
    assert text in finished.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "file"]
    assert (tmp_path / "taken" / "file").read_text() == "mine"
