"""The list of the exchange's behaviours is complete, and the tests it names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| ([A-Z]?\d+) \| (.+?) \| (.+) \|$", (ROOT / "tests" / "CHECKLIST.md").read_text(), re.MULTILINE)


def named_tests(file: Path) -> set[str]:
    """Names of the functions of a file that stand behind a test attribute."""
    source = file.read_text()
    tests = re.findall(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)", source)
    if file.suffix == ".py":
        tests = re.findall(r"^def (test_\w+)", source, re.MULTILINE)
    return set(tests)


def test_every_behaviour_is_listed_once() -> None:
    numbers = [number for number, _, _ in ROWS]
    flinks = [number for number in numbers if number.isdecimal()]
    assert flinks == [str(number) for number in (*range(1, 108), 110)]
    assert len(set(numbers)) == len(numbers)


def test_every_behaviour_has_a_test_or_a_reason() -> None:
    for number, _, answer in ROWS:
        named = re.findall(r"`([^`]+::[^`]+)`", answer)
        assert named or answer.startswith("Does not apply. "), f"behaviour {number}: {answer}"


def test_every_test_that_the_list_names_exists() -> None:
    for number, _, answer in ROWS:
        for place, name in re.findall(r"`([^`]+)::([^`]+)`", answer):
            file = ROOT / re.sub(r"^(memory|core|net|runtime|sim)/", r"rust/flownet-\1/", place)
            assert name in named_tests(file), f"behaviour {number}: no test {name} in {place}"
