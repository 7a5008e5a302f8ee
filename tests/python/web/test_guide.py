"""What the guides to the page and to metrics show is true."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import flownet as fn

from . import prometheus
from .test_server import Client

DOCS = Path(__file__).parents[3] / "docs"


def test_the_blocks_of_the_guide_run(python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "operations" / "web-ui.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "script.py").write_text("\n".join(blocks))
    finished = python("script.py")
    assert finished.returncode == 0, finished.stderr
    assert "flownet: job 'job' is shown at http://127.0.0.1:80" in finished.stderr
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+#/jobs/1\n", finished.stdout)


def test_every_route_of_the_guide_answers() -> None:
    routes = re.findall(r"^\| `(GET|POST) (/api/v1[^`]*)`", (DOCS / "reference" / "rest.md").read_text(), re.MULTILINE)
    assert len(routes) == 15
    env = fn.Environment()
    env.from_collection([1]).collect()
    with fn.serve_ui(0, actions=True) as ui, env.execute_async(ui=ui) as job:
        job.wait()
        for method, path in routes:
            headers = {"Content-Type": "application/json"}
            asked = path.replace("ID", "1").replace("TASK/SUBTASK", "0/0").replace("=N", "=9").replace("LEVEL", "info")
            status, _, _ = Client(ui).ask(asked, method=method, body="{}", headers=headers)
            # A savepoint of a job that has ended, and without a folder: the route is there.
            assert status in {200, 202, 409, 422}, (method, path)


def test_the_table_of_metrics_has_all_of_them() -> None:
    table = re.findall(r"^\| `(flownet_\w+)` \|", (DOCS / "reference" / "metrics.md").read_text(), re.MULTILINE)
    with fn.serve_ui(0) as ui:
        _, _, text = Client(ui).ask("/metrics")
    kinds = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    assert table == [f"{name}_total" if kind == "counter" else name for name, kind in kinds]


def test_prometheus_accepts_the_alarms_and_the_way_to_scrape(tmp_path: Path) -> None:
    _, promtool = prometheus.programs()
    page = (DOCS / "operations" / "monitoring.md").read_text()
    scraping, alarms, _ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "alarms.yml").write_text(alarms)
    (tmp_path / "prometheus.yml").write_text(f"rule_files: [alarms.yml]\n{scraping}")
    command = [promtool, "check", "config", "prometheus.yml"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "6 rules found" in checked.stdout
