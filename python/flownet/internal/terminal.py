"""Lines that follow something that goes on: rewritten in place on a terminal, added one by one elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO


class Lines:
    """The lines shown last on a stream.

    Parameters
    ----------
    stream
        Where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0
        self.in_place = stream.isatty()
        """Whether `rewrite` works here."""

    def rewrite(self, lines: Iterable[str]) -> None:
        """Show these in place of those shown before. The terminal cuts them: it knows how wide its letters are."""
        self.clear()
        shown = list(lines)
        self._shown = len(shown)
        self._write(f"\x1b[?7l{_ended(shown)}\x1b[?7h")

    def clear(self) -> None:
        """Take away what was shown in place, so that other text can be printed."""
        if self._shown:
            # The terminal may have shown a ^C where the cursor was.
            self._write(f"\r\x1b[{self._shown}A\x1b[J")
            self._shown = 0

    def add(self, *lines: str) -> None:
        """Write lines that stay."""
        self._write(_ended(lines))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _ended(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
