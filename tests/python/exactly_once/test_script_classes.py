"""Classes of a script are the same classes in every run of it, by whatever command and in whatever process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import dataclasses, enum, os, time, typing
import flownet as fn

IS_FIRST, IS_NEW = "FIRST" in os.environ, "NEW" in os.environ

class Kind(enum.Enum):
    BUY = 1
    SELL = 2

@dataclasses.dataclass(frozen=True)
class Place:
    x: int

class Trade(typing.NamedTuple):
    ms: int
    kind: Kind
    place: Place

@dataclasses.dataclass
class Total:
    n: int = 0
    last: Kind = Kind.SELL
    if IS_NEW:
        peak: int = 7
        marks: list = dataclasses.field(default_factory=list)

    class Inner(typing.NamedTuple):
        kind: Kind

    def add(self, by):
        self.n += 1000 * by if IS_NEW else by

def local():
    @dataclasses.dataclass
    class Local:
        kind: Kind
    return Local

Local = local()

class Sums(fn.KeyedProcessFunction):
    def process(self, trade, ctx):
        total = ctx.state.get("total") or Total()
        inner, near = ctx.state.get("inner"), ctx.state.get("near")
        same = isinstance(total, Total) and total.last in Kind and trade.kind in (Kind.BUY, Kind.SELL)
        same = same and (inner is None or inner == Total.Inner(Kind.BUY) and type(inner) is Total.Inner)
        same = same and (near is None or near == Local(Kind.BUY)) and ctx.key == (trade.kind, trade.place)
        total.add(1)
        ctx.state["total"], ctx.state["inner"], ctx.state["near"] = total, Total.Inner(Kind.BUY), Local(Kind.BUY)
        if IS_FIRST and trade.ms == 990:
            open("half", "w").close()
        yield repr((same, total.n, getattr(total, "peak", 0), getattr(total, "marks", None)))

def read(position):
    for number in range(position or 0, 200):
        while IS_FIRST and number == 100:
            yield None
        yield number + 1, Trade(number * 10, Kind.BUY if number % 2 else Kind.SELL, Place(number % 3))

def buys(key, window, trades):
    yield repr((sum(trade.kind is Kind.BUY for trade in trades), len(trades)))

env = fn.Environment(parallelism=2, restart="none", max_parallelism=8)
env.enable_checkpointing("50ms", storage="ck")
strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda trade: trade.ms)
trades = env.from_generator(read).uid("read").assign_timestamps_and_watermarks(strategy).uid("times")
by_kind = trades.key_by(lambda trade: (trade.kind, trade.place))
by_kind.process(Sums()).uid("sums").write_text("sums").uid("sums-files")
by_kind.window(fn.Tumbling("4s")).process(buys).uid("buys").write_text("buys").uid("buys-files")

if __name__ == "__main__":
    with env.execute_async(int(os.environ["WORKERS"])) as job:
        while IS_FIRST and not os.path.exists("half"):
            time.sleep(0.01)
        if IS_FIRST:
            job.stop(drain=False)
        job.wait()
"""


def run(folder: Path, command: list[str], **environment: str) -> None:
    environment = {**os.environ, **environment}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def tuples(folder: Path) -> list[tuple[Any, ...]]:
    return [ast.literal_eval(line) for path in folder.iterdir() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("again", ["python", "flownet"])
def test_a_script_that_runs_again_has_the_classes_that_it_had(workers: str, again: str, tmp_path: Path) -> None:
    (tmp_path / "trades.py").write_text(SCRIPT)
    script = [sys.executable, "trades.py"]
    command = [sys.executable, "-m", "flownet", "run", "trades.py:env", "--workers", workers]
    run(tmp_path, script, WORKERS=workers, FIRST="1")
    run(tmp_path, script if again == "python" else command, WORKERS=workers, NEW="1")
    sums, buys = tuples(tmp_path / "sums"), tuples(tmp_path / "buys")
    assert len(sums) == 200
    assert all(same for same, *_ in sums)
    # The method is the new one and the fields are there, in state of the first run too.
    assert max(sums, key=lambda one: one[1]) in [(True, 17_000 + count, 7, []) for count in (16, 17)]
    assert sum(count for count, _ in buys) == 100
    assert sum(count for _, count in buys) == 200
