"""``flownet completion``: prints a shell completion script."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..internal.extras import need

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``completion`` to the command line."""
    completion = commands.add_parser(
        "completion",
        help="print a script by which a shell completes this command line",
        description="Print a script by which a shell completes commands, options and files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")
    completion.set_defaults(command=_print)


def _print(options: argparse.Namespace) -> int:
    shtab = need("shtab", "flownet completion", "completion")
    parser = options.whole()
    for action in _actions(parser):
        kind = _PATHS.get(action.metavar) if isinstance(action.metavar, str) else None
        if kind is not None:
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


_PATHS = {"DIR": "DIRECTORY", "TARGET": "DIRECTORY", "SAVEPOINT": "DIRECTORY", "PATH": "FILE", "FILE": "FILE"}
"""Placeholders of arguments that are a path, and which kind of one."""

_EPILOG = """\
bash:  flownet completion bash > ~/.local/share/bash-completion/completions/flownet
zsh:   flownet completion zsh > a folder of $fpath, as _flownet
fish:  flownet completion fish > ~/.config/fish/completions/flownet.fish
"""
