"""The page about an experiment: it is made on this machine, without a JVM, and opens from disk."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flownet.errors import ConfigError
from flownet.experiments import Experiment, report, run

from .conftest import TOY

Python = Callable[..., subprocess.CompletedProcess[str]]
LATENCIES = TOY.replace(
    '    return fx.Measurement({"rate": parameters["load"] * 10 + place.seed % 5, "cost": 1.0})',
    """    from hdrh.histogram import HdrHistogram
    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for step in range(100):
        made.record_value(1000 * parameters["load"] * (step + 1))
    figures = {"rate": parameters["load"] * 1000.0, "cost": parameters["load"] * 10.0 + place.seed % 3}
    return fx.Measurement(figures, histogram=made.encode().decode())""",
).replace("13 is bad luck", "<13 & bad luck>")
EVERYTHING = """grid={'load': [1, 2, 4, 13], 'way': ['up', 'down']}, title='Toys <and> loads', compare='way',
    knee=['rate', 'cost']"""


def test_it_has_everything_and_asks_nothing_of_the_network(toy_file: Any, python: Python, tmp_path: Path) -> None:
    toy_file(EVERYTHING, LATENCIES)
    assert python("-m", "flownet", "experiment", "run", "toy.py", "--out", "out").returncode == 0
    # No Spark and no Java are to be had here.
    script = "import sys; sys.modules['pyspark'] = None; from flownet.cli import main; sys.exit(main(sys.argv[1:]))"
    finished = python("-c", script, "experiment", "report", "out", env={"PATH": ""})
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == f"{tmp_path}/out/toy.html\n"
    text = (tmp_path / "out" / "toy.html").read_text()
    for part in (
        "<h1>Toys &lt;and&gt; loads</h1>",
        "What was measured",
        "Beside way=up",
        "Where the knee is",
        "Latency of all records",
        "What failed",
        "ValueError: &lt;13 &amp; bad luck&gt;",
        "In the order of time",
        "To repeat it",
        "load=4, way=down",
    ):
        assert part in text, part
    assert text.count("<svg") == 5
    assert text.count("</svg>") == 5
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)[^"']*|url\((?!#)[^)]*|@import|<script|<link""", text)


def test_each_experiment_of_a_folder_has_a_page(toy: Callable[..., Experiment], tmp_path: Path) -> None:
    run(toy(), tmp_path / "out")
    run(Experiment("other", toy().work, grid={"load": [3]}), tmp_path / "out")
    assert [page.name for page in report(tmp_path / "out")] == ["other.html", "toy.html"]
    assert [page.name for page in report(tmp_path / "out", "toy")] == ["toy.html"]


def test_results_that_are_not_there_are_an_error_that_names_those_that_are(
    toy: Callable[..., Experiment], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="has no results$"):
        report(tmp_path)
    run(toy(), tmp_path)
    with pytest.raises(ConfigError, match="has no results of 'tyo'; there are: toy"):
        report(tmp_path, "tyo")


def test_rows_of_an_older_flownet_lack_columns_and_are_read_all_the_same(
    toy: Callable[..., Experiment], tmp_path: Path
) -> None:
    from pyarrow import parquet

    run(toy("grid={'load': [1, 2]}, repetitions=1"), tmp_path)
    for file in (tmp_path / "experiment=toy").glob("*.parquet"):
        parquet.write_table(
            parquet.read_table(file, partitioning=None).drop_columns(["waited_seconds", "histogram"]), file
        )
    assert [page.name for page in report(tmp_path)] == ["toy.html"]
