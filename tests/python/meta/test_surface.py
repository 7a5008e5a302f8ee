"""The public surface: typed, documented, and the same as the extension behind it."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flownet as fn
import flownet.rows
from flownet import client, errors, metrics, state, triggers
from flownet.api import aggregate, functions, job, rich_functions, watermark, window
from flownet.connectors import source, sqlite
from flownet.observation import ui
from flownet.streams import all_windowed, checks, collected, connected, joined, keyed, sinks, stream, windowed, windows

ROOT = Path(__file__).parents[3]


def public_members() -> Iterator[tuple[str, Any]]:
    for name in fn.__all__:
        value = getattr(fn, name)
        yield name, value
        if isinstance(value, type):
            for member, function in vars(value).items():
                if not member.startswith("_") and inspect.isfunction(function):
                    yield f"{name}.{member}", function


def test_the_stub_says_what_the_extension_has(tmp_path: Path) -> None:
    # Names and parameters are what is compared, and the types in the stub are mypy's to read in `make lint`. So what it
    # imports is left out: that is the whole package and numpy, which took 19 s of CPU, and this takes less than two.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy.stubtest", "flownet._flownet", "--mypy-config-file", str(settings)]
    finished = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert fn.__file__ is not None
    assert (Path(fn.__file__).parent / "py.typed").exists()


def test_everything_public_is_documented() -> None:
    undocumented = [
        name
        for name, value in public_members()
        if not isinstance(value, str | ModuleType) and not inspect.getdoc(value)
    ]
    assert not undocumented


@pytest.mark.parametrize("described", [fn.Environment, fn.Stream, fn.KeyedStream, fn.streams.WindowedStream])
def test_everything_that_describes_a_dataflow_shows_an_example(described: type) -> None:
    for name, function in vars(described).items():
        if not name.startswith("_") and inspect.isfunction(function):
            assert ">>>" in (function.__doc__ or ""), f"{described.__name__}.{name}"


def test_every_module_is_documented() -> None:
    for module in pkgutil.walk_packages(fn.__path__, "flownet."):
        if module.name not in ("flownet._flownet", "flownet.__main__"):
            assert __import__(module.name, fromlist=["_"]).__doc__, module.name


MODULES = [
    *(
        fn,
        aggregate,
        client,
        collected,
        errors,
        functions,
        job,
        metrics,
        rich_functions,
        source,
        sqlite,
        state,
        triggers,
        ui,
        watermark,
        window,
        sys.modules["flownet.api.environment"],
    ),
    *(all_windowed, checks, connected, joined, keyed, sinks, stream, windowed, windows),
    *(importlib.import_module(module.name) for module in pkgutil.walk_packages(fn.rows.__path__, "flownet.rows.")),
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_run(module: ModuleType) -> None:
    names: dict[str, Callable[..., Any] | Any] = {"fn": fn, "Tumbling": fn.Tumbling}
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        if not example.examples:
            continue
        example.globs = {**names, "env": fn.Environment()}
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        assert results.failed == 0, f"{example.name}: see the output above"
