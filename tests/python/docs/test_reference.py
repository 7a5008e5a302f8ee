"""The reference of operators and settings has all that there is, and nothing else."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

import flownet as fn
from flownet.internal import config

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def section(page: str, heading: str) -> str:
    """Return the text under a heading."""
    return (REFERENCE / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    "described",
    [
        fn.Environment,
        fn.Stream,
        fn.KeyedStream,
        fn.streams.WindowedStream,
        fn.Rows,
        fn.KeyedRows,
        fn.rows.WindowedRows,
        fn.streams.ChangelogStream,
    ],
)
def test_the_tables_of_operators_have_every_public_method(described: type) -> None:
    named = re.findall(r"^\| `(\w+)` \| .+ \|$", section("operators.md", described.__name__), re.MULTILINE)
    # What a base that is a class of its own to users has stands in its own section.
    own = itertools.takewhile(lambda base: not hasattr(fn, base.__name__), described.__mro__[1:])
    methods = {name for base in (described, *own) for name in vars(base) if not name.startswith("_")}
    assert sorted(named) == sorted(methods)


def test_keyed_changelog_streams_have_the_methods_that_are_listed() -> None:
    (line,) = re.findall(r"^`KeyedChangelogStream` has (.+)\.$", section("operators.md", "ChangelogStream"), re.M)
    methods = {name for name in vars(fn.streams.KeyedChangelogStream) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", line)) == methods


def test_the_tables_of_settings_have_all_of_them_with_their_defaults() -> None:
    page = (REFERENCE / "settings.md").read_text().split("\n## Values of flow_control\n")[0]
    rows = {
        name: (default, said) for name, default, said in re.findall(r"^\| `(.+)` \| `(.+)` \| (.+) \|$", page, re.M)
    }
    assert list(rows) == list(config.SETTINGS)
    for name, setting in config.SETTINGS.items():
        default, said = rows[name]
        assert setting.check_text(default) == setting.default, name
        assert re.sub(r"; \[more\]\(.+\)", "", said) == setting.doc, name


def test_every_error_that_the_page_of_warnings_names_exists() -> None:
    named = re.findall(r"`(\w+(?:Error|Warning))`", (REFERENCE / "warnings.md").read_text())
    assert len(set(named)) > 7
    for name in named:
        assert isinstance(getattr(fn.errors, name), type)
