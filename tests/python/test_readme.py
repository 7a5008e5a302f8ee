"""What the README shows is true."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_run(python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, block: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("to be or not to be\n")
    (tmp_path / "script.py").write_text(block)
    finished = python("script.py")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_the_first_block_counts_words(python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("to be or not to be\n")
    (block, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "script.py").write_text(block)
    words = sorted(line.split("> ")[1] for line in python("script.py").stdout.splitlines())
    assert words == ["('be', 2)", "('not', 1)", "('or', 1)", "('to', 2)"]


def test_the_make_targets_that_the_readme_names_exist() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
