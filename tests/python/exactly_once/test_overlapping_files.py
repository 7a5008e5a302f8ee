"""Jobs by event time over files that overlap are killed, and restored in another shape: results do not change.

A seed draws the readers, the operator, the sink, the kills and the shapes. ``make overlap RUNS=200`` draws more.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet.internal import serialise

from . import overlapping_jobs
from .chaos import HERE, Chaos
from .failures import run_until
from .overlapping_answers import answer
from .overlapping_files import results, write_files
from .overlapping_jobs import ON_OBJECTS, ON_ROWS, Plan, describe

FIRST_SEED = int(os.environ.get("SEED", 1_000))
RUNS = int(os.environ.get("RUNS", 0))
"""How many seeds of each test; none: a few."""
ROWS = 2_500
"""Of each side, at least."""


@pytest.fixture(autouse=True, scope="module")
def _ship_jobs_by_value() -> None:
    serialise.ship_by_value(overlapping_jobs)


def compare(found: list[str], wanted: list[str], about: Any) -> None:
    """Compare the results of a job with the expected ones.

    Raises
    ------
    AssertionError
        Some are missing, or there too often.
    """
    missing, excess = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert (sorted(missing.elements())[:5], sorted(excess.elements())[:5]) == ([], []), (
        f"{missing.total()} missing and {excess.total()} too many of {len(wanted)}: {about}"
    )


OVERTAKES: list[dict[str, Any]] = [{}, {"unaligned": True}, {"aligned_timeout": "2ms"}]
"""When checkpoints overtake records: never, at once, and when they have taken too long."""


def disturbed_job(plan: Plan, folder: Path, parallelism: int, rate: float, **checkpointing: Any) -> Any:
    env = fn.Environment(
        parallelism=parallelism,
        max_parallelism=16,
        buffer_timeout="5ms",
        state_backend=plan.backend,  # type: ignore[arg-type]
    )
    env.enable_checkpointing("40ms", storage=folder / "checkpoints", **checkpointing)
    describe(env, plan, folder / "in", folder / "out", rate)
    return env


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + (RUNS or 8)))
def test_results_do_not_depend_on_stops_and_parallelism(seed: int, tmp_path: Path) -> None:
    plan = Plan.draw(seed)
    left, right = write_files(plan, tmp_path / "in", ROWS)
    draw = random.Random(f"stops of {seed}")
    done: list[Any] = [plan]
    for _ in range(draw.randrange(2, 6)):
        parallelism, workers = draw.randrange(1, 5), draw.choice([0, 0, 2])
        checkpoints, abruptly, overtakes = draw.randrange(1, 6), draw.random() < 0.5, draw.choice(OVERTAKES)
        rate = draw.choice([1_000, 2_500, 5_000]) / parallelism
        done.append((parallelism, workers, checkpoints, abruptly, overtakes, rate))
        env = disturbed_job(plan, tmp_path, parallelism, rate, **overtakes)
        run_until(env, min(workers, parallelism), checkpoints, abruptly=abruptly)
    parallelism, workers = draw.randrange(1, 5), draw.choice([0, 0, 2])
    rate = draw.choice([math.inf, 5_000 / parallelism])
    done.append((parallelism, workers, rate))
    result = disturbed_job(plan, tmp_path, parallelism, rate).execute(min(workers, parallelism))
    compare(results(tmp_path / "out"), answer(plan.operator, left, right), done)
    assert sum(task.late_records for task in result.tasks) == 0, done


class OverlapChaos(Chaos):
    """Kills the workers of a job over overlapping files, and the job itself."""

    plan: Plan

    def _program(self) -> str:
        return f"{HERE / 'overlapping_jobs.py'}:killed"

    def _environ(self) -> dict[str, str]:
        # As many rows a second whatever the parallelism: as many kills come on the way.
        rate = str(1_200 / self._parallelism)
        return {**super()._environ(), "CHAOS_PLAN": self.plan.to_json(), "CHAOS_RATE": rate}

    def lines(self) -> list[str]:
        return results(self.folder / "out")


KILLS = int(os.environ.get("KILLS", 4))


@pytest.mark.timeout(120 + 30 * KILLS)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + (RUNS or 3)))
def test_results_do_not_depend_on_kills(seed: int, tmp_path: Path) -> None:
    plan = Plan.draw(seed + 1_000_000)
    left, right = write_files(plan, tmp_path / "in", ROWS + 500 * KILLS)
    chaos = OverlapChaos(plan.operator, tmp_path, KILLS, seed)
    chaos.plan = plan
    chaos.run()
    said = "\n".join(chaos.log)
    compare(chaos.lines(), answer(plan.operator, left, right), f"{plan}, {chaos}\n{said}")
    print(f"{plan}, seed {seed}: {chaos}")
    assert chaos.workers_killed + chaos.jobs_killed > 0


@pytest.mark.parametrize("layer", ["rows", "objects"])
def test_undisturbed_jobs_have_the_expected_results(layer: str, tmp_path: Path) -> None:
    for number, operator in enumerate(ON_ROWS if layer == "rows" else ON_OBJECTS):
        format = overlapping_jobs.FORMATS[number % 3]
        plan = Plan(operator, layer, (format, format), "int64", "plain", False, "event_time", "text", "auto", number)
        left, right = write_files(plan, tmp_path / operator / "in", 1_000)
        env = fn.Environment(parallelism=1 + number % 4)
        describe(env, plan, tmp_path / operator / "in", tmp_path / operator / "out", math.inf)
        env.execute()
        wanted = answer(operator, left, right)
        assert len(wanted) > 100, plan
        compare(results(tmp_path / operator / "out"), wanted, plan)
