"""Reads single key presses while the terminal shows other output."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType


class Keys:
    """The keyboard of the terminal that is standard input, letter by letter and unseen; without one, no key comes.

    The terminal is as it was when the ``with`` block is left.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None

    def __enter__(self) -> Keys:
        if self._terminal is not None:
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)
        return self

    def wait(self, seconds: float) -> str:
        """Wait for a key, at most so long: what was pressed, or nothing."""
        if self._terminal is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return ""
        pressed = os.read(self._terminal, 1024)
        if not pressed:
            # The terminal has been closed: it would be ready for ever.
            self._terminal = None
        return pressed.decode(errors="replace")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._terminal is not None:
            termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)
