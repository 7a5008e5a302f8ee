"""Reports and samples of tasks, generated from Rust structs by ``tests/task_reports.py``."""

from __future__ import annotations

from dataclasses import dataclass

from ..metrics import UserMetric


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Input and output counters of one operator.

    Records between the operators of a task are not encoded, so bytes are counted for the task only.
    """

    name: str
    """Name of the operator."""
    records_in: int
    """Records that it received; 0 for a source. In a stream of rows each record has several rows."""
    rows_in: int
    """Rows of these records. A numpy array has as many as its first dimension; any other object is one."""
    records_out: int | None
    """Records that it emitted to downstream operators, in its task or in others, each counted once. Includes side
    outputs that are read. None for a sink."""
    rows_out: int | None
    """Rows of these records."""
    rows_in_per_second: float
    """Rate of ``rows_in``, per second. The rate of ``records_in`` if records are objects."""
    rows_out_per_second: float | None
    """Rate of ``rows_out``, per second."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Progress of one task, a chain of operators, over all its subtasks."""

    name: str
    """Names of its operators, ``a -> b``."""
    parallelism: int
    """Number of subtasks."""
    records_in: int
    """Records read from upstream, or produced by a source."""
    records_out: int
    """Records emitted downstream, or written by a sink."""
    records_per_second: float
    """Rate of ``records_in``, per second."""
    bytes_local: int
    """Bytes read from tasks of the same process."""
    bytes_tcp: int
    """Bytes read over TCP."""
    busy: float
    """Share of time spent on records, 0 to 1, mean over the running subtasks."""
    back_pressured: float
    """Share of time waiting for downstream to take records, 0 to 1."""
    idle: float
    """Share of time waiting for records, 0 to 1."""
    busiest: float
    """``busy`` of the busiest subtask, 0 to 1: a hot key is visible here and not in the mean."""
    began_seconds: float = 0.0
    """Time at which the counters began, in seconds since the job was submitted: 0, or the restart after a failure."""
    rows_in: int = 0
    """Rows of the records read. A numpy array has as many as its first dimension; any other object is one."""
    rows_out: int = 0
    """Rows of the records emitted or written."""
    interpreter: float = 0.0
    """Share of time waiting for the interpreter, which runs one subtask of a process at a time. More workers have more
    interpreters."""
    awaiting: float = 0.0
    """Part of ``idle`` spent waiting for calls of `Stream.map_async`, with ``capacity`` calls under way. The task reads
    no records meanwhile."""
    aligning: float = 0.0
    """Part of ``idle`` in which a source waited for the sources that `WatermarkStrategy.with_watermark_alignment`
    aligns it with."""
    python: float = 0.0
    """Part of ``busy`` in operators that call Python functions. Estimated by sampling, as the other parts of
    ``busy``."""
    serialising: float = 0.0
    """Part of ``busy`` spent on encoding and decoding."""
    rust: float = 0.0
    """Rest of ``busy``."""
    waiting_for_credit: float = 0.0
    """Part of ``back_pressured`` in which its readers had not taken their records, or the coordinator held it back."""
    waiting_for_pool: float = 0.0
    """Rest of ``back_pressured``: its pools had no segment left."""
    waiting_for_barrier: float = 0.0
    """Part of ``idle`` in which some inputs waited for the barriers of others."""
    fill_limit: int | None = None
    """Bytes to which its producers fill buffers, so that in-flight data stays within its limit. None: to the end of the
    buffer."""
    in_flight_seconds: float = 0.0
    """Largest time that one of its subtasks needs for its in-flight data: now, while the job runs, or over the whole
    life. 0 without ``max_in_flight_time``."""
    dropped_records: int = 0
    """Records that arrived and were dropped, if ``flow_control="drop"`` allows it."""
    dropped_bytes: int = 0
    """Bytes of these records."""
    late_records: int = 0
    """Records that its windows dropped because they came later than allowed."""
    records_ahead: int = 0
    """Records that did not advance event time, because they were ahead of the others of their split by more than
    ``max_ahead`` of `WatermarkStrategy.with_max_ahead`. Windows received them."""
    timed_records: int = 0
    """Records to which it assigned timestamps."""
    out_of_order_records: int = 0
    """Number of these records that were later than the delay of its watermarks allows. Each is compared with the latest
    record of its split. 0 without a delay."""
    out_of_order_ms: int = 0
    """Largest delay of one of them relative to the latest record of its split, in milliseconds: a sufficient delay."""
    out_of_order_split: str | None = None
    """Split of that record: a file with its row group, or a partition of a topic. None if the source has no splits."""
    watermark_ms: int | None = None
    """Smallest watermark of its subtasks, in milliseconds since 1970-01-01 UTC; 2**63 - 1 after the end of event time.
    None before the first watermark."""
    watermark_lag_seconds: float | None = None
    """Seconds by which the wall clock was ahead of that watermark at the last report: the least age of results by event
    time. Below 0, records are ahead of the clock. None before the first watermark and after the end of event time."""
    state_keys: int | None = None
    """Keys with state; for windows, one for each slice that has the key."""
    timers: int | None = None
    """Pending timers, including those that fire windows and expire records of joins."""
    source_lag_bytes: int | None = None
    """Bytes of known input that a source has not read."""
    source_lag_records: int | None = None
    """Records of known input that a source has not read."""
    state_bytes: int | None = None
    """Bytes of its state in the last published checkpoint. None before the first."""
    latency_p50_seconds: float | None = None
    """Median latency of markers that sources emit every ``latency_interval``, from the source to the input of this
    task. While the job runs, of the last 10 to 20 s. None without markers."""
    latency_p99_seconds: float | None = None
    """Latency that 99 of 100 markers do not exceed. None without markers."""
    latency_max_seconds: float | None = None
    """Longest latency of a marker. None without markers."""
    operators: tuple[OperatorReport, ...] = ()
    """Counters of its operators, upstream first, over all subtasks. Empty before they began."""


