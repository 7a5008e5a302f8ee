"""A driver with a job that counts, which tests kill and start again: it resumes from its checkpoints.

    python -m tests.python.spark.chaos_job FOLDER MASTER NUMBERS

It writes its state to the file ``state`` again and again, and runs slowly until there is a file ``over``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import flownet as fn
from flownet.internal import serialise

KEYS = 7


class Calm:
    """Slows a job down until a file says that nothing is killed any more."""

    def __init__(self, over: Path) -> None:
        self._over = over

    def __call__(self, number: int) -> int:
        if not self._over.exists():
            time.sleep(0.002)
        return number % KEYS


def main(folder: Path, master: str, numbers: int) -> None:
    from pyspark.sql import SparkSession

    from flownet import spark

    from .standalone import SETTINGS

    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.log.level": "OFF", **SETTINGS}
    settings["spark.local.dir"] = str(folder / "local")
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:100000:10ms")
    env.enable_checkpointing("200ms", storage=(folder / "checkpoints").as_uri())
    keys = env.from_collection(range(numbers)).rebalance().map(Calm(folder / "over"))
    keys.key_by(lambda key: key).count().map(str).write_text(folder / "out")
    cluster = spark.cluster(session, workers=2, launch_timeout="180s")
    with env.execute_async(on=cluster) as job:
        while (status := job.status()).state != "ended":
            stage = cluster._stage
            pids = [pid for _, pid, _ in stage.pool.members()] if stage else []
            state = {"is_running": status.state == "running", "made": status.checkpoints_made, "pids": pids}
            (folder / "state.new").write_text(json.dumps(state))
            (folder / "state.new").rename(folder / "state")
            time.sleep(0.05)
        result = job.wait()
    print("resumed", result.resumed_from is not None, "and restarted", result.restarted, "times", flush=True)


serialise.ship_by_value(sys.modules[__name__])

if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
