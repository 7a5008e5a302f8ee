"""Looks for what sources have to read while their job runs: once for all subtasks, in the submitting process.

I1. Each attempt to run the job is told of all that is listed while it runs, each split with the turn of the subtask
    that is to read it. Who began with a split, or was told of it before, passes it over.
I2. The thread keeps nothing alive: it ends with the job, and with whoever holds it.
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
    """The job that is told."""

    def status(self) -> dict[str, Any]:
        """Say where it is."""

    def add_splits(self, operator: int, restarted: int, splits: bytes) -> None:
        """Tell a source that there is more to read, if the attempt behind so many restarts still runs."""


class Discovery:
    """Lists the splits of some sources, each at its own interval, and tells a job of those that are new."""

    def __init__(self, listings: list[tuple[int, Listing]]) -> None:
        self._watches = [
            SourceWatch(operator, listing, listing.interval_seconds)
            for operator, listing in listings
            if listing.interval_seconds is not None
        ]
        self._stopped = threading.Event()

    def start(self, job: Callable[[], DiscoveryTarget | None]) -> None:
        """Begin to look, as long as there is a job."""
        threading.Thread(target=self._run, args=(job,), name="flownet-discovery", daemon=True).start()

    def stop(self) -> None:
        """End without waiting."""
        self._stopped.set()

    def _run(self, job: Callable[[], DiscoveryTarget | None]) -> None:
        while not self._stopped.wait(max(0.0, min(watch.next_s for watch in self._watches) - time.monotonic())):
            for watch in self._watches:
                if watch.next_s <= time.monotonic() and not _look(watch, job):
                    return


def _look(watch: SourceWatch, job: Callable[[], DiscoveryTarget | None]) -> bool:
    """Tell a job of what a source has to read; false if there is none any more. It is held for no longer than that."""
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
    """One source."""

    operator: int
    listing: Listing
    interval_s: float
    next_s: float = 0.0
    restarted: int | None = None
    """The attempt that was told, by how many were before it."""
    turns: int = 0
    told: set[Any] = field(default_factory=set)
    complaint: str = ""

    def look(self, restarted: int | None) -> list[tuple[int, Any, Any]]:
        """List the splits that the attempt was not told of, each with its turn and where it begins."""
        found: list[tuple[int, Any, Any]] = []
        self.next_s = time.monotonic() + self.interval_s
        if restarted is None:
            # Nobody is there to be told.
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
        """Tell the attempt."""
        for at in range(0, len(found), _MOST_AT_ONCE):
            job.add_splits(self.operator, self.restarted or 0, codec.encode(found[at : at + _MOST_AT_ONCE]))

    def _complain(self, error: Exception) -> None:
        complaint = f"{type(error).__name__}: {error}"
        if complaint != self.complaint:
            self.complaint = complaint
            LOG.warning("cannot list what there is to read, and will try again: %s", complaint)


_MOST_AT_ONCE = 1000
"""Splits in one message."""
