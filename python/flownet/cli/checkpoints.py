"""``flownet checkpoints`` and ``flownet savepoint``."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from .. import _flownet
from ..config import format_size
from ..tables import text_table

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``checkpoints`` and ``savepoint`` to the command line."""
    parser = commands.add_parser(
        "checkpoints",
        help="list the checkpoints in a folder",
        description="List the checkpoints in a folder, the oldest first; the job goes on from the last. Its operators "
        "follow, with what each keeps in it.",
    )
    parser.add_argument("storage", metavar="DIR", help="the folder, or file:///...")
    parser.add_argument("--json", action="store_true", help="write them as JSON, with each operator's bytes")
    parser.set_defaults(command=_list)
    savepoint = commands.add_parser(
        "savepoint",
        help="copy the last checkpoint of a job to a place of its own",
        description="Copy the last checkpoint in a folder, of a job that runs or of one that does not any more, to a "
        "folder of its own, which no job changes or deletes. It is as old as that checkpoint: Job.savepoint() takes a "
        "new one. Begin from it with: flownet run --from TARGET.",
    )
    savepoint.add_argument("storage", metavar="DIR", help="the folder of the job's checkpoints, or file:///...")
    savepoint.add_argument("target", metavar="TARGET", help="where to copy it to: a folder that is not there or empty")
    savepoint.set_defaults(command=_save)


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
    from ..kept_state import uid_given

    last = checkpoints[-1]
    sizes: Counter[str] = Counter()
    for task in last["tasks"]:
        for part in task["parts"]:
            sizes[part["uid"]] += part["bytes"]
    rows = [["operator", "uid", "subtasks", "state"]]
    for operator in last["operators"]:
        uid = operator["uid"]
        rows.append([operator["name"], uid_given(uid) or "", str(operator["parallelism"]), format_size(sizes[uid])])
    print()
    print("\n".join(text_table(rows)))
    return 0


def _save(options: argparse.Namespace) -> int:
    saved = _flownet.save_last_checkpoint(options.storage, options.target)
    print(f"{saved['url']}: checkpoint {saved['checkpoint']}, {format_size(saved['bytes'])}")
    return 0
