"""``flownet checkpoints`` and ``flownet savepoint``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import _flownet
from ..errors import ConfigError
from ..internal.config import format_size
from ..internal.tables import text_table
from .jobs import place
from .page import DEFAULT_URL, add_job, add_token, only_job, open_page

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``checkpoints`` and ``savepoint`` to the command line."""
    parser = commands.add_parser(
        "checkpoints",
        help="list the checkpoints in a folder",
        description="List the checkpoints in a folder, the oldest first; the job goes on from the last. Its operators "
        "follow, with what each keeps in it. Damage goes to standard error, and the command ends with 1 then.",
    )
    parser.add_argument("storage", metavar="DIR", help="the folder, or file:///...")
    parser.add_argument("--json", action="store_true", help="write them as JSON, with each operator's bytes")
    parser.set_defaults(command=_list)
    savepoint = commands.add_parser(
        "savepoint",
        help="take a savepoint of a job, or copy one of its checkpoints",
        description="Write the state of a job to a folder of its own, which no job changes or deletes. From the page "
        "of a process that runs (--ui --ui-actions): a new checkpoint. From a folder of checkpoints, of a job that "
        "runs or of one that does not any more: a copy of the last one, or of --checkpoint. Begin from it with: "
        "flownet run --from TARGET.",
    )
    savepoint.add_argument(
        "source",
        metavar="FROM",
        nargs="?",
        help=f"http://... of a page, or the folder of the job's checkpoints (default: FLOWNET_UI, or {DEFAULT_URL})",
    )
    savepoint.add_argument("target", metavar="TARGET", help="where to write it: a folder that is not there or empty")
    savepoint.add_argument(
        "--checkpoint",
        metavar="NUMBER",
        type=int,
        help="of a folder: copy this one of those that are kept, as flownet checkpoints lists them (default: the last)",
    )
    savepoint.add_argument(
        "--sign",
        action="store_true",
        help="of a folder without signatures that you trust: sign the copy with the key in FLOWNET_STATE_KEY or "
        "FLOWNET_STATE_KEY_FILE",
    )
    add_job(savepoint, "the only one that runs")
    add_token(savepoint)
    savepoint.set_defaults(command=_save)


def _list(options: argparse.Namespace) -> int:
    checkpoints, damage = _flownet.checkpoints(options.storage), _flownet.checkpoint_damage(options.storage)
    for text in damage:
        print(text, file=sys.stderr)
    if options.json:
        print(json.dumps(checkpoints))
    elif checkpoints:
        _print_tables(checkpoints)
    else:
        print(f"no checkpoints in {options.storage}")
    return 1 if damage else 0


def _print_tables(checkpoints: list[Any]) -> None:
    rows = [["checkpoint", "job", "time", "size", "took", "operators", ""]]
    for one in checkpoints:
        at = datetime.fromtimestamp(one["triggered_ms"] / 1000).strftime("%Y-%m-%d %H:%M:%S")
        operators = ", ".join(f"{operator['name']} ({operator['parallelism']})" for operator in one["operators"])
        remark = "ended: nothing is left to do" if one["has_ended"] else "last" if one["is_last"] else ""
        took = f"{one['duration_ms'] / 1000:.2f} s"
        rows.append([str(one["checkpoint"]), one["job"], at, format_size(one["bytes"]), took, operators, remark])
    print("\n".join(text_table(rows)))
    from ..internal.kept_state import uid_given

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


def _save(options: argparse.Namespace) -> int:
    is_page = options.source is None or options.source.startswith(("http://", "https://"))
    saved = _taken(options) if is_page else _copied(options)
    print(f"{saved['url']}: checkpoint {saved['checkpoint']}, {format_size(saved['bytes'])}")
    return 0


def _taken(options: argparse.Namespace) -> Mapping[str, Any]:
    if options.checkpoint is not None:
        raise ConfigError("--checkpoint is for a folder: a page takes a new one", setting="checkpoint")
    if options.sign:
        raise ConfigError("--sign is for a folder: a job that runs signs with its own key", setting="sign")
    client = open_page(options.source, options.token)
    job = only_job(client, options.job)
    return dataclasses.asdict(client.savepoint(job.id, place(options.target)))


def _copied(options: argparse.Namespace) -> Mapping[str, Any]:
    for name in ("job", "token"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} is for a page: {options.source!r} is a folder", setting=name)
    return _flownet.save_checkpoint(options.source, options.checkpoint, options.target, options.sign)
