"""What the Compose file of examples/monitored gives to others is what they read."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from . import prometheus

FOLDER = Path(__file__).parents[3] / "examples" / "monitored"


def test_what_others_are_given_is_what_they_read() -> None:
    services: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]
    given = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    for path in given:
        if path.startswith("."):
            assert (FOLDER / path).exists(), path
    for service in services.values():
        for other in service.get("depends_on", {}):
            assert other in services
        if "build" in service:
            assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    _, promtool = prometheus.programs()
    checked = subprocess.run(
        [promtool, "check", "config", FOLDER / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    scraped = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"] == [{"targets": ["counts:8081"]}]
    assert scraped["authorization"]["credentials"] == services["counts"]["environment"]["FLOWNET_UI_TOKEN"]
    source = yaml.safe_load((FOLDER / "grafana" / "datasource.yml").read_text())["datasources"][0]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    boards = yaml.safe_load((FOLDER / "grafana" / "boards.yml").read_text())["providers"][0]
    assert boards["options"]["path"] == "/boards"
