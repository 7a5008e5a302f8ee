"""ARCHITECTURE.md names crates, files, threads and locks that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
SOURCES = "\n".join(path.read_text() for path in (ROOT / "rust").rglob("*.rs"))


def first_column(heading: str) -> list[str]:
    """Names in the first column of the table under a heading."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \|", section, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_table_of_crates_is_complete() -> None:
    crates = [path.parent.name for path in (ROOT / "rust").glob("*/Cargo.toml")]
    assert sorted(first_column("Crates")) == sorted([*crates, "python/flownet"])


@pytest.mark.parametrize("path", re.findall(r"`(flownet-[a-z]+/[^`]*)`", TEXT))
def test_a_file_that_it_names_exists(path: str) -> None:
    folder, _, names = path.partition("{")
    for name in names.removesuffix("}").split(","):
        assert (ROOT / "rust" / folder / name).exists()


@pytest.mark.parametrize("name", first_column("Threads"))
def test_a_thread_that_it_names_is_started(name: str) -> None:
    assert f'"{name}"' in SOURCES


@pytest.mark.parametrize("name", first_column("Locks"))
def test_a_lock_that_it_names_is_in_a_type(name: str) -> None:
    assert re.search(rf"struct {name}\b", SOURCES)


def test_it_fits_two_screens() -> None:
    assert len(TEXT.splitlines()) <= 110
