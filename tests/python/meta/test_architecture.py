"""ARCHITECTURE.md and the pages of docs/dev name crates, files, functions, threads and locks that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OVERVIEW = ROOT / "ARCHITECTURE.md"
LOCKS = ROOT / "docs" / "dev" / "locks.md"
PAGES = [OVERVIEW, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "dev").glob("*.md"))]
TEXTS = {page.name: page.read_text() for page in PAGES}

NAMED_PATH = re.compile(r"`((?:rust|python|tests|docs|benches|examples|changelog\.d|\.ci|\.github)/[^`*{}<> ]*)`")
"""A path from the root of the repository, without blanks and placeholders."""

NAMED_FUNCTION = re.compile(r"`(?:(\w+)::)?(\w+)` in `([^` ]+)`")
"""A function, type or constant, with the file that defines it."""

MADE_LATER = {"benches/history.jsonl"}
"""Files that a command writes."""

HOLDS_LOCK = re.compile(r"\b(?:(?:Async)?Mutex|Lock|CombiningLock|RwLock)<")
STRUCT = re.compile(r"^(?:pub(?:\([a-z]+\))? )?struct (\w+)[^;{(]*?(?:\{(.*?)^\}|\((.*?)\);)", re.MULTILINE | re.DOTALL)
"""A struct with its fields."""

LOCK_TYPES = {"Lock", "CombiningLock"}
OUTSIDE_PRODUCT = {"flownet-bench", "flownet-sim"}


def rust_sources() -> dict[Path, str]:
    return {path: path.read_text() for path in (ROOT / "rust").rglob("*.rs")}


SOURCES = rust_sources()
RUST = "\n".join(SOURCES.values())
PYTHON = "\n".join(path.read_text() for path in (ROOT / "python").rglob("*.py"))


def first_column(text: str) -> list[str]:
    """Names in the first column of all tables of a text."""
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell) if name[0].isupper() or "-" in name]


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def named(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """What the pages name, each with the page."""
    found: Iterator[tuple[str, ...]] = (
        (page, *match.groups(default="")) for page, text in TEXTS.items() for match in pattern.finditer(text)
    )
    return sorted(set(found))


def test_the_table_of_crates_is_complete() -> None:
    crates = [path.parent.name for path in (ROOT / "rust").glob("*/Cargo.toml")]
    rows = re.findall(r"^\| `([^`]+)` \|", section(TEXTS[OVERVIEW.name], "Crates"), re.MULTILINE)
    assert sorted(rows) == sorted([*crates, "python/flownet"])


@pytest.mark.parametrize(("page", "path"), named(NAMED_PATH))
def test_a_file_that_a_page_names_exists(page: str, path: str) -> None:
    assert path in MADE_LATER or (ROOT / path).exists(), page


@pytest.mark.parametrize(("page", "owner", "name", "path"), named(NAMED_FUNCTION))
def test_a_function_that_a_page_names_is_in_the_file(page: str, owner: str, name: str, path: str) -> None:
    source = (ROOT / path).read_text()
    keyword = "fn|def|function|struct|enum|trait|class|const"
    assert re.search(rf"\b(?:{keyword}) {name}\b|^{name}\b", source, re.MULTILINE), page
    assert re.search(rf"\b{owner}\b", source), page


@pytest.mark.parametrize("name", first_column(section(TEXTS[OVERVIEW.name], "Threads")))
def test_a_thread_that_it_names_is_started(name: str) -> None:
    assert f'"{name}"' in RUST + PYTHON


@pytest.mark.parametrize("name", first_column(TEXTS[LOCKS.name]))
def test_a_lock_that_it_names_is_in_a_type(name: str) -> None:
    assert re.search(rf"struct {name}\b", RUST)


def test_every_type_that_holds_a_lock_is_listed() -> None:
    holders = {
        name
        for path, source in SOURCES.items()
        if not OUTSIDE_PRODUCT & set(path.parts) and "tests" not in path.parts and not path.stem.endswith("tests")
        for name, braced, tupled in STRUCT.findall(source)
        if HOLDS_LOCK.search(re.sub(r"//.*", "", braced + tupled))
    }
    assert holders - LOCK_TYPES <= set(first_column(TEXTS[LOCKS.name]))
