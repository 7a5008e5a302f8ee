"""Discovers new splits of sources while a job runs, once for all subtasks, in the submitting process.

I1. Each attempt of the job gets all splits that are listed while it runs, each with the turn of the subtask that reads
    it. A subtask ignores a split that it began with or got before.
I2. The thread keeps no object alive. It ends with the job and with the owner of the job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import codec
from ..connectors.source import Listing

LOG = logging.getLogger("flownet")


class DiscoveryTarget(Protocol):
    """The job that gets new splits."""

    def status(self) -> dict[str, Any]:
        """Return the status of the job."""

    def add_splits(self, operator: int, restarted: int, splits: bytes) -> None:
        """Send new splits to a source, if the attempt after this number of restarts still runs."""


class Discovery:
    """Lists the splits of sources, each at its own interval, and sends new splits to a job."""

    def __init__(self, listings: list[tuple[int, Listing]]) -> None:
        self._watches = [
            SourceWatch(operator, listing, listing.interval_seconds)
            for operator, listing in listings
            if listing.interval_seconds is not None
        ]
        self._stopped = threading.Event()

    def start(self, job: Callable[[], DiscoveryTarget | None]) -> None:
        """Start the discovery, which runs while the job exists."""
        threading.Thread(target=self._run, args=(job,), name="flownet-discovery", daemon=True).start()

    def stop(self) -> None:
        """Stop without waiting."""
        self._stopped.set()

    def _run(self, job: Callable[[], DiscoveryTarget | None]) -> None:
        while not self._stopped.wait(max(0.0, min(watch.next_s for watch in self._watches) - time.monotonic())):
            for watch in self._watches:
                if watch.next_s <= time.monotonic() and not _look(watch, job):
                    return


def _look(watch: SourceWatch, job: Callable[[], DiscoveryTarget | None]) -> bool:
    """Send new splits of a source to a job; False if the job is gone. The job is referenced only during the call."""
    told = job()
    if told is None:
        return False
    status = told.status()
    if status["state"] == "ended":
        return False
    found = watch.look(status["restarted"] if status["state"] == "running" else None)
    watch.tell(found, told)
    return True


@dataclass
class SourceWatch:
    """A source whose splits are listed."""

    operator: int
    listing: Listing
    interval_s: float
    next_s: float = 0.0
    restarted: int | None = None
    """The attempt that got the splits, by the number of restarts before it."""
    turns: int = 0
    told: set[Any] = field(default_factory=set)
    complaint: str = ""

    def look(self, restarted: int | None) -> list[tuple[int, Any, Any]]:
        """List splits that the attempt does not have yet, each with its turn and start position."""
        found: list[tuple[int, Any, Any]] = []
        self.next_s = time.monotonic() + self.interval_s
        if restarted is None:
            # No attempt is running.
            return found
        if restarted != self.restarted:
            self.restarted = restarted
            self.told.clear()
        try:
            splits = self.listing.discover()
            # What is there no more is forgotten: it would be passed over.
            self.told.intersection_update(splits)
            for split in splits:
                if split not in self.told:
                    found.append((self.turns, split, self.listing.source.position_of_new(split)))
                    self.turns += 1
            self.complaint = ""
        except Exception as error:
            # It may pass, as a broker that is away; who reads is told of what does not.
            self._complain(error)
            return []
        self.told.update(split for _, split, _ in found)
        return found

    def tell(self, found: list[tuple[int, Any, Any]], job: DiscoveryTarget) -> None:
        """Send splits to the attempt."""
        for at in range(0, len(found), _MOST_AT_ONCE):
            job.add_splits(self.operator, self.restarted or 0, codec.encode(found[at : at + _MOST_AT_ONCE]))

    def _complain(self, error: Exception) -> None:
        complaint = f"{type(error).__name__}: {error}"
        if complaint != self.complaint:
            self.complaint = complaint
            LOG.warning("cannot list what there is to read, and will try again: %s", complaint)


_MOST_AT_ONCE = 1000
"""Maximum number of splits in a message."""
