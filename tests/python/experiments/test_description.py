"""What may be described as an experiment, and how it is refused when it cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from flownet.errors import ConfigError
from flownet.experiments import Experiment, find_experiment, ready_made

GOOD = """
name = "mine"
workload = "exchange"
[parameters]
records = 1000
[grid]
buffer_timeout = ["0", "1ms", "none"]
segment_size = ["4KiB", 32768]
"""


def test_a_grid_is_every_combination_in_base_units(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    experiment = find_experiment(str(tmp_path / "mine.toml"))
    assert [dict(cell.parameters) for cell in experiment.all_cells] == [
        {"records": 1000, "buffer_timeout": timeout, "segment_size": size}
        for timeout in (0, 1000, None)
        for size in (4096, 32768)
    ]
    assert [cell.label for cell in experiment.all_cells][:3] == [
        "buffer_timeout=0, segment_size=4 KiB",
        "buffer_timeout=0, segment_size=32 KiB",
        "buffer_timeout=1 ms, segment_size=4 KiB",
    ]


def test_cells_that_are_no_grid_meet_every_combination_of_one() -> None:
    experiment = Experiment(
        "both", "exchange", cells=[{"writers": 1, "channels": 1}, {"writers": 4, "channels": 9}], grid={"local": [True]}
    )
    assert [cell.label for cell in experiment.all_cells] == ["writers=1, channels=1", "writers=4, channels=9"]
    assert all(cell.parameters["local"] is True for cell in experiment.all_cells)


def test_a_parameter_that_is_not_set_has_its_default(toy: Callable[..., Experiment]) -> None:
    (cell,) = toy("grid={'load': [1]}").all_cells
    assert cell.parameters == {"wait": 1000, "load": 1}


@pytest.mark.parametrize("name", ready_made())
def test_what_comes_with_flownet_can_be_run(name: str) -> None:
    experiment = find_experiment(name)
    assert experiment.name == name
    assert len(experiment.all_cells) > 1
    assert experiment.axis in experiment.varied


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (
            '"exchange"',
            '"exchang"',
            "workload: there is no workload 'exchang'; there are: exchange, head-of-line, latency, live-counts",
        ),
        ('"exchange"', "3", "workload: 3 must be the name of a workload"),
        ('workload = "exchange"', "", "workload: is missing"),
        ('"mine"', '"Mine/../x"', "name: 'Mine/../x' must be small letters"),
        ('name = "mine"', 'name = "mine"\nrepetition = 3', "repetition: unknown key (did you mean 'repetitions'?)"),
        ('name = "mine"', 'name = "mine"\nrepetitions = "3"', "repetitions='3' must be a whole number from 1 to 10000"),
        ('name = "mine"', 'name = "mine"\nrepetitions = 0', "repetitions=0 must lie between 1 and 10000"),
        ('name = "mine"', 'name = "mine"\nseed = -1', "seed=-1 must lie between"),
        ('name = "mine"', 'name = "mine"\ntitle = 3', "title: 3 must be a text"),
        (
            'name = "mine"',
            'name = "mine"\nfigures = ["p99"]',
            "figures: the workload 'exchange' has no figure 'p99'; it",
        ),
        ('name = "mine"', 'name = "mine"\nfigures = "rate"', "figures: 'rate' must be a list of figures"),
        ('name = "mine"', 'name = "mine"\nknee = ["bytes_per_s"]', "knee: ['bytes_per_s'] must be two figures"),
        (
            'name = "mine"',
            'name = "mine"\nx = "writers"',
            "x: 'writers' does not vary; what does: buffer_timeout, segm",
        ),
        ('name = "mine"', 'name = "mine"\ncompare = "records"', "compare: 'records' does not vary"),
        (
            "buffer_timeout",
            "bufer_timeout",
            "no parameter 'bufer_timeout' (did you mean 'buffer_timeout'?); it has: wr",
        ),
        ('"1ms"', '"fast"', "grid.buffer_timeout[1]: buffer_timeout='fast' is not a duration such as '10ms'"),
        ('"1ms"', "5", "grid.buffer_timeout[1]: buffer_timeout=5 needs a unit"),
        ('"4KiB"', "true", "grid.segment_size[0]: segment_size=True is not a size such as '32KiB'"),
        ('["4KiB", 32768]', "[]", "grid.segment_size: the list is empty: give at least one value"),
        ('["4KiB", 32768]', '"4KiB"', "grid.segment_size: '4KiB' must be a list of values"),
        ('["4KiB", 32768]', "[4096, '4KiB']", "cells: cells 1 and 2 are the same: buffer_timeout=0"),
        ("1000", '"many"', "parameters.records: records='many' must be a whole number"),
        ("1000", "0", "cell 1 (buffer_timeout=0, segment_size=4 KiB): records is 0, allowed is 1 to"),
        ("[parameters]", "parameters = 3\n[other]", "other: unknown key"),
        ("[grid]", "[cells]", "cells: {'buffer_timeout': ['0', '1ms', 'none']"),
        ("[parameters]", "[parameters", "is not TOML: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_file_and_key(
    tmp_path: Path, before: str, after: str, text: str
) -> None:
    assert before in GOOD
    (tmp_path / "bad.toml").write_text(GOOD.replace(before, after, 1))
    with pytest.raises(ConfigError) as raised:
        find_experiment(str(tmp_path / "bad.toml"))
    said = str(raised.value)
    assert said.startswith(f"{tmp_path}/bad.toml: ")
    assert text in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("nothing", "there is no experiment 'nothing'; there are: buffer-timeout, "),
        ("no.toml", "no.toml: cannot be read: "),
        ("no.py", "no.py: cannot be read: there is no such file"),
    ],
)
def test_an_experiment_that_is_not_there_is_an_error_that_names_those_that_are(target: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        find_experiment(target)


def test_a_python_file_has_to_assign_the_experiment(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("experiment = 3\n")
    with pytest.raises(ConfigError, match=r"empty.py: assign a flownet.experiments.Experiment to the variable"):
        find_experiment(str(tmp_path / "empty.py"))


def test_without_any_cell_there_is_no_experiment() -> None:
    with pytest.raises(ConfigError, match="grid: there are no cells: give grid, cells or both"):
        Experiment("none", "exchange")


def test_a_parameter_of_another_kind_is_refused_with_what_is_allowed(toy: Callable[..., Experiment]) -> None:
    with pytest.raises(ConfigError, match="way='left' must be one of 'up', 'down'"):
        toy("grid={'way': ['left']}")


def test_what_the_documentation_shows_can_be_run(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "internals" / "experiments.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "segments.toml").write_text(toml)
    assert len(find_experiment(str(tmp_path / "segments.toml")).all_cells) == 6
    (python, _) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "sums.py").write_text(python)
    experiment = find_experiment(str(tmp_path / "sums.py"))
    assert [cell.label for cell in experiment.all_cells] == ["numbers=10", "numbers=100"]
    table = re.findall(r"^\| `([a-z-]+)` \| ", text.split("\n## ")[0], re.MULTILINE)
    assert table == list(ready_made())
