"""What the README shows is true."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import flownet as fn
from flownet.internal import config

README = (Path(__file__).parents[3] / "README.md").read_text()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_python_blocks_run(python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, block: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("to be or not to be\n")
    ticks = {"symbol": ["A", "B"], "price": [1.0, 2.0], "size": [3, 4], "time": [datetime(2024, 1, 1)] * 2}
    pyarrow.parquet.write_table(pyarrow.table(ticks), tmp_path / "ticks.parquet")
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
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def table(heading: str) -> dict[str, str]:
    """First and second column of the table under a heading."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", section, re.MULTILINE)
    return dict(rows[1:])


def test_the_table_of_operators_has_every_public_method() -> None:
    for described in (fn.Environment, fn.Stream, fn.KeyedStream, fn.streams.WindowedStream):
        cells = [cell for heading, cell in table("Operators").items() if heading.startswith(f"`{described.__name__}`")]
        named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
        # What a base that is a class of its own to users has stands in its own row.
        own = itertools.takewhile(lambda base: not hasattr(fn, base.__name__), described.__mro__[1:])
        methods = {name for base in (described, *own) for name in vars(base) if not name.startswith("_")}
        assert sorted(named) == sorted(methods), described.__name__


def test_the_table_of_settings_has_all_of_them_with_their_defaults() -> None:
    section = README.split("\n## Settings\n")[1].split("\n## ")[0]
    rows = {
        name: (default, said) for name, default, said in re.findall(r"^\| `(.+)` \| `(.+)` \| (.+) \|$", section, re.M)
    }
    assert list(rows) == list(config.SETTINGS)
    for name, setting in config.SETTINGS.items():
        default, said = rows[name]
        assert setting.check_text(default) == setting.default, name
        assert re.sub(r"; \[more\]\(.+\)", "", said) == setting.doc, name


def test_every_error_that_the_readme_names_exists() -> None:
    named = re.findall(r"`(\w+Error)`", README)
    assert len(set(named)) > 10
    for name in named:
        assert issubclass(getattr(fn.errors, name), fn.FlownetError)


def test_the_files_that_the_readme_links_to_exist() -> None:
    for target in re.findall(r"\]\(((?!http)[^)]+)\)", README):
        assert (Path(__file__).parents[3] / target).exists(), target


def test_what_the_readme_shows_of_explain_is_what_it_prints(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="10ms")
    counts = env.read_text(tmp_path).flat_map(str.split).key_by(str).window(fn.Tumbling("5s")).count()
    counts.print()
    assert f"```\n{env.explain(workers=2)}\n```" in README
