"""``flownet run`` and ``flownet explain``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from .. import otel
from ..api.environment import Environment
from ..api.job import Job
from ..errors import CancelledError, StalledWarning
from ..internal.config import parse_assignment
from ..internal.waiting import TerminationExit, Watcher, exit_code
from ..observation.progress import Progress
from ..observation.report import JobResult, JobStatus
from ..observation.ui import Ui, announced, serve_ui
from .load import load_environment

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_commands(commands: Commands) -> None:
    """Add ``run`` and ``explain`` to the command line."""
    run = commands.add_parser(
        "run",
        help="run a dataflow",
        description="Run a dataflow to the end of its sources; ARG ... are for the script.",
    )
    run.add_argument("--json", action="store_true", help="write the result as JSON to standard output at the end")
    run.add_argument(
        "-r",
        "--recovery-directory",
        metavar="DIR",
        help="keep checkpoints in this folder, and go on from the last one in it: the same command again, after any "
        "crash, continues",
    )
    run.add_argument(
        "-s",
        "--snapshot-interval",
        metavar="SECONDS",
        type=float,
        help=f"seconds from one checkpoint to the next; {_SNAPSHOT_SECONDS} if -r is given alone",
    )
    run.add_argument(
        "--from",
        metavar="SAVEPOINT",
        dest="restore_from",
        help="begin from a savepoint, or from the last checkpoint of another folder, while there is none in DIR. "
        "Restoring runs code from it: take only what you or your job wrote",
    )
    run.add_argument(
        "--from-checkpoint",
        metavar="NUMBER",
        type=int,
        dest="restore_checkpoint",
        help="with --from: begin from this one of those that flownet checkpoints lists (default: the last)",
    )
    run.add_argument(
        "--allow-non-restored-state",
        action="store_true",
        help="go on although there is state of operators that the dataflow has no more: it is lost",
    )
    run.add_argument(
        "--ui",
        metavar="HOST:PORT",
        nargs="?",
        const="",
        help="serve a page that shows the job; on 127.0.0.1 and port 8081 or one of the next, unless told otherwise. "
        "Elsewhere than on loopback, and with --ui-actions, it asks for a token: FLOWNET_UI_TOKEN, or a new one that "
        "is printed",
    )
    run.add_argument(
        "--ui-actions", action="store_true", help="let whoever has the token of the page cancel, stop and save the job"
    )
    run.add_argument(
        "--ui-archive",
        metavar="DIR",
        help="keep the job in this folder when it has ended, for later pages and for flownet archive; the oldest jobs "
        "go beyond 64 MiB",
    )
    run.add_argument(
        "--otel",
        metavar="ENDPOINT",
        nargs="?",
        const="",
        help="push the metrics to a collector of OpenTelemetry, such as http://collector:4318; where the variables "
        "OTEL_EXPORTER_OTLP_* say, unless told otherwise (extra: otel)",
    )
    run.set_defaults(command=_run)
    explain = commands.add_parser(
        "explain", help="say what a dataflow will take", description="Print the plan of a dataflow without running it."
    )
    explain.set_defaults(command=_explain)
    for parser in (run, explain):
        parser.usage = f"flownet {parser.prog.split()[-1]} [OPTION ...] MODULE:ENV [-- ARG ...]"
        parser.add_argument("target", metavar="MODULE:ENV", help="the variable ENV of MODULE.py, an Environment")
        add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that override settings."""
    parser.add_argument("--workers", metavar="N", help="worker processes; 0 runs all in this one (FLOWNET_WORKERS)")
    parser.add_argument(
        "--parallelism", metavar="N", help="subtasks of operators that do not set their own (FLOWNET_PARALLELISM)"
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="override a setting of the Environment, such as buffer_timeout=5ms (FLOWNET_BUFFER_TIMEOUT)",
    )


def overrides(options: argparse.Namespace) -> dict[str, str]:
    """Read the options of `add_settings`."""
    settings = [f"{name}={getattr(options, name)}" for name in ("workers", "parallelism") if getattr(options, name)]
    return dict(map(parse_assignment, [*options.settings, *settings]))


