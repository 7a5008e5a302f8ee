"""Jobs inside Spark, over Spark Connect."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

SCRIPT = Path(__file__).parent / "connect_session.py"


def test_a_session_of_spark_connect_hosts_jobs_as_a_classic_one_does(
    python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    finished = python(str(SCRIPT), timeout=500)
    assert finished.returncode == 0, finished.stderr[-4000:]
    seen = json.loads(finished.stdout.splitlines()[-1])
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["sums"] == [seen["expected"]] * 2
    assert "return 1 / (number - 3)" in seen["error"]
    assert " on Spark executor " in seen["error"]
    assert seen["cancelled"]
    assert seen["too late"].startswith("0 of 3 workers came within 1 s")
    assert seen["after a refusal"] == seen["expected"]
    assert seen["frames"] == [999_000, 499_500]
    assert seen["ports left"] == 0
