"""docs/reference/cli.md has all commands, and what it shows can be typed."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from flownet import cli, errors
from flownet.cli.words import with_places_apart

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "cli.md"
TEXT = PAGE.read_text()
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))


def commands(command: str = "") -> set[str]:
    parser = cli._parser(command)
    (choices,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return set(choices)


def test_every_command_is_in_its_table_and_no_other() -> None:
    rows = re.findall(r"^\| (`flownet .*?) \|", TEXT, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`flownet ([a-z]+)", row)} == commands()


def test_every_command_is_found_without_the_others() -> None:
    assert set(cli._HOMES) == commands()
    for command in cli._HOMES:
        beside = commands(command)
        assert command in beside
        assert len(beside) <= 3


@pytest.mark.parametrize("line", re.findall(r"^flownet .*", SHELL, re.MULTILINE))
def test_what_it_shows_is_understood(line: str) -> None:
    words = shlex.split(line.partition(" >")[0], comments=True)[1:]
    assert cli._parser().parse_args(with_places_apart(words)).command


def test_the_errors_that_it_names_exist() -> None:
    named = re.findall(r"`(?:flownet\.errors\.)?(\w+Error)`", TEXT)
    assert {"UiError", "UiUnreachableError", "UiTimeoutError", "UiRightsError", "NoSuchJobError"} <= set(named)
    for name in named:
        assert issubclass(getattr(errors, name), errors.FlownetError)


def test_the_files_that_it_links_to_exist() -> None:
    for target in re.findall(r"\]\(((?!http)[^)#]+)", TEXT):
        assert (PAGE.parent / target).exists(), target
