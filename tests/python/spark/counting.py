"""A job that counts, whose exact output is known: run by tests, or as the program of a user in a process of its own.

python -m tests.python.spark.counting FOLDER MASTER [stop]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flownet as fn
from flownet.errors import WorkerLostError
from flownet.internal import serialise

from ..exactly_once.failures import FailsOnce, lines

NUMBERS = 6_000
KEYS = 7


def counting(folder: Path, *, mark: Path | None = None, rate: float = 3_000) -> fn.Environment:
    """Say how many of each key there were so far, each count once, in some two seconds."""
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", name="counting", restart="fixed:100:10ms")
    env.enable_checkpointing("200ms", storage=(folder / "checkpoints").as_uri())
    numbers = env.from_collection(range(NUMBERS), rate_limit=rate)
    counts = numbers.map(lambda number: number % KEYS).key_by(lambda key: key).count()
    said = counts.map(str)
    if mark is not None:
        said = said.map(FailsOnce("(3, 400)", mark))
    said.write_text(folder / "out")
    return env


def assert_exact(folder: Path) -> None:
    """Nothing is lost, and nothing doubled."""
    of_key = Counter(number % KEYS for number in range(NUMBERS))
    expected = Counter(str((key, count)) for key, most in of_key.items() for count in range(1, most + 1))
    said = Counter(lines(folder / "out"))
    assert expected - said == Counter(), "lost"
    assert said - expected == Counter(), "doubled"


def has_a_checkpoint(job: fn.Job, more_than: int = 0) -> Callable[[], bool]:
    return lambda: job.status().state == "running" and job.status().checkpoints_made > more_than


ROOT = Path(__file__).parents[3]


def program(folder: Path, master: str, *words: str) -> subprocess.Popen[str]:
    """Run the job in a process of its own."""
    arguments = [sys.executable, "-m", __name__, str(folder), master, *words]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def main(folder: Path, master: str, *, stops_spark: bool) -> None:
    """Run the job in a Spark of its own, as somebody's program does."""
    from pyspark.sql import SparkSession

    from flownet import spark

    from .standalone import SETTINGS

    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.log.level": "OFF", **SETTINGS}
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    cluster = spark.cluster(session, workers=2, launch_timeout="180s")
    with counting(folder, rate=1_500).execute_async(on=cluster) as job:
        while not has_a_checkpoint(job, 3)():
            time.sleep(0.01)
        print("a checkpoint of", *(pid for _, pid, _ in cluster._stage.pool.members()), flush=True)  # type: ignore[union-attr]
        if stops_spark:
            session.stop()
            try:
                job.wait()
            except WorkerLostError as error:
                print(type(error).__name__, *error.__notes__, sep="\n")
            return
        result = job.wait()
    print("resumed", result.resumed_from is not None, flush=True)


serialise.ship_by_value(sys.modules[__name__])

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], stops_spark="stop" in sys.argv[3:])
