"""``flownet flame``: stacks for the tools that draw them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable

import pytest

from .served import Serve

Flownet = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--samples", "20", "--interval", "0.02")


@pytest.fixture
def flownet(python: Flownet) -> Flownet:
    return lambda *arguments, **options: python("-m", "flownet", *arguments, **options)


def test_flame_prints_each_stack_in_a_line_with_its_samples(serve: Serve, flownet: Flownet) -> None:
    served = serve("words", slow=True)
    served.wait_for(lambda status: status.records > 0)
    told = flownet("flame", served.url, "slow", "1", *QUICK)
    assert told.returncode == 0, told.stderr
    stacks = [re.fullmatch(r"(\S.*) (\d+)", line) for line in told.stdout.splitlines()]
    assert all(stacks)
    assert any(line.startswith("work (<string>:") for line in told.stdout.splitlines())
    assert "flownet: sampling subtask 1 of task 1 for 0.4 s" in told.stderr
    taken = sum(int(stack[2]) for stack in stacks if stack)
    assert re.search(rf"flownet: {taken} of 20 samples in \d+\.\d s; back-pressure (OK|LOW|HIGH), \d+% of", told.stderr)


def test_flame_writes_json_for_programs(serve: Serve, flownet: Flownet) -> None:
    served = serve("words", slow=True)
    served.wait_for(lambda status: status.records > 0)
    told = flownet("flame", served.url, "1", "0", "--json", "--job", "1", *QUICK)
    assert told.returncode == 0, told.stderr
    flame = json.loads(told.stdout)
    assert (flame["asked"], flame["every_seconds"]) == (20, 0.02)
    assert sum(frame["samples"] for frame in flame["frames"] if frame["below"] is None) == flame["taken"]
    assert "work" in {frame["function"] for frame in flame["frames"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("fast", "0"),
            "ConfigError: no task is called 'fast', say which by its position: 0 (from_collection), 1 (slow), 2 (",
        ),
        (("slow", "2"), "UiError: http://127.0.0.1:PORT: there is no subtask 2 of task 1: it has 2, from 0"),
        (("7", "0"), "UiError: http://127.0.0.1:PORT: there is no task 7 in this job: it has 3, from 0"),
        (("slow", "0", "--samples", "0"), "UiError: http://127.0.0.1:PORT: samples = 0: take 1 to 1000"),
        (("slow", "0", "--interval", "0.001"), "UiError: http://127.0.0.1:PORT: every_ms = 1: take 10 to 1000"),
        (("slow", "0", "--interval", "nan"), "ConfigError: --interval nan: must be seconds"),
        (("slow", "0", "--job", "7"), "NoSuchJobError: http://127.0.0.1:PORT has no job '7'; it has: 1 (words)"),
    ],
)
def test_what_cannot_be_sampled_is_told_with_the_way_out(
    serve: Serve, flownet: Flownet, arguments: tuple[str, ...], said: str
) -> None:
    served = serve("words", slow=True)
    served.wait_for(lambda status: status.records > 0)
    refused = flownet("flame", served.url, *arguments)
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert re.sub(r":\d{4,5}\b", ":PORT", last).startswith(f"flownet.errors.{said}")


def test_flame_wants_a_whole_number_for_a_subtask(flownet: Flownet) -> None:
    assert flownet("flame", "slow", "first").returncode == 2
