"""Waits for a job, handles signals meanwhile, and reports warnings."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import StalledWarning, warn_user

if TYPE_CHECKING:
    from ..observation.report import JobStatus


class Watcher:
    """Whom a job that is waited for keeps informed; this one as Python does: by warnings and the log."""

    def __init__(self) -> None:
        self._look_at = time.monotonic() + _SECONDS_BETWEEN_LOOKS

    def warn(self, warning: StalledWarning) -> None:
        """Issue it at the line of the user's that waits."""
        warn_user(warning)

    def say(self, text: str) -> None:
        """Take a line on what a signal does."""
        _LOGGER.warning(text)

    def late(self, status: Callable[[], JobStatus]) -> None:
        """Warn in the log of sources whose records come late, of each once in ten seconds."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _SECONDS_BETWEEN_LOOKS
        from ..observation.report import out_of_order

        told = status()
        for said in out_of_order(told):
            self._look_at = now + _SECONDS_BETWEEN_WARNINGS
            self.say(f"job {told.name!r}: late: {said}")

    def tick(self, status: Callable[[], Any]) -> None:
        """Be called several times a second while the job runs, with what asks for its `JobStatus`."""


class TerminationExit(SystemExit):
    """Raised on SIGTERM while a job is waited for. It ends the process with the shell's exit code of SIGTERM."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def name_of(signalled: KeyboardInterrupt | TerminationExit) -> str:
    """Return the name of a signal."""
    return "SIGTERM" if isinstance(signalled, TerminationExit) else "Ctrl-C"


def exit_code(signalled: KeyboardInterrupt | TerminationExit) -> int:
    """Return the exit code that shells use for a command that a signal ended."""
    return 128 + (signal.SIGTERM if isinstance(signalled, TerminationExit) else signal.SIGINT)


@contextmanager
def sigterm_raised() -> Iterator[None]:
    """Raise `TerminationExit` at SIGTERM, unless the program handles it otherwise."""
    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_ours:
        yield
        return

    def terminate(_number: int, _frame: object) -> None:
        raise TerminationExit

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_SECONDS_BETWEEN_LOOKS = 1.0

_SECONDS_BETWEEN_WARNINGS = 10.0

_LOGGER = logging.getLogger("flownet")
