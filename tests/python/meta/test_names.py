"""Type names are nouns, and retired words do not come back. The words in use are in docs/dev/glossary.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

RETIRED = frozenset(
    """
    Act All Answered Asked At Awaited Awake Become Becomes Behind Bell Best Board Both Brake Brought Claim Crew Door Due
    During Each Everywhere Exit Fed Flow Foreign Found Gone Grid Handed Held Here Hub Intake Kept Known Lack Lane Late
    Left Lying Made Medium Met Misfit News Nobody Noted Notes Own Past Pieces Read Rest Roll Said Seat Seen Sent Shelf
    Shown Since Sliced Somebody Spent Taken Tally Then There Till Told Undealt Until What Whatever Who Whole Wholes
    Windows Written
    """.split()
)
"""Bare participles, pronouns and prepositions that types were called, and private words for concepts of the field."""

NOUNS = frozenset(
    """
    Building Encoding Feed Greeting Hashing Listing Meaning Pairing Reading Seed Setting Speed Staging String Swapping
    Tearing Thing Thread Wiring Writing
    """.split()
)
"""Words that end like a participle and are none, or that are nouns, too."""

FAMILIAR = frozenset({"Sliding", "Then", "Tumbling", "When"})
"""Names that users know from polars and PyFlink."""

RUST_TYPE = re.compile(r"^\s*(?:pub(?:\([a-z: _]+\))? )?(?:struct|enum|trait|type|union) ([A-Z]\w*)", re.M)
PYTHON_CLASS = re.compile(r"^\s*class _?([A-Z]\w*)", re.M)


def types() -> Iterator[tuple[str, Path]]:
    for folder, suffix, pattern in (("rust", "*.rs", RUST_TYPE), ("python", "*.py", PYTHON_CLASS)):
        for path in sorted((ROOT / folder).rglob(suffix)):
            for name in pattern.findall(path.read_text()):
                yield name, path.relative_to(ROOT)


def is_retired(name: str) -> bool:
    if name in FAMILIAR:
        return False
    is_one_word = re.fullmatch(r"[A-Z][a-z]+", name) is not None
    is_participle = is_one_word and name.endswith(("ed", "ing")) and name not in NOUNS
    return name in RETIRED or is_participle


def test_types_are_called_by_nouns() -> None:
    found = [f"{path}: {name}" for name, path in types() if is_retired(name)]
    assert not found, "a type is named by a noun, see docs/dev/glossary.md:\n" + "\n".join(found)


@pytest.mark.parametrize("name", ["Told", "Queued", "Waiting", "Crew", "Medium"])
def test_retired_names_are_recognised(name: str) -> None:
    assert is_retired(name)


@pytest.mark.parametrize("name", ["QueuedElement", "Encoding", "WorkerPool", "Then", "Thread"])
def test_nouns_are_not(name: str) -> None:
    assert not is_retired(name)
