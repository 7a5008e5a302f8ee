"""``flownet checkpoints``."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import TYPE_CHECKING

from .. import _flownet
from ..config import format_size
from ..tables import text_table

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``checkpoints`` to the command line."""
    parser = commands.add_parser(
        "checkpoints",
        help="list the checkpoints in a folder",
        description="List the checkpoints in a folder, the oldest first; the job goes on from the last.",
    )
    parser.add_argument("storage", metavar="DIR", help="the folder, or file:///...")
    parser.add_argument("--json", action="store_true", help="write them as JSON, with each operator's bytes")
    parser.set_defaults(command=_list)


def _list(options: argparse.Namespace) -> int:
    checkpoints = _flownet.checkpoints(options.storage)
    if options.json:
        print(json.dumps(checkpoints))
        return 0
    if not checkpoints:
        print(f"no checkpoints in {options.storage}")
        return 0
    rows = [["checkpoint", "job", "time", "size", "took", "operators", ""]]
    for one in checkpoints:
        at = datetime.fromtimestamp(one["triggered_ms"] / 1000).strftime("%Y-%m-%d %H:%M:%S")
        operators = ", ".join(f"{operator['name']} ({operator['parallelism']})" for operator in one["operators"])
        remark = "ended: nothing is left to do" if one["has_ended"] else "last" if one["is_last"] else ""
        took = f"{one['duration_ms'] / 1000:.2f} s"
        rows.append([str(one["checkpoint"]), one["job"], at, format_size(one["bytes"]), took, operators, remark])
    print("\n".join(text_table(rows)))
    return 0