def watch(job: Job, progress: Progress | None, on_tick: Callable[[], None] = lambda: None) -> tuple[JobResult, int]:
    """Wait for a job and show how it goes. A signal stops the job, and does not lose what it has done until then.

    Parameters
    ----------
    job
        The job.
    progress
        Where to show it; None shows nothing.
    on_tick
        Called several times a second.

    Returns
    -------
    tuple[JobResult, int]
        The result, and the exit code: 0, or that of the signal.
    """
    try:
        try:
            return job._wait(None, _Viewer(progress, on_tick)), 0
        except (KeyboardInterrupt, TerminationExit) as signalled:
            try:
                return job.wait(), exit_code(signalled)
            except CancelledError:
                raise signalled from None
    finally:
        if progress is not None:
            progress.clear()


class _Viewer(Watcher):
    """Shows a job on the terminal."""

    def __init__(self, progress: Progress | None, on_tick: Callable[[], None]) -> None:
        super().__init__()
        self._progress = progress
        self._on_tick = on_tick
        self._next_look_at = time.monotonic() + _SECONDS_BETWEEN_LOOKS

    def warn(self, warning: StalledWarning) -> None:
        self._write(f"flownet.errors.{type(warning).__name__}: {warning}")

    def say(self, text: str) -> None:
        self._write(f"flownet: {text}")

    def tick(self, status: Callable[[], JobStatus]) -> None:
        if time.monotonic() < self._next_look_at:
            return
        self._next_look_at = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        if self._progress is not None:
            self._progress.show(status())
        self._on_tick()

    def _write(self, text: str) -> None:
        if self._progress is not None:
            self._progress.tell(text)
        else:
            print(text, file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    settings = _checkpoints(options) | overrides(options)
    env = load_environment(options.target, options.arguments)
    env._override(settings)
    export = _export(options)
    with _page(options) as page, env.execute_async(ui=page) as job, export(job):
        if page is not None:
            announced(job)
        result, code = watch(job, _progress(env, options))
    if options.json:
        sums = {name: getattr(result, name) for name in ("records", "records_per_second", "bytes_local", "bytes_tcp")}
        print(json.dumps(dataclasses.asdict(result) | sums))
    else:
        print(result, file=sys.stderr)
    return code


def _page(options: argparse.Namespace) -> AbstractContextManager[Ui | None]:
    """Open the page that was asked for, if one was."""
    if options.ui is None and not options.ui_actions and options.ui_archive is None:
        return nullcontext()
    return serve_ui(options.ui or None, actions=options.ui_actions, archive=options.ui_archive)


def _export(options: argparse.Namespace) -> Callable[[Job], AbstractContextManager[object]]:
    """Say what exports the metrics of a job, before there is one: it may not be installed."""
    if options.otel is None:
        return nullcontext
    otel.need_packages()
    return lambda job: otel.export(job, endpoint=options.otel or None)


def _checkpoints(options: argparse.Namespace) -> dict[str, str]:
    settings = {}
    if options.recovery_directory is not None:
        settings["checkpoint_storage"] = options.recovery_directory
        settings["checkpoint_interval"] = f"{_SNAPSHOT_SECONDS}s"
    if options.snapshot_interval is not None:
        settings["checkpoint_interval"] = f"{options.snapshot_interval:f}s"
    if options.restore_from is not None:
        settings["restore_from"] = options.restore_from
    if options.restore_checkpoint is not None:
        settings["restore_checkpoint"] = str(options.restore_checkpoint)
    if options.allow_non_restored_state:
        settings["allow_non_restored_state"] = "true"
    return settings


def _explain(options: argparse.Namespace) -> int:
    settings = overrides(options)
    env = load_environment(options.target, options.arguments)
    env._override(settings)
    print(env.explain())
    return 0


def _progress(env: Environment, options: argparse.Namespace) -> Progress | None:
    """No progress where the records themselves are printed: the two would overwrite each other."""
    prints = any(node.kind == "print" for node in env._dataflow.nodes)
    return None if prints or options.json else Progress(sys.stderr)


_SECONDS_BETWEEN_LOOKS = 0.5

_SNAPSHOT_SECONDS = 10
