"""Waiting for a job: what a signal does meanwhile, and who is kept informed."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import StalledWarning, warn_user


class Watcher:
    """Whom a job that is waited for keeps informed; this one as Python does: by warnings and the log."""

    def warn(self, warning: StalledWarning) -> None:
        """Issue it at the line of the user's that waits."""
        warn_user(warning)

    def say(self, text: str) -> None:
        """Take a line on what a signal does."""
        _LOGGER.warning(text)

    def tick(self, status: Callable[[], Any]) -> None:
        """Be called several times a second while the job runs, with what asks for its `JobStatus`."""


class Terminated(SystemExit):
    """SIGTERM, raised where the job is waited for; ends the process with the exit code of a shell for it."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def name_of(signalled: KeyboardInterrupt | Terminated) -> str:
    """Name a signal as its sender knows it."""
    return "SIGTERM" if isinstance(signalled, Terminated) else "Ctrl-C"


def exit_code(signalled: KeyboardInterrupt | Terminated) -> int:
    """Exit code of a command that a signal ended, as shells have it."""
    return 128 + (signal.SIGTERM if isinstance(signalled, Terminated) else signal.SIGINT)


@contextmanager
def sigterm_raised() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM, unless the program handles it otherwise."""
    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_ours:
        yield
        return

    def terminate(_number: int, _frame: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_LOGGER = logging.getLogger("flownet")
