"""The command ``flownet``.

Exit codes: 0 the job ended well, 1 it failed or was refused, 2 the command line is wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import FlownetError
from . import bench, demo, experiment, lab, run


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
    options = _parser().parse_args(words[:end])
    options.arguments = words[end + 1 :]
    try:
        code: int = options.command(options)
    except KeyboardInterrupt:
        print("flownet: cancelled", file=sys.stderr)
        return 130
    except FlownetError as error:
        print(f"flownet.errors.{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flownet",
        description="Streaming dataflows in Python on a Rust exchange.",
        epilog="Every setting is also an environment variable: FLOWNET_WORKERS=4, FLOWNET_BUFFER_TIMEOUT=5ms.",
    )
    parser.add_argument("--version", action="version", version=f"flownet {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run.add_commands(commands)
    demo.add_commands(commands)
    bench.add_commands(commands)
    experiment.add_commands(commands)
    lab.add_commands(commands)
    return parser
