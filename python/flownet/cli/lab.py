"""``flownet lab``: shows flow control at work, beside other ways of controlling it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..internal.tables import text_table
from ..lab.controls import CONTROLS
from ..lab.result import Result
from ..lab.rows import write_rows
from ..lab.scenario import Scenario
from ..lab.scenarios import SCENARIOS
from ..lab.settings import parameters, with_settings
from ..lab.trace import Trace

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``lab`` to the command line."""
    parser = commands.add_parser(
        "lab",
        help="show flow control at work",
        description="Run a scenario in real workers, over real sockets, under each way of controlling flow; print what "
        "came of it.",
        epilog=_explained(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="SCENARIO", help=f"{', '.join(SCENARIOS)}, or all")
    parser.add_argument(
        "--control",
        metavar="C",
        action="append",
        default=[],
        help="only under this control; can be repeated, or a list with commas (default: all that apply)",
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="change a setting of the scenario, such as seconds=10s",
    )
    parser.add_argument("--json", action="store_true", help="write one line of JSON a control instead of a table")
    parser.add_argument("--plot", metavar="FILE", help="draw the scenario: a .png, .pdf, .svg or .html file")
    parser.add_argument(
        "--size", metavar="WxH", help="size of that picture in inches, such as 7x5 (default: what suits it)"
    )
    parser.add_argument(
        "--title", metavar="TEXT", help="title of that picture; empty for none (default: what it shows)"
    )
    parser.add_argument("--rows", metavar="FILE", help="write every sample, one a row: a .csv or .parquet file")
    parser.add_argument("--report", metavar="FILE", help="write one page with all pictures and tables: an .html file")
    parser.set_defaults(command=_lab)


def _lab(options: argparse.Namespace) -> int:
    try:
        scenarios = _scenarios(options)
        controls = _controls(options, scenarios)
        files = _files(options)
        size = _size(options, len(_applicable(scenarios[0], controls)))
    except ConfigError as error:
        print(f"flownet lab: {error}", file=sys.stderr)
        return 2
    traces: list[Trace] = []
    answers: list[tuple[Scenario, list[Result]]] = []
    with _rows_kept(files.get("rows"), traces):
        for scenario in scenarios:
            if results := _run(scenario, controls, traces, as_json=options.json):
                answers.append((scenario, results))
    _show(answers, files, size, options.title)
    return 0


def _scenarios(options: argparse.Namespace) -> list[Scenario]:
    """Check and make the scenarios that were asked for."""
    if options.scenario == "all":
        if options.settings or options.plot:
            given = "--set" if options.settings else "--plot"
            raise ConfigError(f"{given} is for one scenario, not for all" + (": use --report" if options.plot else ""))
        return [scenario() for scenario in SCENARIOS.values()]
    if options.scenario not in SCENARIOS:
        raise ConfigError(f"unknown scenario {options.scenario!r}; there are: {', '.join(SCENARIOS)}, all")
    scenario = with_settings(SCENARIOS[options.scenario](), options.settings)
    scenario.check()
    return [scenario]


def _controls(options: argparse.Namespace, scenarios: Sequence[Scenario]) -> list[str]:
    """Check the controls that were asked for; none stands for all that apply."""
    asked = [name for given in options.control for name in given.split(",")]
    for name in asked:
        if name not in CONTROLS:
            raise ConfigError(f"unknown control {name!r}; there are: {', '.join(CONTROLS)}")
        for scenario in scenarios:
            if len(scenarios) == 1 and name not in scenario.controls:
                applicable = ", ".join(scenario.controls)
                raise ConfigError(f"control {name!r} does not apply to {scenario.name}; there are: {applicable}")
    return asked


def _applicable(scenario: Scenario, asked: Sequence[str]) -> list[str]:
    return [name for name in scenario.controls if name in asked or not asked]


def _files(options: argparse.Namespace) -> dict[str, Path]:
    """Check that the files to be written can be, before anything runs."""
    endings = {"plot": (".png", ".pdf", ".svg", ".html"), "rows": (".csv", ".parquet"), "report": (".html",)}
    files = {}
    for option, allowed in endings.items():
        if (given := getattr(options, option)) is None:
            continue
        path = Path(given)
        if path.suffix not in allowed:
            raise ConfigError(f"--{option} {given}: the name must end with {' or '.join(allowed)}")
        _check_writable(option, path)
        needed = "pyarrow" if path.suffix == ".parquet" else None if path.suffix == ".csv" else "matplotlib"
        if needed and importlib.util.find_spec(needed) is None:
            raise ConfigError(
                f"--{option} {given}: needs {needed}, which is not installed: pip install 'flownet-streams[lab]'"
            )
        files[option] = path
    return files


def _size(options: argparse.Namespace, rows: int) -> tuple[float, float] | None:
    """Check what was asked for of the picture, which has so many rows; return its size, if one was given."""
    if options.size is None and options.title is None:
        return None
    if options.plot is None or options.plot.endswith(".html"):
        given = "--title" if options.size is None else "--size"
        raise ConfigError(f"{given} is for a picture: add --plot with a .png, .pdf or .svg file")
    if options.size is None:
        return None
    from ..lab.picture import least_size

    least = least_size(rows)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)x(\d+(?:\.\d+)?)", options.size)
    size = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    if not all(low <= inches <= 50 for inches, low in zip(size, least, strict=True)):
        raise ConfigError(
            f"--size {options.size}: write width x height in inches, from {least[0]:g}x{least[1]:g} for what this "
            "picture shows to 50x50"
        )
    return size


