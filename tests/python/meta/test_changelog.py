"""Fragments of the changelog are such as towncrier collects: it leaves out files with other names without a word."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
TYPES = [kind["directory"] for kind in SETTINGS["type"]]
NAME = re.compile(rf"(?:\d+|\+[a-z0-9-]+)\.(?:{'|'.join(TYPES)})\.md")
FRAGMENTS = sorted(path for path in (ROOT / SETTINGS["directory"]).iterdir() if path.name != "README.md")


def test_a_release_goes_above_the_newest_section() -> None:
    text = (ROOT / SETTINGS["filename"]).read_text()
    before, marker, behind = text.partition(SETTINGS["start_string"])
    assert marker
    assert "\n## " not in before
    assert behind.lstrip().startswith("## ")


def test_fragments_have_names_that_towncrier_reads() -> None:
    wrong = [path.name for path in FRAGMENTS if not NAME.fullmatch(path.name)]
    assert wrong == [], f"name it NUMBER.TYPE.md or +words.TYPE.md, of {TYPES}: {SETTINGS['directory']}/README.md"


def test_fragments_are_one_line() -> None:
    assert [path.name for path in FRAGMENTS if len(path.read_text().strip().splitlines()) != 1] == []


def test_the_types_are_explained() -> None:
    text = (ROOT / SETTINGS["directory"] / "README.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == TYPES


@pytest.mark.parametrize("name", ["412.fixed.md", "+empty-dataframes.added.md"])
def test_a_name_of_number_or_words_and_type_is_right(name: str) -> None:
    assert NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["412.md", "fixed.md", "412.bugfix.md", "Empty.fixed.md", "412.fixed.rst"])
def test_other_names_are_wrong(name: str) -> None:
    assert not NAME.fullmatch(name)
