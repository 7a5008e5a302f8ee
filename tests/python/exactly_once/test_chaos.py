"""Jobs whose workers are killed, and who are killed themselves, write what they would have written undisturbed.

``make chaos KILLS=200`` kills more.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from .chaos import EXPECTED, chaos

KILLS = int(os.environ.get("KILLS", "4"))
"""Of each job."""


@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.parametrize("job", EXPECTED)
def test_a_job_that_is_killed_again_and_again_loses_and_doubles_nothing(job: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    disturbed = chaos(job, tmp_path, KILLS, records=3_000 + 600 * KILLS, seed=seed)
    print(f"{job}, seed {seed}: {disturbed}")
    assert disturbed.workers_killed + disturbed.jobs_killed > 0
