"""A job from Kafka to Kafka whose workers are killed, and which is killed itself: each record is there once.

``KILLS=50`` kills more.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..chaos import Chaos

if TYPE_CHECKING:
    from .broker import Broker

KILLS = int(os.environ.get("KILLS", "4"))
HERE = Path(__file__).parent


class KafkaChaos(Chaos):
    """The job from Kafka to Kafka, and what has become of it."""

    broker: Broker
    source: str
    sink: str

    def _program(self) -> str:
        return f"{HERE / 'jobs.py'}:{self.job}"

    def _environ(self) -> dict[str, str]:
        return {
            "CHAOS_SERVERS": self.broker.servers,
            "CHAOS_INPUT": self.source,
            "CHAOS_OUTPUT": self.sink,
            "CHAOS_RATE": "2000/s",
            "CHAOS_PARALLELISM": str(self._parallelism),
        }

    def lines(self) -> list[str]:
        """What the job has written, as who reads what is committed sees it."""
        return self.broker.texts(self.sink)


@pytest.mark.timeout(120 + 30 * KILLS)
def test_a_job_that_is_killed_again_and_again_loses_and_doubles_nothing(
    kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    draw = random.Random(seed)
    words = [f"word{draw.randrange(40)}" for _ in range(3_000 + 600 * KILLS)]
    chaos = KafkaChaos("kafka_to_kafka", tmp_path, KILLS, seed)
    chaos.broker, chaos.source, chaos.sink = kafka, topic(3), topic(2)
    kafka.write(chaos.source, words)
    chaos.run()
    totals = Counter(words)
    losses, doublings = chaos.judge(f"{word} {at}" for word, total in totals.items() for at in range(1, total + 1))
    said = "\n".join(chaos.log)
    assert (losses, doublings) == (0, 0), f"{losses} lost, {doublings} doubled; seed {seed}, {chaos}\n{said}"
    print(f"seed {seed}: {chaos}")
    assert chaos.workers_killed + chaos.jobs_killed > 0
    assert sum(kafka.committed(chaos.source, f"of-{chaos.source}").values()) == len(words)
