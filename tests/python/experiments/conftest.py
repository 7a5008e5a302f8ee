"""Experiments whose runs take no time, and what tests do with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flownet.experiments import Experiment

TOY = """
import flownet.experiments as fx

def measure(parameters, place):
    if parameters["load"] == 13:
        raise ValueError("13 is bad luck")
    return fx.Measurement({"rate": parameters["load"] * 10 + place.seed % 5, "cost": 1.0})

toy = fx.Workload(
    name="toy",
    doc="nothing",
    parameters={
        "load": fx.Parameter("count", "how much"),
        "wait": fx.Parameter("duration", "how long", default="1ms"),
        "size": fx.Parameter("size", "how big"),
        "way": fx.Parameter("choice", "which way", choices=("up", "down")),
    },
    figures={"rate": fx.Figure("1/s", "loads", True), "cost": fx.Figure("us", "costs", False)},
    measure=measure,
)
"""


@pytest.fixture
def toy_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a Python file that describes an experiment over a workload that takes no time."""

    def toy_file(arguments: str = "grid={'load': [1, 2, 13]}", body: str = TOY) -> Path:
        path = tmp_path / "toy.py"
        path.write_text(f"{body}\nexperiment = fx.Experiment('toy', toy, {arguments})\n")
        return path

    return toy_file


@pytest.fixture
def toy(toy_file: Any) -> Callable[..., Experiment]:
    """Reads such a file."""
    from flownet.experiments import find_experiment

    def toy(arguments: str = "grid={'load': [1, 2, 13]}") -> Experiment:
        return find_experiment(str(toy_file(arguments)))

    return toy
