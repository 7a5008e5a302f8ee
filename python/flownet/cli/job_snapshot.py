"""`JobSnapshot`, the state of a job as read from its web UI, for commands that refresh it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..observation.report import JobStatus
from ..observation.sample import JobSample

if TYPE_CHECKING:
    from ..client import Client


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job as it was seen."""

    job: str
    """Its id."""
    status: JobStatus
    """Where it was."""
    sample: JobSample
    """What its subtasks did."""
    error: str | None
    """Why it failed or was cancelled, if it was."""
    outcome: str | None = None
    """How it ended: ``finished``, ``cancelled`` or ``failed``; None while it ran."""
    remark: str = ""
    """What happened to the watching since then."""

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing more to be seen."""
        return self.status.state == "ended"


def look_at(client: Client, job: str) -> JobSnapshot:
    """Ask the page for a job, and of one that has ended why."""
    status = client.status(job)
    ended = client.summary(job) if status.state == "ended" else None
    error, outcome = (ended.error, ended.outcome) if ended else (None, None)
    return JobSnapshot(job, status, client.sample(job), error, outcome)
