"""Subjects of commits have the form ``area: verb object``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
START = "dea278b4a21fc2ead74106fbb093870c441594cf"
"""Commits after this one are checked. Move it on to accept a subject that is part of main already."""

SUBJECT = re.compile(r"(?=.{1,72}$)[a-z0-9_/.,-]+: \S.*")


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)


def test_subjects_of_new_commits_name_an_area_and_fit_72_characters() -> None:
    try:
        is_known = git("merge-base", "--is-ancestor", START, "HEAD").returncode == 0
    except FileNotFoundError:
        pytest.skip("there is no git")
    if not is_known:
        pytest.skip(f"no git checkout, or one without {START[:7]}: git fetch --unshallow")
    log = git("log", "--no-merges", "--format=%h %s", f"{START}..HEAD").stdout
    wrong = [line for line in log.splitlines() if not SUBJECT.fullmatch(line.partition(" ")[2])]
    assert wrong == [], "write `area: verb object`, at most 72 characters: git commit --amend, or git rebase -i"


@pytest.mark.parametrize(
    "subject", ["docs: add a page", "rust/flownet-net,tests: close idle connections", "ci: " + "x" * 68]
)
def test_a_subject_with_an_area_passes(subject: str) -> None:
    assert SUBJECT.fullmatch(subject)


@pytest.mark.parametrize(
    "subject", ["Add a page", "Docs: add a page", "docs add: a page", "docs:", "docs: ", "ci: " + "x" * 69]
)
def test_a_subject_without_an_area_or_too_long_does_not(subject: str) -> None:
    assert not SUBJECT.fullmatch(subject)
