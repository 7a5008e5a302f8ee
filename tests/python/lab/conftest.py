"""What the tests of the laboratory share: scenarios in short."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Python = Callable[..., subprocess.CompletedProcess[str]]

SHORT = {
    "overflow": ["buffer=400kB", "limit=1200kB", "change=1200ms", "seconds=2s", "slow=100kB/s"],
    "head-of-line": ["speed=1500kB/s", "offered=1MB/s", "buffer=200kB", "alone=500ms", "both=500ms", "crawling=1500ms"],
    "propagation": ["stall=1s", "resume=2500ms", "seconds=3500ms"],
    "buffer-timeout": ["channels=10", "rounds=1", "seconds=50ms"],
    "varying": ["seconds=2s", "step=200ms", "buffer=200kB", "limit=2MB"],
    "skew": ["channels=10", "seconds=1500ms", "buffer=50kB", "limit=1MB"],
}
"""Settings with which a scenario takes a second or two and still goes through all its phases."""


@pytest.fixture
def lab(python: Python) -> Python:
    """Runs ``flownet lab``."""

    def lab(scenario: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        settings = [word for setting in SHORT.get(scenario, []) for word in ("--set", setting)]
        return python("-m", "flownet", "lab", scenario, *settings, *arguments, **options)

    return lab
