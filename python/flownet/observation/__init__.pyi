"""The reports, samples and log entries of jobs, each with the module that defines it."""

from .flame import Flame as Flame, FlameFrame as FlameFrame
from .log import LogEntry as LogEntry
from .report import (
    CheckpointPart as CheckpointPart,
    CheckpointSummary as CheckpointSummary,
    CheckpointUnderWay as CheckpointUnderWay,
    JobResult as JobResult,
    JobStatus as JobStatus,
    OperatorReport as OperatorReport,
    RestartSummary as RestartSummary,
    TaskReport as TaskReport,
    UnansweredTask as UnansweredTask,
)
from .sample import JobSample as JobSample, TaskSample as TaskSample, WorkerSample as WorkerSample
from .ui import Ui as Ui

__all__: list[str]
