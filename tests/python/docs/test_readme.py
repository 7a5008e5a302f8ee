"""What the README shows is true. The job over Kafka is tested in tests/python/exactly_once/kafka/test_readme.py."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import flownet as fn

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", README, re.DOTALL)


def test_every_program_shows_its_output_but_that_of_kafka() -> None:
    programs = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert [program for program in programs if "Kafka" not in program] == [program for program, _ in PROGRAMS]


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_programs_print_the_output_that_the_readme_shows(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, program: str, output: str
) -> None:
    (tmp_path / "script.py").write_text(program)
    finished = python("script.py")
    assert (finished.returncode, finished.stderr, finished.stdout) == (0, "", output)


def test_the_make_targets_that_the_readme_names_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"\bmake ([a-z-]+)", README)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_class_that_the_readme_names_exists() -> None:
    for name in re.findall(r"\bfn\.([A-Z]\w+)", README):
        assert hasattr(fn, name), name


def test_the_files_that_the_readme_links_to_exist() -> None:
    for target in re.findall(r"\]\(((?!http|#)[^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= 10_000
