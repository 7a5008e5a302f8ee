"""A job at one moment, subtask by subtask and process by process: for whoever draws curves."""

from __future__ import annotations

from dataclasses import dataclass

from .task_reports import TaskSample as TaskSample


@dataclass(frozen=True, slots=True)
class WorkerSample:
    """One process at one moment."""

    worker: int
    """Its number; 0 is the process that called ``execute()``."""
    seconds: float
    """When it reported, in seconds since the job was submitted."""
    resident_bytes: int | None
    """Memory of the process that is in RAM, in bytes; None where the system does not tell."""
    segments_used: int
    """Segments of its network memory that pools have taken."""
    segments: int
    """Segments of its network memory."""
    threads: int | None = None
    """Its threads; None where the system does not tell."""
    open_files: int | None = None
    """Files, sockets and the like that it has open; None where the system does not tell at once: Linux before 6.2."""
    cpu_seconds: float = 0.0
    """Time of processors that it took since it began, in user and system mode, in seconds."""
    gc_collections: int = 0
    """Garbage collections of its interpreter, of all generations, since its first job."""
    gc_seconds: float = 0.0
    """Time that these took, in seconds."""


@dataclass(frozen=True, slots=True)
class JobSample:
    """A job at one moment, subtask by subtask and process by process; see `Job.sample`."""

    state: str
    """As in `JobStatus`."""
    seconds: float
    """Time since the job was submitted, in seconds."""
    tasks: tuple[TaskSample, ...]
    """All subtasks, upstream first."""
    workers: tuple[WorkerSample, ...]
    """The processes that have reported."""
    stalled: str | None = None
    """As in `JobStatus`."""
