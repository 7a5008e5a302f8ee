"""What Prometheus itself makes of a job."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import flownet as fn

from . import prometheus

DASHBOARD = Path(__file__).parents[3] / "docs" / "grafana" / "flownet.json"


def slow(number: int) -> int:
    time.sleep(0.002)
    return number


class Measured(fn.MapFunction[int, int]):
    """Is slow, and counts by itself."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.slow = ctx.metrics.counter("slow_calls")
        self.waits = ctx.metrics.histogram("wait_seconds")
        self.last = ctx.metrics.gauge("last_number")

    def map(self, value: int) -> int:
        self.slow.inc()
        self.waits.observe(0.002)
        self.last.set(value)
        return slow(value)


def test_prometheus_scrapes_a_job_and_its_linter_has_nothing_to_say(tmp_path: Path, free_port: int) -> None:
    _, promtool = prometheus.programs()
    env = fn.Environment(parallelism=2, name="scraped", status_interval="50ms", latency_interval="20ms")
    env.enable_checkpointing("200ms", storage=str(tmp_path / "checkpoints"), allow_non_replayable=True)
    timed = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number: number)
    numbers = env.from_iterable(itertools.count()).assign_timestamps_and_watermarks(timed)
    numbers.key_by(lambda number: number % 8).map(Measured()).name("slow").filter(lambda _: False).collect()
    with fn.serve_ui(0, token="a-token-for-it") as ui, env.execute_async(workers=2, ui=ui) as job:
        request = urllib.request.Request(
            f"http://127.0.0.1:{ui.port}/metrics", headers={"Authorization": "Bearer a-token-for-it"}
        )
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        # It reads the format before OpenMetrics, in which the text of help names a counter with its ending.
        complaints = [line for line in checked.stderr.decode().splitlines() if not line.endswith("_total no help text")]
        assert (complaints, checked.stdout) == ([], b"")
        with prometheus.scraping(tmp_path, free_port, ui.port, "a-token-for-it") as server:
            while not (named := ask(server, 'flownet_task_bottleneck{job="scraped"} == 1')):
                assert job.status().state in {"created", "launching", "deploying", "running"}
                time.sleep(0.1)
            assert named[0]["metric"]["task"].startswith("slow")
            (target,) = server.targets()
            assert (target["health"], target["lastError"]) == ("up", "")
            for expression in expressions("scraped"):
                while not ask(server, expression):
                    assert job.status().state == "running", f"there is never anything for {expression}"
                    time.sleep(0.1)
            job.stop()
            result = job.wait()
            while not ask(server, f'flownet_job_uptime_seconds{{job="scraped"}} == {result.seconds!r}'):
                time.sleep(0.1)
            for position, task in enumerate(result.tasks):
                (counted,) = ask(server, f'sum(flownet_subtask_records_in_total{{task_id="{position}"}})')
                assert float(counted["value"][1]) == task.records_in
            (counted,) = ask(server, 'sum(flownet_counted_slow_calls_total{operator="slow"})')
            assert float(counted["value"][1]) == next(one.value for one in result.metrics if one.name == "slow_calls")
            (longest,) = ask(server, "histogram_quantile(0.99, sum by (le) (flownet_observed_wait_seconds_bucket))")
            assert 0 < float(longest["value"][1]) <= 0.005


def expressions(job: str) -> list[str]:
    """Give what the panels of the dashboard ask for."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(asked) > 15
    return [expression.replace("$job", job).replace("$__rate_interval", "2s") for expression in asked]


def ask(server: Any, expression: str) -> list[dict[str, Any]]:
    """Ask, also while it is starting."""
    try:
        found: list[dict[str, Any]] = server.query(expression)
    except OSError:
        return []
    return found
