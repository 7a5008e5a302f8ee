"""Runs one cell in a process of its own, so that a cell that ends its process is a failed run, and nothing else.

::

    caller                              process of the run (`process`)
      session and run  ── a file ──>    runs the cell
      a pipe           ── stdin ───>    dies when it is closed: the caller is gone, and takes its files along
      row              <── a file ──    ends
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ..errors import ConfigError, NotShippableError
from ..internal import serialise
from . import cores
from .execute import Row, RunStart, Session, row_of
from .plan import Run
from .workload import Measurement


def execute_alone(session: Session, run: Run, seen: AbstractContextManager[object] | None = None) -> Row:
    """Run one cell once in a process of its own, as soon as the cores that it needs are free on this host.

    Parameters
    ----------
    session
        What it belongs to.
    run
        Which cell, which repetition.
    seen
        Entered while it runs.

    Raises
    ------
    ConfigError
        What measures cannot be sent to another process.
    """
    began = time.perf_counter()
    with cores.reserved(session.experiment.work.cores(run.cell.parameters)):
        waited = time.perf_counter() - began
        with seen or nullcontext(), tempfile.TemporaryDirectory(prefix="flownet-run-") as folder:
            return _execute_in(Path(folder), session, run, waited)


def _execute_in(folder: Path, session: Session, run: Run, waited: float) -> Row:
    (folder / INIT).write_bytes(serialise.pack_init())
    (folder / RUN).write_bytes(_packed(session, run, waited))
    beginning = RunStart.now(waited)
    code = _run_process(folder)
    if (folder / ROW).exists():
        row: Row = pickle.loads((folder / ROW).read_bytes())  # noqa: S301 - of a process that we started
        return row
    return row_of(session, run, beginning, Measurement({}), f"the process of the run {_ended(code)} before it was done")


def _packed(session: Session, run: Run, waited: float) -> bytes:
    name = session.experiment.name
    try:
        return serialise.dumps((session, run, waited), name)
    except NotShippableError as error:
        raise ConfigError(
            f"experiment {name!r}: {error.culprit} cannot be sent to the process of a run: make it inside of the "
            f"function that measures",
            setting="measure",
        ) from error


def _run_process(folder: Path) -> int:
    command = [sys.executable, "-P", "-m", "flownet.experiments.process", str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended itself with exit code {code}"
    hint = " (for want of memory, perhaps)" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{hint}"


INIT = "init"
RUN = "run"
ROW = "row"
