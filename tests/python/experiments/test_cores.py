"""Runs of one host do not disturb each other, whatever starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from flownet.experiments import cores


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize("wanted", [0, 1, 2, 1000])
def test_no_more_cores_are_held_than_there_are(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 3)
    held = 0
    most = 0
    lock = threading.Lock()

    def run() -> None:
        nonlocal held, most
        with cores.reserved(wanted):
            with lock:
                held += min(max(wanted, 1), 3)
                most = max(most, held)
            time.sleep(0.001)
            with lock:
                held -= min(max(wanted, 1), 3)

    threads = [threading.Thread(target=run) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < most <= 3


def test_the_cores_of_a_process_that_was_killed_are_free(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom flownet.experiments import cores\n"
        "with cores.reserved(1000):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        taken = threading.Event()

        def take() -> None:
            with cores.reserved(1):
                taken.set()

        thread = threading.Thread(target=take)
        thread.start()
        assert not taken.wait(0.05)
        holder.kill()
        assert taken.wait(30)
        thread.join()


def test_an_interrupt_while_waiting_gives_back_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 2)
    with cores.reserved(1):

        def interrupted(seconds: float) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", interrupted)
            with pytest.raises(KeyboardInterrupt), cores.reserved(2):
                pass
        with cores.reserved(1):
            pass
