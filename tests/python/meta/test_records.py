"""Design records have one form, and the index and the navigation list each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]


def test_records_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_short_and_has_all_sections(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert "\nStatus: " in text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= 60


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_listed_by_its_title(path: Path) -> None:
    _, title = path.read_text().splitlines()[0].split(". ", 1)
    row = f"| [{int(path.name[:4])}]({path.name}) | {title} |"
    assert row in (FOLDER / "index.md").read_text().splitlines()
    assert f"adr/{path.name}" in (ROOT / "mkdocs.yml").read_text()
