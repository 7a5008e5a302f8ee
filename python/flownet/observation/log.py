"""What was said in a job: `LogEntry`, and who prints what its workers say."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Level = Literal["debug", "info", "warning", "error", "critical"]
"""How bad it is: that of `logging`; of Rust's ``trace`` it is ``"debug"``."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that was said in a job, by ``print``, ``logging`` or flownet itself: see `Job.log`."""

    number: int
    """Counted in the job, from 1."""
    at_ms: int
    """When, in milliseconds since the epoch."""
    worker: int
    """In which process; 0 is the one that submitted the job."""
    task: int | None
    """Position among the tasks of the one whose function said it; None where it was no subtask's thread."""
    subtask: int | None
    """Index among its subtasks, from 0."""
    kind: Literal["stdout", "stderr", "python", "rust"]
    """A line on either stream of a worker, a record of ``logging``, or an event of flownet's Rust side."""
    level: Level | None
    """Of records and events."""
    logger: str | None
    """Where they come from."""
    text: str
    """What was said, without the line's end; at most 16 KiB."""

    def speaker(self, tasks: Sequence[tuple[str, int]]) -> str:
        """Name who said it, among tasks with these names and parallelisms.

        Examples
        --------
        >>> from flownet.observation import LogEntry
        >>> entry = LogEntry(1, 0, 1, task=0, subtask=1, kind="stdout", level=None, logger=None, text="here")
        >>> entry.speaker([("parse", 4)])
        'parse 2/4'
        """
        return speaker_name(self.worker, self.task, self.subtask, tasks)


def speaker_name(worker: int, task: int | None, subtask: int | None, tasks: Sequence[tuple[str, int]]) -> str:
    """Name who said something: ``"parse 2/4"``, or ``"worker 1"`` where it was no subtask's thread."""
    if task is None or subtask is None or not 0 <= task < len(tasks):
        return f"worker {worker}" if worker else "this process"
    name, parallelism = tasks[task]
    return name if parallelism == 1 else f"{name} {subtask + 1}/{parallelism}"


class LogSource(Protocol):
    """The log of a job, as the extension gives it."""

    def entries(self, after: int, most: int, level: str | None) -> list[dict[str, Any]]:
        """Say what is kept of it."""

    def unprinted(self, timeout_ms: int) -> list[dict[str, Any]] | None:
        """Say what workers said and was not printed yet; None when there will be no more."""


class Printer:
    """Prints what the workers of a job say, in this process, as soon as it is known.

    Parameters
    ----------
    said
        The log of the job.
    tasks
        Name and parallelism of each task.
    """

    def __init__(self, said: LogSource, tasks: list[tuple[str, int]]) -> None:
        self._said = said
        self._tasks = tasks
        self._thread = threading.Thread(target=self._run, name="flownet-print", daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float | None = None) -> None:
        """Wait until all is printed of a job that has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while (entries := self._said.unprinted(_PATIENCE_MS)) is not None:
            for entry in entries:
                # Whoever reads it may have gone, and what handles it may raise: the job does not mind.
                with suppress(Exception):
                    self._print(entry)

    def _print(self, entry: dict[str, Any]) -> None:
        kind, text = entry["kind"], entry["text"]
        if kind == "output":
            _write(sys.stdout, text)
        elif kind == "python":
            self._log(entry)
        else:
            stream = sys.stderr if kind == "stderr" else sys.stdout
            _write(stream, f"[{self._speaker(entry)}] {text}\n")

    def _log(self, entry: dict[str, Any]) -> None:
        """Log a worker's record as one of this process, which knows what is to be done with it."""
        logger = logging.getLogger(entry["logger"])
        level = logging.getLevelName(entry["level"].upper())
        if logger.isEnabledFor(level):
            text = f"[{self._speaker(entry)}] {entry['text']}"
            names = {
                "flownet_worker": entry["worker"],
                "flownet_task": entry["task"],
                "flownet_subtask": entry["subtask"],
            }
            record = logger.makeRecord(logger.name, level, "", 0, text, (), None, extra=names)
            record.created = entry["at_ms"] / 1000
            record.msecs = entry["at_ms"] % 1000
            logger.handle(record)

    def _speaker(self, entry: dict[str, Any]) -> str:
        return speaker_name(entry["worker"], entry["task"], entry["subtask"], self._tasks)


def _write(stream: Any, text: str) -> None:
    if stream is not None:
        stream.write(text)
        stream.flush()


_PATIENCE_MS = 1000
