from __future__ import annotations

import subprocess
from collections.abc import Callable

SCRIPT = """
import flownet as fn
env = fn.Environment()
env.from_collection(["gr\\u00fcn", 2, None]).print(PREFIX)
env.execute(workers=WORKERS)
"""


def printed(python: Callable[..., subprocess.CompletedProcess[str]], prefix: str, workers: int) -> list[str]:
    finished = python("-c", SCRIPT.replace("PREFIX", prefix).replace("WORKERS", str(workers)), encoding="utf-8")
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout.splitlines()


def test_print_writes_records_as_str_writes_them(
    python: Callable[..., subprocess.CompletedProcess[str]], workers: int
) -> None:
    assert printed(python, "", workers) == ["gr\u00fcn", "2", "None"]


def test_print_writes_the_prefix_before_each_record(
    python: Callable[..., subprocess.CompletedProcess[str]], workers: int
) -> None:
    assert printed(python, "'out'", workers) == ["out> gr\u00fcn", "out> 2", "out> None"]
