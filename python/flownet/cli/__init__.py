"""The command ``flownet``.

Exit codes: 0 the job ended well, 1 it failed or was refused, 2 the command line is wrong, 130 Ctrl-C and 143 SIGTERM,
whether the job stopped well or was cancelled, 141 whoever reads the output has gone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from .. import __version__
from ..errors import FlownetError
from ..internal.waiting import TerminationExit, exit_code
from .words import with_places_apart


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments
        Without the name of the program. Default: those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # What follows -- belongs to the script; argparse would take it for a lack of options.
    end = words.index("--") if "--" in words else len(words)
    try:
        try:
            options = _parser(next(iter(words), "")).parse_args(with_places_apart(words[:end]))
            options.arguments = words[end + 1 :]
            code: int = options.command(options)
        finally:
            # Here, where it is known what a broken pipe means.
            sys.stdout.flush()
    except (KeyboardInterrupt, TerminationExit) as signalled:
        print("flownet: cancelled", file=sys.stderr)
        return exit_code(signalled)
    except BrokenPipeError:
        # As of any filter; and the interpreter's own last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except FlownetError as error:
        print(f"flownet.errors.{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return code


def _parser(command: str = "") -> argparse.ArgumentParser:
    """Make the command line: what this command needs, or all of it."""
    parser = argparse.ArgumentParser(
        prog="flownet",
        description="Streaming dataflows in Python on a Rust exchange.",
        epilog="Every setting is also an environment variable: FLOWNET_WORKERS=4, FLOWNET_BUFFER_TIMEOUT=5ms.",
    )
    parser.add_argument("--version", action="version", version=f"flownet {__version__}")
    parser.set_defaults(whole=_parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for home in [_HOMES[command]] if command in _HOMES else dict.fromkeys(_HOMES.values()):
        importlib.import_module(f".{home}", __name__).add_commands(commands)
    return parser


_HOMES: Final = {
    "run": "run",
    "explain": "run",
    "checkpoints": "checkpoints",
    "savepoint": "checkpoints",
    "jobs": "jobs",
    "cancel": "jobs",
    "stop": "jobs",
    "top": "top",
    "logs": "logs",
    "archive": "archive",
    "flame": "flame",
    "demo": "demo",
    "bench": "bench",
    "experiment": "experiment",
    "lab": "lab",
    "doctor": "doctor",
    "init": "init",
    "completion": "completion",
}
"""Every command, by the module that is imported when somebody asks for it: none waits for what others need."""
