"""The prose of user pages keeps to the rules, or at least gets no worse.

`python tests/python/meta/test_prose.py` prints the counts of all pages that have a ceiling.
`python tests/python/meta/test_prose.py --lower` lowers ceilings to today's counts. It never raises one.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
CEILINGS = Path(__file__).with_name("prose.json")
NOT_FOR_USERS = {"dev", "adr", "internals"}
"""Folders of pages for contributors."""
FOR_LOOKING_UP = {"reference", "coming-from", "benchmarks.md"}
"""Folders and pages that are tables for the most part."""


@dataclass(frozen=True)
class Counts:
    """The counts of one page, or the most that it may have."""

    mean_sentence: float = 15.0
    """Mean number of words of a sentence."""
    long_sentences: int = 0
    """Sentences of more than 30 words."""
    percent_in_cells: float = 10.0
    """Share of words that stand in table cells."""
    long_cells: int = 0
    """Cells of more than 12 words."""
    noun_whats: int = 0
    """Clauses with "what" in place of a noun."""
    retired_words: int = 0
    """Words that the docs no longer use."""
    long_lines: int = 0
    """Lines of more than 120 characters without targets of links, outside of tables and programs."""

    def within(self, most: Counts) -> bool:
        """Return whether no count is above its ceiling."""
        return all(count <= limit for count, limit in zip(astuple(self), astuple(most), strict=True))

    def lowered_to(self, counts: Counts, strict: Counts) -> Counts:
        """Return these ceilings lowered to a page's counts, but not below those of new pages."""
        lowered = (
            min(old, max(new, limit))
            for old, new, limit in zip(astuple(self), astuple(counts), astuple(strict), strict=True)
        )
        return Counts(*lowered)


FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])")
INLINE_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
TAG = re.compile(r"</?[a-zA-Z][^>]*>")
ITEM = re.compile(r"^ *(?:[-*+]|\d+\.) +")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9`])")
WORD = re.compile(r"\w")
NOUN_WHAT = re.compile(
    r"\b[Ww]hat(?:ever)? (?:is|are|was|were|has|have|had|it|they|he|she|you|we|a|an|the|comes?|came|goes|may|must|can"
    r"|cannot|does|did|no|one|there|this|that|of|fits|stands|follows|remains)\b"
)
RETIRED = re.compile(r"\b(?:nobody|somebody|whoever|anew|goes on|behind)\b", re.IGNORECASE)
MOST_SENTENCE_WORDS = 30
MOST_CELL_WORDS = 12
MOST_LINE_CHARACTERS = 120


def user_pages() -> list[str]:
    pages = (page.relative_to(DOCS) for page in DOCS.rglob("*.md"))
    return sorted(page.as_posix() for page in pages if page.parts[0] not in NOT_FOR_USERS)


def ceilings() -> dict[str, Counts]:
    return {page: Counts(**most) for page, most in json.loads(CEILINGS.read_text()).items()}


def strict_of(page: str) -> Counts:
    """Return the ceilings of a page that has none of its own."""
    return Counts(percent_in_cells=100.0) if page.split("/")[0] in FOR_LOOKING_UP else Counts()


def words(text: str) -> int:
    return sum(1 for word in text.split() if WORD.search(word))


def plain(text: str) -> str:
    """Return text without marks. Inline code counts as one word."""
    return TAG.sub("", LINK.sub(r"\1", INLINE_CODE.sub("`code`", text)))


def paragraphs(lines: list[str]) -> Iterator[str]:
    """Yield paragraphs and list items, each as one line."""
    gathered: list[str] = []
    for line in [*lines, ""]:
        starts_item = ITEM.match(line)
        ends = not line.strip() or line.startswith(("#", ":::", "!!!", "???", "    options:"))
        if gathered and (ends or starts_item):
            yield " ".join(gathered)
            gathered = []
        if not ends:
            gathered.append(ITEM.sub("", line).strip())


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def count(markdown: str) -> Counts:
    text = COMMENT.sub("", FENCE.sub("", markdown))
    lines = text.splitlines()
    rows = [line for line in lines if line.lstrip().startswith("|")]
    prose = [line for line in lines if not line.lstrip().startswith("|")]
    in_cells = [words(plain(cell)) for row in rows if not re.fullmatch(r"[|:\s-]+", row) for cell in cells(row)]
    # Inline code may stand over the end of a line, so marks go after lines are joined.
    joined = [plain(PICTURE.sub("", paragraph)) for paragraph in paragraphs(prose)]
    sentences = [sentence for paragraph in joined for sentence in SENTENCE_END.split(paragraph) if words(sentence)]
    lengths = [words(sentence) for sentence in sentences]
    # Questions may ask what something is.
    statements = [sentence for sentence in sentences if not sentence.endswith("?")] + [plain(row) for row in rows]
    total = sum(lengths) + sum(in_cells)
    return Counts(
        mean_sentence=_up(sum(lengths) / max(len(lengths), 1)),
        long_sentences=sum(length > MOST_SENTENCE_WORDS for length in lengths),
        percent_in_cells=_up(100 * sum(in_cells) / max(total, 1)),
        long_cells=sum(length > MOST_CELL_WORDS for length in in_cells),
        noun_whats=sum(len(NOUN_WHAT.findall(statement)) for statement in statements),
        retired_words=sum(len(RETIRED.findall(statement)) for statement in statements),
        long_lines=sum(len(LINK.sub(r"[\1]()", line)) > MOST_LINE_CHARACTERS for line in prose),
    )


def _up(value: float) -> float:
    return math.ceil(value * 10 - 1e-9) / 10


def worse(counts: Counts, most: Counts) -> list[str]:
    return [
        f"{field.name}: {getattr(counts, field.name)}, at most {getattr(most, field.name)}"
        for field in fields(Counts)
        if getattr(counts, field.name) > getattr(most, field.name)
    ]


@pytest.mark.parametrize("page", user_pages())
def test_a_page_is_no_worse_than_its_ceiling(page: str) -> None:
    most = ceilings().get(page, strict_of(page))
    found = worse(count((DOCS / page).read_text()), most)
    assert not found, (
        f"docs/{page}: {'; '.join(found)}. Shorten the sentences, or say it without these words: see the section "
        "Prose of CONTRIBUTING.md. If other counts went down, lower their ceilings by "
        "`python tests/python/meta/test_prose.py --lower`"
    )


def test_each_ceiling_has_its_page() -> None:
    gone = sorted(set(ceilings()) - set(user_pages()))
    assert not gone, f"delete the entries of {', '.join(gone)} from {CEILINGS.name}: these pages are gone"


def test_a_ceiling_is_above_those_of_new_pages() -> None:
    needless = [page for page, most in ceilings().items() if most.within(strict_of(page))]
    assert not needless, f"delete the entries of {', '.join(needless)} from {CEILINGS.name}: pages need no such entry"


SAMPLE = """# What it is

What it does is told by whoever asks. It goes on `for x in y`,
as long as the [page](a.md) lasts! What is new?

- An item that says one thing
- Another item. With two sentences.

| what a cell has | b |
|---|---|
| one two three four five six seven eight nine ten eleven twelve thirteen | x |

```python
what is here counts for nothing, and it may be as long as it likes, since a program has lines of its own, of any length
```
"""


def test_counts_of_a_sample() -> None:
    counts = count(SAMPLE)
    # "What is new?" asks. Sentences have 7, 11, 3, 6, 2 and 3 words, cells 4, 1, 13 and 1.
    assert counts == Counts(
        mean_sentence=5.4,
        long_sentences=0,
        percent_in_cells=37.3,
        long_cells=1,
        noun_whats=2,
        retired_words=2,
        long_lines=0,
    )


def test_long_sentences_and_lines_are_counted() -> None:
    counts = count(" ".join(["word"] * 31) + ". Short.")
    assert (counts.long_sentences, counts.long_lines, counts.mean_sentence) == (1, 1, 16.0)


def test_ceilings_only_go_down() -> None:
    most = Counts(mean_sentence=20.0, long_sentences=3, long_lines=1)
    found = Counts(mean_sentence=22.0, long_sentences=1, percent_in_cells=4.0, long_lines=0)
    assert most.lowered_to(found, Counts()) == Counts(mean_sentence=20.0, long_sentences=1)


def main(arguments: list[str]) -> None:
    kept: dict[str, Counts] = {}
    for page, most in sorted(ceilings().items()):
        if (DOCS / page).is_file():
            counts = count((DOCS / page).read_text())
            print(page, counts)
            lowered = most.lowered_to(counts, strict_of(page))
            if not lowered.within(strict_of(page)):
                kept[page] = lowered
    if arguments == ["--lower"]:
        write(kept)


def write(kept: dict[str, Counts]) -> None:
    """Write ceilings, a page a line."""
    lines = [f"  {json.dumps(page)}: {json.dumps(asdict(most))}" for page, most in sorted(kept.items())]
    CEILINGS.write_text("{\n" + ",\n".join(lines) + "\n}\n" if lines else "{}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
