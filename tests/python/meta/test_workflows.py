"""Workflows and settings of the public project parse, and what they name is there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def jobs(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job["steps"]


def make_targets(command: str) -> list[str]:
    """Names of the targets that a shell command makes, without settings such as ``PYTHON=python``."""
    called = re.findall(r"(?:^|[;&|]\s*)make ([^;&|\n]+)", command, re.MULTILINE)
    return [word for words in called for word in words.split() if re.fullmatch(r"[a-z][a-z0-9-]*", word)]


def named(ids: list[Path]) -> list[str]:
    return [path.name for path in ids]


@pytest.mark.parametrize("path", WORKFLOWS, ids=named(WORKFLOWS))
def test_a_workflow_has_a_name_permissions_and_an_end_for_each_job(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["name"]
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] and job["steps"] for job in workflow["jobs"].values())


def test_workflows_make_targets_that_the_makefile_has() -> None:
    called = {target for path in WORKFLOWS for step in steps(path) for target in make_targets(step.get("run", ""))}
    assert {"lint", "test-python", "test-rust", "test-loom", "test-sim", "site"} <= called
    there = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE))
    assert called - there == set()


def test_targets_of_a_command_are_found() -> None:
    assert make_targets("rustc --version && make build test PYTHON=python\nmake lint") == ["build", "test", "lint"]


def test_actions_are_pinned_to_a_major_version() -> None:
    used = [step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", action)] == []


def test_each_python_that_make_looks_for_is_tested() -> None:
    offered = re.findall(r"python(3\.\d+)", MAKEFILE.split("\n\n")[1])
    matrix = jobs(ROOT / ".github" / "workflows" / "ci.yml")["python"]["strategy"]["matrix"]["python"]
    assert sorted(matrix) == sorted(set(offered))
    assert PYPROJECT["project"]["requires-python"] == f">={min(matrix)}"


@pytest.mark.parametrize("path", FORMS, ids=named(FORMS))
def test_a_form_asks_for_something(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    asked = [part["attributes"]["label"] for part in form["body"] if part["type"] != "markdown"]
    assert len(asked) == len(set(asked)) >= 2


def test_the_tools_before_a_commit_are_those_of_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = {hook["id"] for repository in config["repos"] for hook in repository["hooks"]}
    assert {"ruff-check", "ruff-format", "mypy", "cargo-fmt", "typos", "end-of-file-fixer", "commit-subject"} <= hooks
