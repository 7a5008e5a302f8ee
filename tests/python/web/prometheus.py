"""A Prometheus to scrape with: the one that is installed, or Debian's."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .debian import unpacked


def programs() -> tuple[str, str]:
    """Find ``prometheus`` and ``promtool``, or skip the test where they are not to be had."""
    installed = shutil.which("prometheus"), shutil.which("promtool")
    if installed[0] and installed[1]:
        return installed[0], installed[1]
    folder = unpacked("prometheus") / "usr" / "bin"
    return str(folder / "prometheus"), str(folder / "promtool")


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self.port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Ask for what an expression gives now: labels and values."""
        asked = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = self.get(f"query?{asked}")["result"]
        return found

    def targets(self) -> list[dict[str, Any]]:
        """Say how scraping goes."""
        found: list[dict[str, Any]] = self.get("targets")["activeTargets"]
        return found

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]


@contextmanager
def scraping(folder: Path, port: int, target: int, token: str) -> Iterator[Prometheus]:
    """Run one that scrapes a port, until the end of the block."""
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        "scrape_configs:\n"
        "  - job_name: flownet\n"
        "    honor_labels: true\n"
        f"    authorization: {{credentials: {token}}}\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
    )
    places = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command = [programs()[0], *places, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield Prometheus(port)
        finally:
            process.terminate()
