"""``flownet doctor``: checks whether this machine can run jobs, and suggests fixes."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from ..internal.tables import text_table

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``doctor`` to the command line."""
    doctor = commands.add_parser(
        "doctor",
        help="say what this machine has and lacks for jobs",
        description="Say what this machine has and lacks for jobs, and what to do about it; runs a small one. Exit "
        "code 0 if jobs can run, 1 if not.",
    )
    doctor.add_argument("--json", action="store_true", help="write it as JSON")
    doctor.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from .checks import all_checks

    checks = list(all_checks())
    can_run = all(check.verdict != "fails" for check in checks)
    if options.json:
        print(json.dumps({"can_run": can_run, "checks": [dataclasses.asdict(check) for check in checks]}))
        return 0 if can_run else 1
    rows = [["", "what", "found, and what to do"]]
    for check in checks:
        rows.append([check.verdict, check.name, "; ".join(filter(None, (check.found, check.advice)))])
    print("\n".join(text_table(rows)))
    print("\njobs can run here" if can_run else "\nno job can run here: see what fails")
    return 0 if can_run else 1
