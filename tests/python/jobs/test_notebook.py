"""A job in a real notebook kernel: its table lives, and what its workers print is in the cell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

BEGIN = """
import itertools
import flownet as fn

def say(number):
    if number % 10 == 0:
        print("line", number)
    return number

env = fn.Environment(name="live", status_interval="50ms")
numbers = env.from_iterable(itertools.count(), rate_limit=200).rebalance().map(say).name("say")
numbers.filter(lambda _: False).collect()
job = env.execute_async(workers=1)
job
"""


def until(kernel: BlockingKernelClient, holds: Callable[[str, dict[str, Any], str], bool]) -> str:
    """Wait for a message of the kernel, by kind and content; gives the cell that it belongs to."""
    while True:
        message = kernel.get_iopub_msg(timeout=120)
        assert message["msg_type"] != "error", message["content"]
        if holds(message["msg_type"], message["content"], message["parent_header"].get("msg_id", "")):
            return str(message["parent_header"]["msg_id"])


def shows(kind: str, text: str) -> Callable[[str, dict[str, Any], str], bool]:
    return lambda of, content, _: of == kind and text in content["data"].get("text/html", "")


def test_a_job_shows_itself_while_it_runs_and_workers_print_into_the_cell(kernel: BlockingKernelClient) -> None:
    cell = kernel.execute(BEGIN)
    assert until(kernel, shows("display_data", "live")) == cell
    until(kernel, shows("update_display_data", "running"))
    printed = until(kernel, lambda of, content, _: of == "stream" and "[say -> filter] line " in content["text"])
    assert printed == cell
    kernel.execute("job.stop(); result = job.wait()")
    until(kernel, shows("update_display_data", "ended"))
    kernel.execute("print(type(result).__name__, job.status().state)")
    until(kernel, lambda of, content, _: of == "stream" and content["text"] == "JobResult ended\n")


def test_in_a_terminal_a_job_is_a_line() -> None:
    program = (
        "import flownet as fn\nenv = fn.Environment()\n_ = env.from_collection([1]).collect()\nenv.execute_async()"
    )
    command = [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--quick", "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "<Job 'job': " in shown
