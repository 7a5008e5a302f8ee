"""The two jobs of examples/monitored, as its Compose file starts them, beside a Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from .broker import Broker

FOLDER = Path(__file__).parents[4] / "examples" / "monitored"
COMPOSE = yaml.safe_load((FOLDER / "compose.yml").read_text())


class Running:
    """A command of flownet that runs, and what it says of errors."""

    def __init__(self, command: list[str], folder: Path, **variables: str) -> None:
        self._said = folder / f"{command[2].replace(':', '-')}.log"
        with self._said.open("w") as said:
            words = [sys.executable, "-m", *command]
            self.process = subprocess.Popen(words, cwd=folder, env={**os.environ, **variables}, stderr=said)

    @property
    def said(self) -> str:
        return self._said.read_text()


@contextmanager
def running(command: list[str], folder: Path, **variables: str) -> Iterator[Running]:
    """Run a command until the end of the block, which stops it as a container is stopped."""
    run = Running(command, folder, **variables)
    try:
        yield run
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait() == 128 + signal.SIGTERM, run.said
    finally:
        run.process.kill()
        run.process.wait()


def test_words_are_counted_once_and_the_page_is_served(kafka: Broker, tmp_path: Path, free_port: int) -> None:
    script = (FOLDER / "words.py").read_text()
    for topic in ("words", "counts"):
        # The broker has other topics of these names.
        script = script.replace(f'BROKERS, "{topic}"', f'BROKERS, "monitored-{topic}"')
        kafka.create(f"monitored-{topic}", 2)
    (tmp_path / "words.py").write_text(script)
    image = (FOLDER / "Dockerfile").read_text()
    counting = json.loads(image.rsplit("CMD ", 1)[1])
    counting = [
        word.replace("/data", str(tmp_path)).replace("0.0.0.0:8081", f"0.0.0.0:{free_port}") for word in counting
    ]
    feeding = COMPOSE["services"]["feed"]["command"]
    token = COMPOSE["services"]["counts"]["environment"]["FLOWNET_UI_TOKEN"]
    with (
        running(feeding, tmp_path, BROKERS=kafka.servers) as feed,
        running(counting, tmp_path, BROKERS=kafka.servers, FLOWNET_UI_TOKEN=token) as count,
    ):
        found: list[dict[str, Any]] = []
        # Each subtask commits by itself.
        while not {"to", "be", "question"} <= {one["word"] for one in found}:
            found = [json.loads(message.value() or b"") for message in kafka.read("monitored-counts")]
            for job in (feed, count):
                assert job.process.poll() is None, job.said
            time.sleep(0.5)
        request = urllib.request.Request(
            f"http://127.0.0.1:{free_port}/metrics", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request) as answer:
            assert 'flownet_job_running{job="counts",job_id="1"} 1.0' in answer.read().decode()
    times = Counter((one["word"], one["from_ms"]) for one in found)
    assert set(times.values()) == {1}, "a window of a word is counted once"
    assert {one["from_ms"] % 5000 for one in found} == {0}
