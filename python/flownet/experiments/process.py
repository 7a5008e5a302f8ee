"""The process of one run: see `alone`, which starts it."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import sys
import threading
from pathlib import Path

from ..internal import serialise
from .execute import execute
from .subprocess_runner import INIT, ROW, RUN
from .workload import RunPlace


def main() -> None:
    """Run what lies in the folder that is the argument, and leave the row there."""
    folder = Path(sys.argv[1])
    threading.Thread(target=_die_with_caller, args=[folder], name="flownet-run-life", daemon=True).start()
    # An interrupt from the terminal reaches the caller too, which then kills this process.
    with contextlib.suppress(KeyboardInterrupt):
        try:
            init, packed = (folder / INIT).read_bytes(), (folder / RUN).read_bytes()
        except FileNotFoundError:
            # The caller was interrupted while this process came up, and has taken the folder along.
            return
        serialise.apply_init(init)
        session, run, waited = pickle.loads(packed)  # noqa: S301 - of the process that started us
        row = execute(session, run, RunPlace(run.seed), waited)
        # All of it or nothing.
        written = folder / f"{ROW}.part"
        written.write_bytes(pickle.dumps(row))
        written.rename(folder / ROW)


def _die_with_caller(folder: Path) -> None:
    os.read(0, 1)
    # The caller was killed: nobody else does.
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
