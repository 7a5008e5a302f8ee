"""What functions say in a worker, by ``print`` and ``logging``: it goes to the process that submitted the job.

In a worker process `begin` takes the place of the standard streams and of logging's configuration, which nobody there
has made; each line is said as the subtask whose thread it is of. In the submitting process nothing takes anybody's
place: what functions log there goes where the program sends it, and `overhear` has it in the job's log, too.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, TextIO

from .._flownet import say_line, say_record


def levels() -> dict[str, int]:
    """Say which loggers of this process have a level of their own, the root logger by the name ``""``."""
    own = {"": logging.getLogger().level}
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            own[name] = logger.level
    return own


def begin(levels: dict[str, int]) -> None:
    """Let what is said in this process, a worker, go to whoever submitted the job; at once again for the next job."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    if not _is_worker():
        logging.getLogger().addHandler(_LogHandler())
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, SpokenStream):
            setattr(sys, name, SpokenStream(stream, is_error=name == "stderr"))


def overhear() -> None:
    """Have what functions log in this process in the log of their job, too."""
    make = logging.getLogRecordFactory()
    if getattr(make, "_is_overhearing", False):
        return

    def overheard(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        # A worker that starts a job says all that is logged anyway. Of a thread that runs no functions nobody hears it.
        if not _is_worker():
            # A text that cannot be made is told by whoever handles the record, and raised at nobody who logs.
            with suppress(Exception):
                _say(record)
        return record

    overheard._is_overhearing = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(overheard)


class SpokenStream:
    """Takes the place of a standard stream: says whole lines, each thread its own.

    Between two jobs of a process that is not ours, as in Spark, nobody hears them, and they go where they always went.
    """

    def __init__(self, stream: TextIO, *, is_error: bool) -> None:
        self._stream = stream
        self._is_error = is_error
        self._begun = threading.local()

    def write(self, text: str) -> int:
        """Say the lines that end with this."""
        *lines, rest = (getattr(self._begun, "text", "") + text).split("\n")
        self._begun.text = rest
        for line in lines:
            self._say(line)
        return len(text)

    def flush(self) -> None:
        """Say the line that has begun, as a line."""
        if text := getattr(self._begun, "text", ""):
            self._begun.text = ""
            self._say(text)
        self._stream.flush()

    def _say(self, line: str) -> None:
        if not say_line(_without_surrogates(line), self._is_error):
            self._stream.write(f"{line}\n")

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of them, with the ends of lines that they have."""
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        """Say no: whoever submitted the job may have a terminal, and this process has none."""
        return False

    def __getattr__(self, name: str) -> Any:
        # Its encoding and the like; what is written to its buffer or file descriptor has nobody's name.
        return getattr(self._stream, name)


class _LogHandler(logging.Handler):
    """Says what is logged."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _say(record)
        except Exception:
            self.handleError(record)


def _is_worker() -> bool:
    return any(isinstance(handler, _LogHandler) for handler in logging.getLogger().handlers)


def _say(record: logging.LogRecord) -> bool:
    # Nothing is noted in the record, which others may format in their own way.
    raised = record.exc_text or (_FORMAT.formatException(record.exc_info) if record.exc_info else "")
    parts = [record.getMessage(), raised, record.stack_info]
    said = "\n".join(part for part in parts if part)
    return say_record(_without_surrogates(said), record.levelno, record.name)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode() if any("\ud800" <= letter <= "\udfff" for letter in text) else text


_FORMAT: Final = logging.Formatter()
