"""``flownet archive``: shows ended jobs in the web UI."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..observation.ui import serve_ui

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``archive`` to the command line."""
    archive = commands.add_parser(
        "archive",
        help="show jobs that have ended",
        description="Serve a page of the jobs that ended in processes with --ui-archive DIR, until Ctrl-C.",
    )
    archive.add_argument("folder", metavar="DIR", help="the folder of --ui-archive or fn.serve_ui(archive=)")
    archive.add_argument(
        "--ui",
        metavar="HOST:PORT",
        help="where to serve it (default: 127.0.0.1, port 8081 or one of the next); elsewhere than on loopback it asks "
        "for a token",
    )
    archive.set_defaults(command=_serve)


def _serve(options: argparse.Namespace) -> int:
    if not Path(options.folder).is_dir():
        raise ConfigError(
            f"there is no folder {options.folder!r}: flownet run --ui-archive DIR makes it", setting="archive"
        )
    with serve_ui(options.ui, archive=options.folder) as page:
        print(f"flownet: jobs that have ended are shown at {page.url}", file=sys.stderr, flush=True)
        # A signal ends it.
        threading.Event().wait()
    return 0
