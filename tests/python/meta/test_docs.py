"""The pages of the documentation: what they show runs, and what they list is all there is."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import flownet as fn
from flownet import cli, errors

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found, f"{page} shows no {language}"
    return found


@pytest.mark.parametrize("page", ["tuning.md", "coming-from.md"])
def test_programs_of_a_page_run(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, page: str
) -> None:
    for number, block in enumerate(blocks(page, "python")):
        (tmp_path / f"{number}.py").write_text(block)
        finished = python(f"{number}.py")
        assert (finished.returncode, finished.stderr) == (0, "")


def test_every_error_is_explained_by_name() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "errors.md").read_text(), re.MULTILINE)
    classes = [
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    assert sorted([*listed, "FlownetError"]) == sorted(classes)


def public_paths() -> Iterator[str]:
    """Yield the path by which users import each public name, without errors, which have a page of their own."""
    top = {name: getattr(fn, name) for name in fn.__all__ if name not in {"FlownetError", "__version__", "errors"}}
    modules = {name: value for name, value in top.items() if isinstance(value, ModuleType)}
    yield from (f"flownet.{name}" for name in top if name not in modules)
    for name, module in modules.items():
        for inner in getattr(module, "__all__", None) or classes_of(module):
            if inner not in top:
                yield f"flownet.{name}.{inner}"


def classes_of(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def test_the_reference_has_every_public_name_once_by_the_path_to_import() -> None:
    pages = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    listed = re.findall(r"^::: (flownet\.[\w.]+)$", pages, re.MULTILINE)
    whole_modules = {"flownet.errors", "flownet.testing", "flownet.spark", "flownet.client", "flownet.otel"}
    assert sorted(set(listed) - whole_modules) == sorted(public_paths())
    assert len(listed) == len(set(listed))


def test_the_top_level_has_few_classes() -> None:
    """Classes that users write in a program are there; others are in the modules that their docs name."""
    classes = [name for name in fn.__all__ if inspect.isclass(getattr(fn, name))]
    assert len(classes) <= 62


def test_jobs_are_deployed_by_commands_that_there_are() -> None:
    (unit,) = blocks("deploying.md", "ini")
    (image,) = blocks("deploying.md", "dockerfile")
    (manifest,) = blocks("deploying.md", "yaml")
    started = re.search(r"^ExecStart=\S+/flownet (.+)$", unit, re.MULTILINE)
    command = re.search(r"^CMD (\[.+\])$", image, re.MULTILINE)
    assert started is not None
    assert command is not None
    for words in (shlex.split(started[1]), yaml.safe_load(command[1])[1:]):
        options = cli._parser().parse_args(words)
        assert (options.target, options.ui, options.recovery_directory) == (
            "wordcount:env",
            "0.0.0.0:8081",
            "/data/wordcount",
        )
    pod = yaml.safe_load(manifest)["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 10, "what stop_timeout is unless set"
    assert pod["containers"][0]["ports"] == [{"containerPort": 8081, "name": "page"}]
