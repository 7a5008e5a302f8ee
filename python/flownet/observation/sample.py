"""A job at one moment, subtask by subtask and process by process: for whoever draws curves."""

from __future__ import annotations

from dataclasses import dataclass

from ..metrics import UserMetric
from .report import OperatorReport


@dataclass(frozen=True, slots=True)
class TaskSample:
    """One subtask at one moment.

    Counters are since its start, queues as they are, rates and shares since the report before. What is in flight to a
    subtask is queued by those upstream (``send_bytes``), on its way, or queued by itself (``receive_bytes``).
    """

    name: str
    """Names of its operators, ``a -> b``."""
    task: int
    """Position of the task among the job's, upstream first; its subtasks share it."""
    subtask: int
    """Index among the subtasks, from 0."""
    worker: int
    """Number of the worker it runs on; 0 is the process that called ``execute()``."""
    ended: bool
    """Whether it has ended."""
    seconds: float
    """When its worker reported, in seconds since the job was submitted; 0 if it has not yet."""
    records_in: int
    """Records taken from upstream; for a source, records read."""
    records_out: int
    """Records handed downstream; for a sink, records written."""
    records_in_per_second: float
    """Rate of ``records_in`` since the report before, per second."""
    records_out_per_second: float
    """Rate of ``records_out`` since the report before, per second."""
    bytes_local: int
    """Bytes read that came from tasks of the same process."""
    bytes_tcp: int
    """Bytes read that came over TCP."""
    bytes_out: int
    """Bytes written for those downstream, the length of each record included."""
    dropped_records: int
    """Records that arrived and were dropped, where ``flow_control="drop"`` allows it."""
    dropped_bytes: int
    """Bytes of these records."""
    send_buffers: int
    """Buffers with output that no connection or neighbour has taken yet, those being filled included."""
    send_bytes: int
    """Bytes in these."""
    receive_buffers: int
    """Buffers that have arrived and were not read yet."""
    receive_bytes: int
    """Bytes in these."""
    pool_used: int
    """Segments that its pools have given out: queued, being filled, being read, or promised as credit."""
    pool_size: int
    """Segments that its pools may hold now."""
    in_pool_used: int
    """What of ``pool_used`` is of its inputs, which have a pool where something comes over TCP."""
    in_pool_size: int
    """What of ``pool_size`` is of its inputs."""
    busy: float
    """Share of the time spent on records since the report before, 0 to 1."""
    back_pressured: float
    """Share of the time waiting for downstream, or for the coordinator under ``"storm"`` and ``"pid"``, 0 to 1."""
    idle: float
    """Share of the time waiting for records, or for the source's own ``rate_limit``, 0 to 1."""
    interpreter: float = 0.0
    """Share of the time waiting for the interpreter of its process, 0 to 1."""
    awaiting: float = 0.0
    """The part of ``idle`` that was spent waiting for calls of `Stream.map_async`, 0 to 1."""
    aligning: float = 0.0
    """The part of ``idle`` that a source spent waiting for those that it is aligned with, 0 to 1."""
    python: float = 0.0
    """The part of ``busy`` in operators that call functions of Python, 0 to 1; an estimate, as in `TaskReport`."""
    serialising: float = 0.0
    """The part of ``busy`` that was spent on encoding and decoding, 0 to 1."""
    rust: float = 0.0
    """The rest of ``busy``, 0 to 1."""
    waiting_for_credit: float = 0.0
    """The part of ``back_pressured`` in which those downstream had not taken what was there for them, 0 to 1."""
    waiting_for_pool: float = 0.0
    """The rest of ``back_pressured``: the pool of an output had no segment left, 0 to 1."""
    waiting_for_barrier: float = 0.0
    """The part of ``idle`` in which some of its inputs waited for a checkpoint's barriers on the others, 0 to 1."""
    rows_in: int = 0
    """Rows of the records taken: a numpy array has as many as its first dimension, anything else is one."""
    rows_out: int = 0
    """Rows of the records handed downstream or written."""
    late_records: int = 0
    """Records that its windows dropped because they came later than allowed."""
    records_ahead: int = 0
    """Records that did not move event time, as in `TaskReport`."""
    watermark_ms: int | None = None
    """How far event time has come, as in `TaskReport`."""
    watermark_lag_seconds: float | None = None
    """How far that was behind the wall clock, as in `TaskReport`."""
    state_keys: int | None = None
    """Keys for which its operators keep something, as in `TaskReport`."""
    state_bytes: int | None = None
    """Bytes of its state in the last checkpoint that counts, as in `TaskReport`."""
    timers: int | None = None
    """Timers that wait, as in `TaskReport`."""
    source_lag_bytes: int | None = None
    """Bytes that a source has not read, as in `TaskReport`."""
    source_lag_records: int | None = None
    """Records that a source has not read, as in `TaskReport`."""
    metrics: tuple[UserMetric, ...] = ()
    """What its functions count, by ``ctx.metrics``."""
    operators: tuple[OperatorReport, ...] = ()
    """What has gone through each of its operators, upstream first, with rates since the report before. Empty before it
    began."""


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
