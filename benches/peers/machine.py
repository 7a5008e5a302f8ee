"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Describe processor, system and present load."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def sentence() -> str:
    """Say the same in a line."""
    found = describe()
    return (
        f"{found['processor']}, {found['cores']} cores; Linux {found['kernel']}; Python {found['python']}; "
        f"load before the start {found['load']}"
    )
