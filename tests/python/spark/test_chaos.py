"""A job inside Spark whose Python workers and executors are killed at random, again and again: its output is exact.

KILLS and SEED say how often and in which order. A driver that is killed is in `test_replacement`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flownet as fn

from ..exactly_once.disturbed import lines
from .conftest import eventually, executor_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flownet import spark

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("SEED", "7"))
NUMBERS = 20_000 * KILLS
"""More than the job reads while it is disturbed."""
KEYS = 7


class Calm:
    """Slows a job down until a file says that nothing is killed any more."""

    def __init__(self, over: Path) -> None:
        self._over = over

    def __call__(self, number: int) -> int:
        if not self._over.exists():
            time.sleep(0.002)
        return number % KEYS


@pytest.mark.timeout(600 + 60 * KILLS)
@pytest.mark.usefixtures("leaves_nothing")
def test_a_job_is_exact_though_its_workers_and_executors_are_killed_again_and_again(
    two_executors: SparkSession, tmp_path: Path
) -> None:
    from flownet import spark

    chance, over = random.Random(SEED), tmp_path / "over"
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:100000:10ms")
    env.enable_checkpointing("200ms", storage=(tmp_path / "checkpoints").as_uri())
    keys = env.from_collection(range(NUMBERS)).rebalance().map(Calm(over))
    keys.key_by(lambda key: key).count().map(str).write_text(tmp_path / "out")
    cluster = spark.cluster(two_executors, workers=2)
    with env.execute_async(on=cluster) as job:
        for kill in range(KILLS):
            eventually("all workers and a checkpoint of theirs", is_up(job, cluster))
            restarted = job.status().restarted
            of = chance.choice([python_of, executor_of])
            victims = chance.choice([[1], [2], [1, 2]])
            print(f"kill {kill + 1} of {KILLS}: {of.__name__} {victims}", flush=True)
            for pid in [of(cluster, worker) for worker in victims]:
                os.kill(pid, signal.SIGKILL)
            eventually("a restart", lambda before=restarted: job.status().restarted > before)  # type: ignore[misc]
        over.touch()
        result = job.wait()
    assert result.restarted >= KILLS
    of_key = Counter(number % KEYS for number in range(NUMBERS))
    expected = Counter(str((key, count)) for key, most in of_key.items() for count in range(1, most + 1))
    assert Counter(lines(tmp_path / "out")) == expected


def is_up(job: fn.Job, cluster: spark.Cluster) -> Callable[[], bool]:
    """Whether the job runs with all its workers, and has taken a checkpoint more than now."""
    made = job.status().checkpoints_made

    def is_up() -> bool:
        status = job.status()
        return status.state == "running" and status.checkpoints_made > made and len(cluster.members) == 2

    return is_up


def python_of(cluster: spark.Cluster, number: int) -> int:
    """Find the Python process of a worker."""
    assert cluster._stage is not None
    (pid,) = (pid for worker, pid, _ in cluster._stage.crew.members() if worker == number)
    return int(pid)