def _check_writable(option: str, path: Path) -> None:
    existed = path.exists()
    try:
        # Permissions alone do not tell: a file system can be read-only, a parent can be a file.
        with open(path, "ab"):
            pass
    except OSError as error:
        raise ConfigError(f"--{option} {path}: cannot be written: {error.strerror}") from error
    if not existed:
        os.unlink(path)


def _run(scenario: Scenario, asked: Sequence[str], traces: list[Trace], *, as_json: bool) -> list[Result]:
    """Run a scenario under its controls and print what came of it."""
    controls = _applicable(scenario, asked)
    results = []
    for number, control in enumerate(controls, start=1):
        if sys.stderr.isatty():
            about = f"about {scenario.duration():.0f} s"
            print(f"{scenario.name} under {control} ({number} of {len(controls)}), {about}", file=sys.stderr)
        trace = Trace(scenario.name, control)
        traces.append(trace)
        scenario.run(trace)
        results.append(scenario.result(trace))
        if as_json:
            print(json.dumps(results[-1].as_json()), flush=True)
    if results and not as_json:
        print(f"\n{scenario.name}: {scenario.question}\n")
        print(*text_table(scenario.table(results)), sep="\n")
        print(f"\n{scenario.finding(results)}.", flush=True)
    return results


@contextmanager
def _rows_kept(path: Path | None, traces: list[Trace]) -> Iterator[None]:
    """Write the rows there are, whether the runs come to their end or not."""
    try:
        yield
    finally:
        if path is not None:
            count = write_rows(path, traces)
            print(f"{count:,} rows in {path}", file=sys.stderr)


def _show(
    answers: Sequence[tuple[Scenario, list[Result]]],
    files: dict[str, Path],
    size: tuple[float, float] | None,
    title: str | None,
) -> None:
    """Write the pictures and the page."""
    if "plot" not in files and "report" not in files:
        return
    # Slow to import, and not there without the extra.
    from ..internal.plots import written
    from ..lab.report import drawn, page

    command = shlex.join(["flownet", *sys.argv[1:]])
    for option, path in files.items():
        if path.suffix == ".html":
            page(answers, command).write(path)
        elif option == "plot":
            path.write_bytes(written(drawn(*answers[0], size, title), path.suffix[1:]))
    print(f"written: {', '.join(str(files[kind]) for kind in ('plot', 'report') if kind in files)}", file=sys.stderr)


def _explained() -> str:
    lines = ["scenarios and their settings:"]
    for scenario in SCENARIOS.values():
        lines.append(f"\n  {scenario.name}: {scenario.question}")
        lines += [f"    {f'{name}={said.default}':18} {said.doc}" for name, said in parameters(scenario).items()]
    lines.append("\ncontrols:")
    lines += [f"  {control.name:10} {control.how}" for control in CONTROLS.values()]
    return "\n".join(lines)