@dataclass(frozen=True, slots=True)
class TaskSample:
    """Sample of one subtask, from its worker's last report.

    Counters are since its start, queues are current, rates and shares are since the previous report. Data in flight to
    a subtask is queued upstream (``send_bytes``), on its way, or queued by the subtask itself (``receive_bytes``).
    """

    name: str
    """Names of its operators, ``a -> b``."""
    task: int
    """Index of its task in the job, upstream first. All subtasks of a task share it."""
    subtask: int
    """Index among the subtasks, from 0."""
    worker: int
    """Number of the worker that runs it. 0 is the process that called ``execute()``."""
    ended: bool
    """Whether it has ended."""
    seconds: float
    """Time of the report, in seconds since the job was submitted; 0 before the first."""
    records_in: int
    """Records read from upstream, or produced by a source."""
    records_out: int
    """Records emitted downstream, or written by a sink."""
    records_in_per_second: float
    """Rate of ``records_in`` since the previous report, per second."""
    records_out_per_second: float
    """Rate of ``records_out`` since the previous report, per second."""
    bytes_local: int
    """Bytes read from tasks of the same process."""
    bytes_tcp: int
    """Bytes read over TCP."""
    bytes_out: int
    """Bytes written for downstream, including the length of each record."""
    dropped_records: int
    """Records that arrived and were dropped, if ``flow_control="drop"`` allows it."""
    dropped_bytes: int
    """Bytes of these records."""
    send_buffers: int
    """Buffers written, and not yet taken by a reader or a connection."""
    send_bytes: int
    """Bytes in these."""
    receive_buffers: int
    """Buffers that arrived and are not read: from other workers, or from a queue of this one."""
    receive_bytes: int
    """Bytes in these."""
    pool_used: int
    """Segments in use from the task's pools."""
    pool_size: int
    """Segments that the task's pools may hold now."""
    in_pool_used: int
    """The part of ``pool_used`` for its inputs."""
    in_pool_size: int
    """The part of ``pool_size`` for its inputs."""
    busy: float
    """Share of time spent on records since the previous report, 0 to 1."""
    back_pressured: float
    """Share of time waiting for downstream, or for the coordinator under ``"storm"`` and ``"pid"``, 0 to 1."""
    idle: float
    """Share of time waiting for records, or for the ``rate_limit`` of a source, 0 to 1."""
    rows_in: int = 0
    """Rows of the records read. A numpy array has as many as its first dimension; any other object is one."""
    rows_out: int = 0
    """Rows of the records emitted or written."""
    watermark_ms: int | None = None
    """Its watermark, in milliseconds since 1970-01-01 UTC, as in `TaskReport`."""
    watermark_lag_seconds: float | None = None
    """Seconds by which the wall clock was ahead of the watermark, as in `TaskReport`."""
    late_records: int = 0
    """Records that its windows dropped because they came later than allowed."""
    records_ahead: int = 0
    """Records that did not advance event time, as in `TaskReport`."""
    state_keys: int | None = None
    """Keys with state; for windows, one for each slice that has the key."""
    timers: int | None = None
    """Pending timers, including those that fire windows and expire records of joins."""
    source_lag_bytes: int | None = None
    """Bytes of known input that a source has not read."""
    source_lag_records: int | None = None
    """Records of known input that a source has not read."""
    interpreter: float = 0.0
    """Share of time waiting for the interpreter of its process, 0 to 1."""
    awaiting: float = 0.0
    """Part of ``idle`` spent waiting for calls of `Stream.map_async`, 0 to 1."""
    aligning: float = 0.0
    """Part of ``idle`` in which a source waited for the sources that it is aligned with, 0 to 1."""
    state_bytes: int | None = None
    """Bytes of its state in the last published checkpoint. None before the first."""
    python: float = 0.0
    """Part of ``busy`` in operators that call Python functions. Estimated by sampling, as the other parts of
    ``busy``."""
    serialising: float = 0.0
    """Part of ``busy`` spent on encoding and decoding."""
    rust: float = 0.0
    """Rest of ``busy``."""
    waiting_for_credit: float = 0.0
    """Part of ``back_pressured`` in which its readers had not taken their records, or the coordinator held it back."""
    waiting_for_pool: float = 0.0
    """Rest of ``back_pressured``: its pools had no segment left."""
    waiting_for_barrier: float = 0.0
    """Part of ``idle`` in which some inputs waited for the barriers of others."""
    metrics: tuple[UserMetric, ...] = ()
    """Metrics of its functions, from ``ctx.metrics``."""
    operators: tuple[OperatorReport, ...] = ()
    """Counters of its operators, upstream first, with rates since the previous report. Empty before it began."""
