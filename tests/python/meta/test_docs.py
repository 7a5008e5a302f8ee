"""The pages of the documentation: what they show runs, and what they list is all there is."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import yaml

import flownet as fn
from flownet import cli, errors

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found, f"{page} shows no {language}"
    return found


def test_every_error_is_explained_by_name() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "reference" / "errors.md").read_text(), re.MULTILINE)
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
    # Functions of a module, and classes that users meet as results alone.
    more = {"flownet.state.read", "flownet.state.renamed_from", "flownet.internal.kept_state.KeptState"}
    assert sorted(set(listed) - whole_modules - more) == sorted(public_paths())
    assert len(listed) == len(set(listed))


def test_the_top_level_has_few_classes() -> None:
    """Classes that users write in a program are there; others are in the modules that their docs name."""
    classes = [name for name in fn.__all__ if inspect.isclass(getattr(fn, name))]
    assert len(classes) <= 62


def manifest() -> dict[str, Any]:
    """Return the StatefulSet of the page about Kubernetes."""
    objects = list(yaml.safe_load_all(blocks("operations/kubernetes.md", "yaml")[0]))
    assert [described["kind"] for described in objects] == ["Secret", "Service", "StatefulSet"]
    return cast(dict[str, Any], objects[2])


def test_jobs_are_deployed_by_commands_that_there_are() -> None:
    (unit,) = blocks("operations/deploy.md", "ini")
    (image,) = blocks("operations/deploy.md", "dockerfile")
    started = re.search(r"^ExecStart=\S+/flownet (.+)$", unit, re.MULTILINE)
    command = re.search(r"^CMD (\[.+\])$", image, re.MULTILINE)
    pod = manifest()["spec"]["template"]["spec"]
    assert started is not None
    assert command is not None
    on_disk, in_store = "/data/wordcount", "s3://bucket/wordcount"
    for words, storage in (
        (shlex.split(started[1]), on_disk),
        (yaml.safe_load(command[1])[1:], on_disk),
        (pod["containers"][0]["command"][1:], in_store),
    ):
        options = cli._parser().parse_args(words)
        assert (options.target, options.ui, options.recovery_directory) == (
            "wordcount:env",
            "0.0.0.0:8081",
            storage,
        )
    assert pod["terminationGracePeriodSeconds"] > 10, "what stop_timeout is unless set"
    assert pod["containers"][0]["ports"] == [{"containerPort": 8081, "name": "page"}]


def test_the_manifest_refers_to_names_that_it_has() -> None:
    secret, service, workload = yaml.safe_load_all(blocks("operations/kubernetes.md", "yaml")[0])
    template = workload["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert service["metadata"]["name"] == workload["spec"]["serviceName"]
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        if reference is not None:
            assert reference["name"] == secret["metadata"]["name"]
            assert reference["key"] in secret["stringData"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in template["spec"]["volumes"]}
    assert f"state_dir={mounts['state']}" in container["command"]
    ports = {port["name"] for port in container["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    assert container["startupProbe"]["tcpSocket"]["port"] in ports


def test_the_liveness_probe_answers_beside_a_job(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    probe = manifest()["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
    assert probe[0] == "flownet"
    env = fn.Environment(name="probed")
    env.from_iterable(iter(int, 1), rate_limit=100).collect()
    with fn.serve_ui(0, token="a-long-secret-token") as ui, env.execute_async(ui=ui):
        variables = {"FLOWNET_UI": f"http://127.0.0.1:{ui.port}", "FLOWNET_UI_TOKEN": "a-long-secret-token"}
        answered = python("-m", *probe, env={**os.environ, **variables})
        refused = python("-m", *probe, env={**os.environ, **variables, "FLOWNET_UI_TOKEN": "another-long-token"})
    assert answered.returncode == 0, answered.stderr
    assert [job["name"] for job in json.loads(answered.stdout)] == ["probed"]
    assert refused.returncode == 1
