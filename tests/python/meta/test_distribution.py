"""What pip calls flownet: on PyPI, the name `flownet` is another project."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from flownet.internal.extras import DISTRIBUTION

ROOT = Path(__file__).parents[3]
ANOTHER_PROJECT = re.compile(
    r"\bflownet\[\w|\bpip install (?:-\S+ )*'?flownet'?(?![\w*-])|dependencies = \[\"flownet\""
)


def texts() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "CHANGELOG.md")
    for folder, pattern in [
        ("docs", "*.md"),
        ("changelog.d", "*.md"),
        ("examples", "*.py"),
        ("python/flownet", "*.py"),
        ("python/flownet/cli/project", "*.txt"),
        ("rust", "*.rs"),
        (".github", "*.yml"),
    ]:
        yield from (ROOT / folder).rglob(pattern)


def test_the_distribution_has_one_name() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION


def test_no_text_installs_the_other_project() -> None:
    found = [f"{path.relative_to(ROOT)}: {line}" for path in texts() for line in path.read_text().splitlines()]
    assert [line for line in found if ANOTHER_PROJECT.search(line)] == []


def test_the_rule_sees_what_it_is_for() -> None:
    for text in ("pip install flownet", "pip install 'flownet[kafka]'", "pip install -q flownet && x"):
        assert ANOTHER_PROJECT.search(text)
    for text in ("pip install 'flownet-streams[kafka]'", "pip install dist/flownet_streams*.whl", "flownet doctor"):
        assert not ANOTHER_PROJECT.search(text)
