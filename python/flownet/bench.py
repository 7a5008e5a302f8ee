"""Runs of flownet-bench: the exchange beside a raw TCP socket, in processes of their own.

For ``flownet bench`` and for the experiments. Settings and runs are the words of that crate.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from typing import Any, Literal

from . import _flownet
from .errors import LaunchError

Kind = Literal["exchange", "latency"]


def settings(kind: Kind, given: Mapping[str, object]) -> dict[str, Any]:
    """Check settings and fill in what was left out.

    Raises
    ------
    ConfigError
        A setting is unknown or out of range.
    """
    checked: dict[str, Any] = json.loads(_flownet.bench_settings(kind, json.dumps(given)))
    return checked


def flink_grid(given: Mapping[str, object]) -> list[dict[str, Any]]:
    """Make the settings of each row of the grid of Flink's own network benchmarks, on top of ``given``."""
    return [json.loads(row) for row in _flownet.bench_grid(json.dumps(given))]


def run(kind: Kind, settings: Mapping[str, object]) -> dict[str, Any]:
    """Measure one pair, raw twin and exchange, and return the run as ``flownet bench --json`` prints it."""
    if not sys.executable:
        raise LaunchError("cannot start the processes of a bench: sys.executable is not set")
    command = [sys.executable, "-P", "-m", "flownet.bench_process"]
    run: dict[str, Any] = json.loads(_flownet.bench_run(kind, json.dumps(settings), command))
    run["versions"]["python"] = platform.python_version()
    return run


def label(kind: Kind, settings: Mapping[str, object]) -> str:
    """How runs with these settings are called in a table."""
    return _flownet.bench_label(kind, json.dumps(settings))


def table(runs: list[dict[str, Any]]) -> str:
    """Write a table of runs, a row for each kind and settings."""
    return _flownet.bench_table([json.dumps(run) for run in runs])
