"""Nexmark's queries, on objects and on rows, ended anywhere and gone on with in another shape: results as undisturbed.

That these are what plain Python finds is held by ``event_time/test_nexmark.py``.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

from .chaos import HERE, Chaos
from .failures import lines, run_until
from .nexmark_jobs import PROGRAMS, found, write_tables

EVENTS = 3_000
SEED = int(os.environ.get("SEED", 7))
"""Of what is done to them."""
KILLS = int(os.environ.get("KILLS", 0))
"""Of each query; none: some of two of them."""


def job(
    program: str, folder: Path, out: str, parallelism: int, rate: int | None, **checkpointing: Any
) -> fn.Environment:
    env, results = found(program, folder, EVENTS, rate, parallelism)
    env.enable_checkpointing("40ms", storage=folder / f"checkpoints-{out}", **checkpointing)
    results.write_text(folder / out)
    return env


OVERTAKES: list[dict[str, Any]] = [{}, {"unaligned": True}, {"aligned_timeout": "2ms"}]
"""When checkpoints overtake records: never, at once, and when they have taken too long."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_query_goes_on_whatever_was_done_to_it(program: str, tmp_path: Path) -> None:
    write_tables(tmp_path, EVENTS)
    job(program, tmp_path, "undisturbed", 2, None).execute()
    expected = lines(tmp_path / "undisturbed")
    assert len(expected) >= 3, "the stream is too short to tell"
    draw = random.Random(f"{program} {SEED}")
    done: list[Any] = []
    for overtakes in draw.sample(OVERTAKES, len(OVERTAKES)):
        parallelism, workers = draw.randrange(1, 5), draw.choice([0, 2])
        checkpoints, abruptly = draw.randrange(1, 5), draw.random() < 0.7
        done.append((parallelism, workers, overtakes, checkpoints, abruptly))
        env = job(program, tmp_path, "disturbed", parallelism, 4_000, **overtakes)
        run_until(env, workers, checkpoints, abruptly=abruptly)
    result = job(program, tmp_path, "disturbed", draw.randrange(1, 5), None).execute()
    assert result.resumed_from is not None
    assert lines(tmp_path / "disturbed") == expected, done


class NexmarkChaos(Chaos):
    """A query whose workers are killed, and which is killed itself."""

    events: int

    def _program(self) -> str:
        return f"{HERE / 'nexmark_jobs.py'}:killed"

    def _environ(self) -> dict[str, str]:
        told = {"CHAOS_PROGRAM": self.job, "CHAOS_EVENTS": str(self.events), "CHAOS_RATE": "2000"}
        return {**super()._environ(), **told}


@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize("program", PROGRAMS if KILLS else ["q4", "q8_rows"])
def test_a_query_that_is_killed_again_and_again_loses_and_doubles_nothing(program: str, tmp_path: Path) -> None:
    kills, seed = KILLS or 4, int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    chaos = NexmarkChaos(program, tmp_path, kills, seed)
    chaos.events = 3_000 + 600 * kills
    (tmp_path / "in").mkdir()
    write_tables(tmp_path / "in", chaos.events)
    env, results = found(program, tmp_path / "in", chaos.events, None, 2)
    results.write_text(tmp_path / "undisturbed")
    env.execute()
    chaos.run()
    losses, doublings = chaos.judge(lines(tmp_path / "undisturbed"))
    said = "\n".join(chaos.log)
    assert (losses, doublings) == (0, 0), f"{losses} lost, {doublings} doubled; seed {seed}, {chaos}\n{said}"
    print(f"{program}, seed {seed}: {chaos}")
    assert chaos.workers_killed + chaos.jobs_killed > 0
