"""A job inside Spark whose Python workers, executors, nodes and drivers are killed at random: its output is exact.

KILLS and SEED say how often and in which order.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ..exactly_once.failures import lines
from .chaos_job import KEYS
from .conftest import eventually, parent
from .counting import ROOT
from .standalone import Standalone, is_there, running_children

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("SEED", "7"))
NUMBERS = 10_000 * KILLS
"""More than the job reads while it is disturbed."""


class Chaos:
    """A driver that is started again whenever it was killed, on a cluster of which all is killed."""

    def __init__(self, cluster: Standalone, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._chance = random.Random(SEED)
        self._runs = 0
        self.kills = Counter[str]()
        self._seconds = defaultdict[str, list[float]](list)
        self._lost: list[int] = []
        """Python processes of the workers that were killed last, which may take a moment to end."""
        self._driver = self._start()

    def run(self) -> None:
        """Kill, and let the job come back, as often as is asked for; then let it end."""
        kinds: dict[str, Callable[[], None]] = {
            "Python worker": self._kill_python,
            "executor": self._kill_executor,
            "driver": self._kill_driver,
            "driver's JVM": self._kill_jvm,
            "node": self._kill_node,
        }
        deck: list[str] = []
        self._wait_until_it_is_up()
        for kill in range(KILLS):
            # Each kind comes up before any comes again.
            deck = deck or self._chance.sample(sorted(kinds), len(kinds))
            kind = deck.pop()
            began = time.monotonic()
            kinds[kind]()
            self.kills[kind] += 1
            if self._chance.random() < 0.25:
                self._kill_during_recovery()
                kind = f"{kind}, then another during the recovery"
            self._wait_until_it_is_up()
            for node in self._cluster.nodes:
                node.start_if_gone()
            self._seconds[kind].append(time.monotonic() - began)
            print(f"kill {kill + 1} of {KILLS}: {kind}, {self._seconds[kind][-1]:.1f} s", flush=True)
        (self._folder / "over").touch()
        assert self._driver.wait() == 0, self._log()

    def stop(self) -> None:
        """End the driver, whatever became of it."""
        self._driver.kill()
        self._driver.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self._runs += 1
        (self._folder / "state").unlink(missing_ok=True)
        program = [sys.executable, "-m", "tests.python.spark.chaos_job"]
        program += [str(self._folder), self._cluster.url, str(NUMBERS)]
        with self._log_file().open("wb") as output:
            return subprocess.Popen(program, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)

    def _state(self) -> dict[str, Any]:
        with suppress(FileNotFoundError):
            state: dict[str, Any] = json.loads((self._folder / "state").read_text())
            return state
        return {"is_running": False, "made": 0, "pids": []}

    def _wait_until_it_is_up(self) -> None:
        """Wait until the job runs with all its workers, and has taken a checkpoint more than now."""
        made = self._state()["made"]

        def is_up() -> bool:
            assert self._driver.poll() is None, self._log()
            state = self._state()
            has_all = len(state["pids"]) == 2 and all(map(is_there, state["pids"]))
            return has_all and not any(map(is_there, self._lost)) and state["is_running"] and state["made"] > made

        eventually("all workers and a checkpoint of theirs", is_up)

    def _kill_python(self) -> None:
        self._lost = self._victims()
        self._kill(*self._lost)

    def _kill_executor(self) -> None:
        self._lost = self._victims()
        self._kill(*{parent(parent(pid)) for pid in self._lost})

    def _kill_driver(self) -> None:
        self._driver.kill()
        self._driver.wait()
        self._driver = self._start()

    def _kill_jvm(self) -> None:
        """The Python process of the driver ends by itself, and with an error."""
        self._kill(*running_children(self._driver.pid))
        assert self._driver.wait() == 1, self._log()
        self._driver = self._start()

    def _kill_node(self) -> None:
        node = self._chance.choice(self._cluster.nodes)
        self._lost = [pid for pid in self._state()["pids"] if parent(parent(pid)) in node.executors()]
        node.kill()

    def _kill_during_recovery(self) -> None:
        time.sleep(2 * self._chance.random())
        if executors := sorted(self._cluster.executors()):
            self._kill(self._chance.choice(executors))
            self.kills["executor during a recovery"] += 1

    def _victims(self) -> list[int]:
        """Choose one worker or both."""
        pids: list[int] = self._state()["pids"]
        return self._chance.choice([pids[:1], pids[1:], pids])

    def _kill(self, *pids: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _log_file(self) -> Path:
        return self._folder / f"driver-{self._runs}.log"

    def _log(self) -> str:
        return f"driver {self._runs}, {self}\n{self._log_file().read_text()[-8000:]}"

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {kind}" for kind, count in sorted(self.kills.items()))
        medians = [f"{kind} {statistics.median(seconds):.1f} s" for kind, seconds in sorted(self._seconds.items())]
        return f"{kills}; medians until the next checkpoint: {', '.join(medians)}"


@pytest.mark.timeout(600 + 60 * KILLS)
@pytest.mark.usefixtures("leaves_nothing")
def test_a_job_is_exact_though_all_that_runs_it_is_killed_again_and_again(
    standalone: Standalone, tmp_path: Path
) -> None:
    chaos = Chaos(standalone, tmp_path)
    try:
        chaos.run()
    finally:
        chaos.stop()
    print(f"seed {SEED}: {chaos}")
    of_key = Counter(number % KEYS for number in range(NUMBERS))
    expected = Counter(str((key, count)) for key, most in of_key.items() for count in range(1, most + 1))
    found = Counter(lines(tmp_path / "out"))
    assert expected - found == Counter(), "lost"
    assert found - expected == Counter(), "doubled"
    eventually("no application", standalone.is_idle)
