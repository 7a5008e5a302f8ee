"""A job: running, and when it has ended."""

from __future__ import annotations

import html
import os
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from .config import format_size
from .errors import CancelledError, FlownetError, StalledWarning
from .metrics import UserMetric
from .tables import text_table
from .units import event_time
from .waiting import Terminated, Watcher, name_of, sigterm_raised

if TYPE_CHECKING:
    from ._flownet import Crew
    from .discovery import Discovery


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task, a chain of operators with all its subtasks, has done so far."""

    name: str
    """Names of its operators, ``a -> b``."""
    parallelism: int
    """Number of subtasks."""
    records_in: int
    """Records taken from upstream; for a source, records read."""
    records_out: int
    """Records handed downstream; for a sink, records written."""
    records_per_second: float
    """Rate of ``records_in``, per second."""
    bytes_local: int
    """Bytes that came from tasks of the same process."""
    bytes_tcp: int
    """Bytes that came over TCP."""
    busy: float
    """Share of the time spent on records, 0 to 1, mean over the subtasks that run."""
    back_pressured: float
    """Share of the time waiting for downstream to take records, 0 to 1."""
    idle: float
    """Share of the time waiting for records, 0 to 1."""
    busiest: float
    """``busy`` of the busiest subtask, 0 to 1: a hot key shows here and not in the mean."""
    dropped_records: int = 0
    """Records that arrived and were dropped, where ``flow_control="drop"`` allows it."""
    dropped_bytes: int = 0
    """Bytes of these records."""
    interpreter: float = 0.0
    """Share of the time waiting for the interpreter, which one subtask of a process has at a time; more workers have
    more of them."""
    awaiting: float = 0.0
    """The part of ``idle`` that was spent waiting for calls of `Stream.map_async`, with as many under way as
    ``capacity`` allows."""
    aligning: float = 0.0
    """The part of ``idle`` that a source spent waiting for those that
    `WatermarkStrategy.with_watermark_alignment` aligns it with."""
    in_flight_seconds: float = 0.0
    """How long one of its subtasks would have taken for what was in flight to it, at most; while the job runs, how long
    it takes now. 0 where ``max_in_flight_time`` does not apply."""
    fill_limit: int | None = None
    """Bytes up to which its producers fill buffers, so that no more is in flight; None: to their end."""
    rows_in: int = 0
    """Rows of the records taken: a numpy array has as many as its first dimension, anything else is one."""
    rows_out: int = 0
    """Rows of the records handed downstream or written."""
    late_records: int = 0
    """Records that its windows dropped because they came later than allowed."""
    watermark_ms: int | None = None
    """How far event time has come in its subtask that is furthest behind, in milliseconds since 1970-01-01 UTC;
    2**63 - 1 when time has ended. None before the first watermark."""
    watermark_lag_seconds: float | None = None
    """How far the wall clock was ahead of that subtask's watermark when it was last reported: how old, at least,
    results by event time are. Where records of the past are read, it is how long ago they were, and shrinks as the job
    catches up. Below 0: records are ahead of the clock. None before the first watermark and when time has ended."""


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """A checkpoint that counts."""

    number: int
    """Its number; they grow over all attempts and runs."""
    at_seconds: float
    """When it came to count, in seconds since the job was submitted."""
    bytes: int
    """Bytes of state."""
    written_bytes: int
    """Of these, the bytes that were written for it: the others are those of earlier checkpoints that it builds on."""
    seconds: float
    """From its trigger until it counted."""
    aligned_seconds: float
    """The longest that a subtask waited from its first barrier to its last."""
    stood_still_seconds: float
    """The longest that a subtask stood still to take its snapshot."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A copy of a checkpoint in a place of its own, which is yours: the job never deletes it."""

    url: str
    """Where it is."""
    checkpoint: int
    """Number of the checkpoint that it is a copy of."""
    bytes: int
    """Bytes of state."""
    seconds: float
    """From the trigger of that checkpoint until it was copied."""


@dataclass(frozen=True, slots=True)
class RestartSummary:
    """An attempt to run the job that failed and was followed by another."""

    at_seconds: float
    """When it failed, in seconds since the job was submitted."""
    cause: str
    """Why."""
    resumed_from: int | None
    """Number of the checkpoint that the next attempt went on from; None: it began anew."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    name: str
    """Name of the job."""
    state: str
    """``created``, ``launching``, ``deploying``, ``running``, ``stopping``, ``finishing``, ``failing``, ``cancelling``,
    ``restarting``, ``ended``."""
    workers: int
    """Number of worker processes; 0 when all runs in the process of the caller."""
    seconds: float
    """Time since the job was submitted, in seconds."""
    tasks: tuple[TaskReport, ...]
    """The tasks, upstream first. While the job runs, rates and shares are those of the last seconds."""
    bottleneck: str | None
    """A sentence that names the task which holds up the others, if one does."""
    stalled: str | None = None
    """For how long nothing has moved although records wait, and what for; None while the job moves. Of a job that has
    ended: how often it stood still like that, if ever. See `StalledWarning`."""
    resumed_from: int | None = None
    """Number of the checkpoint of an earlier run that this one went on from."""
    checkpoints_made: int = 0
    """Checkpoints that count, of all attempts of this run."""
    checkpoints_failed: int = 0
    """Checkpoints that failed."""
    last_failed_checkpoint: str | None = None
    """Why the last of these did."""
    checkpoints: tuple[CheckpointSummary, ...] = ()
    """The last 100 that count, the oldest first."""
    restarted: int = 0
    """Attempts that failed and were followed by another. Counters of tasks are those of the last attempt."""
    restarts: tuple[RestartSummary, ...] = ()
    """The last 100 of these, the oldest first."""
    metrics: tuple[UserMetric, ...] = ()
    """What functions count by ``ctx.metrics``, over all subtasks; without gauges (see `Job.sample`)."""

    def __str__(self) -> str:
        return "\n".join([self._headline(), *text_table(_table(self)), *_remarks(self)])

    def _headline(self) -> str:
        return f"{self.name}: {self._said()}"

    def _said(self) -> str:
        where = f"{self.workers} workers" if self.workers else "no workers"
        return f"{self.state}, {where}; {_summary(self)}"

    def _repr_html_(self) -> str:
        head, *rows = _table(self)
        parts = [f"<p><b>{html.escape(self.name)}</b>: {html.escape(self._said())}</p><table><tr>"]
        parts += [f"<th>{html.escape(cell)}</th>" for cell in head]
        parts.append("</tr>")
        for row in rows:
            parts.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
        parts += [f"<p>{html.escape(remark)}</p>" for remark in _remarks(self)]
        return "".join(parts)

    @property
    def bytes_local(self) -> int:
        """Bytes exchanged between tasks of one process."""
        return sum(task.bytes_local for task in self.tasks)

    @property
    def bytes_tcp(self) -> int:
        """Bytes exchanged over TCP."""
        return sum(task.bytes_tcp for task in self.tasks)

    @property
    def records(self) -> int:
        """Records that went into the task which took most of them."""
        return max((task.records_in for task in self.tasks), default=0)

    @property
    def records_per_second(self) -> float:
        """``records`` by ``seconds``, per second."""
        return self.records / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class JobResult(JobStatus):
    """A job that has ended well: what moved, how fast, and where the time went.

    ``str(result)`` is a table for terminals; notebooks show it as HTML.
    """

    def _headline(self) -> str:
        return self._said()

    def _said(self) -> str:
        return _summary(self)


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
    """Bytes handed downstream, counted by finished buffers."""
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
    rows_in: int = 0
    """Rows of the records taken: a numpy array has as many as its first dimension, anything else is one."""
    rows_out: int = 0
    """Rows of the records handed downstream or written."""
    late_records: int = 0
    """Records that its windows dropped because they came later than allowed."""
    watermark_ms: int | None = None
    """How far event time has come, as in `TaskReport`."""
    watermark_lag_seconds: float | None = None
    """How far that was behind the wall clock, as in `TaskReport`."""
    metrics: tuple[UserMetric, ...] = ()
    """What its functions count, by ``ctx.metrics``."""


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


class JobHandle(Protocol):
    """The job in Rust."""

    def wait(self, timeout_ms: int) -> dict[str, Any] | None:
        """Wait for the end; None when the time is over first. Raises what ended the job."""

    def status(self) -> dict[str, Any]:
        """Where the job is."""

    def sample(self) -> dict[str, Any]:
        """Say what every subtask and process does."""

    def stall(self, after: int) -> dict[str, Any] | None:
        """Say when nothing moved although records wait, if that is news to who knows of so many times."""

    def stop(self, drain: bool, savepoint: str | None) -> None:
        """Ask the job to end well, and for a savepoint of its end."""

    def savepoint(self, url: str, timeout_ms: int) -> dict[str, Any] | None:
        """Take a savepoint; None when the time is over first."""

    def add_splits(self, operator: int, restarted: int, splits: bytes) -> None:
        """Tell a source that there is more to read, if the attempt behind so many restarts still runs."""

    def cancel(self) -> None:
        """Ask the job to end."""

    def close(self) -> None:
        """End whatever is left of the job."""


class Lease(Protocol):
    """The workers of a `flownet.host.Host`, as long as one job has them."""

    @property
    def crew(self) -> Crew:
        """The workers: all there, all idle."""

    def interruptible(self) -> AbstractContextManager[None]:
        """Hold while somebody waits for the job: Ctrl-C is then raised there, and leaves the workers alone.

        The job stops first, which it can do with its workers only.
        """

    def watch(self, status: Callable[[], JobStatus]) -> None:
        """Be told that the job still runs. Called ten times a second by whoever waits for the job."""

    def explain(self, error: FlownetError) -> None:
        """Add to an error that ended the job what the host knows about it."""

    def close(self) -> None:
        """Take the workers back. Called once, when nothing of the job is left."""


class Job:
    """A job that was started by ``execute_async()``.

    Leaving its ``with`` block ends the job: what still runs is cancelled, and nothing of it is left.
    """

    def __init__(
        self,
        handle: JobHandle,
        lease: Lease | None = None,
        *,
        resumes: bool = False,
        discovery: Discovery | None = None,
    ) -> None:
        self._handle = handle
        self._discovery = discovery
        if discovery is not None:
            this = weakref.ref(self)
            discovery.start(lambda: None if (job := this()) is None else job._handle)
        self._lease = lease
        self._resumes = resumes
        self._stalls_told = 0
        self._signals: list[KeyboardInterrupt | Terminated] = []
        self._is_stopping = False
        self.ui_url: str | None = None
        """Where a browser shows it, if it was started with ``ui=``."""
        _LIVE.add(self)
        # A job that nobody waits for or closes gives its workers back when it is collected.
        self._give_back = (lambda: None) if lease is None else weakref.finalize(self, _end, handle, lease)

    def wait(self, timeout: float | None = None) -> JobResult:
        """Wait until the job has ended.

        Parameters
        ----------
        timeout
            Seconds to wait; None waits as long as it takes.

        Raises
        ------
        TimeoutError
            The job still runs after ``timeout``. It goes on running.
        KeyboardInterrupt, SystemExit
            Ctrl-C was pressed, or the process was sent SIGTERM. The job was stopped, see `stop`, or at the second such
            signal cancelled, and nothing of it is left. ``wait()`` then gives the result of a job that stopped well. Of
            SIGTERM this holds where the program handles it nowhere else, and the main thread waits.
        FlownetError
            What ended the job: see `flownet.errors`.

        Warns
        -----
        StalledWarning
            Nothing has moved for ten seconds although records wait.
        """
        watcher = Watcher()
        try:
            return self._wait(timeout, watcher)
        except TimeoutError:
            if not self._signals:
                raise
            # A job that stops has its own limit.
            return self._wait(None, watcher)

    def _wait(self, timeout: float | None, watcher: Watcher) -> JobResult:
        """Wait, and keep somebody informed meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with sigterm_raised(), nullcontext() if self._lease is None else self._lease.interruptible():
            while len(self._signals) < 2:
                try:
                    if self._signals and not self._is_stopping:
                        self._stop_at_signal(watcher)
                    result = self._look(deadline, watcher)
                except (KeyboardInterrupt, Terminated) as signalled:
                    # No more than that in here, or the next one may get through.
                    self._signals.append(signalled)
                    continue
                except CancelledError as error:
                    self.close()
                    if not self._signals:
                        raise
                    watcher.say(f"job {self.status().name!r}: {error}")
                    raise self._signals.pop(0) from error
                except FlownetError as error:
                    if self._lease is not None:
                        self._lease.explain(error)
                    self.close()
                    raise
                if result is not None:
                    self._stop_discovery()
                    self._give_back()
                    if self._signals:
                        raise self._signals.pop(0)
                    return result
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"the job still runs after {timeout} s")
            second = self._signals[1]
            self._signals.clear()
            watcher.say(f"job {self.status().name!r}: cancelled by a second {name_of(second)}")
            self.close()
            raise second

    def _look(self, deadline: float | None, watcher: Watcher) -> JobResult | None:
        left = _TICK if deadline is None else min(_TICK, max(0.0, deadline - time.monotonic()))
        report = self._handle.wait(int(left * 1000))
        stall = self._handle.stall(self._stalls_told)
        if stall is not None:
            self._stalls_told = stall.pop("number")
            watcher.warn(StalledWarning(stall.pop("text"), **{**stall, "chain": tuple(stall["chain"])}))
        if report is not None:
            return _result(report)
        if self._lease is not None:
            self._lease.watch(self.status)
        watcher.tick(self.status)
        return None

    def _stop_at_signal(self, watcher: Watcher) -> None:
        # What waits for time is kept for the run that goes on from here.
        self.stop(drain=not self._resumes)
        self._is_stopping = True
        watcher.say(
            f"job {self.status().name!r}: stopping: sources end, what is in flight is worked off, sinks complete; "
            f"another {name_of(self._signals[0])} cancels"
        )

    def __await__(self) -> Generator[Any, None, JobResult]:
        """Wait until the job has ended, beside other coroutines: ``result = await job``.

        As `wait`, but for signals, which are the event loop's. Where the waiting is cancelled the job goes on.

        Examples
        --------
        >>> import asyncio, flownet as fn
        >>> async def count():
        ...     env = fn.Environment()
        ...     numbers = env.from_collection(range(10)).collect()
        ...     return await env.execute_async()
        >>> asyncio.run(count()).records
        10
        """
        return self._ended().__await__()

    async def _ended(self) -> JobResult:
        import asyncio

        watcher = Watcher()
        while True:
            try:
                result = self._look(time.monotonic(), watcher)
            except FlownetError as error:
                if self._lease is not None:
                    self._lease.explain(error)
                # It waits until nothing of the job is left.
                await asyncio.to_thread(self.close)
                raise
            if result is not None:
                self._stop_discovery()
                self._give_back()
                return result
            await asyncio.sleep(_TICK)

    def status(self) -> JobStatus:
        """Where the job is, at this moment."""
        return JobStatus(**_fields(self._handle.status()))

    def sample(self) -> JobSample:
        """Say what every subtask and process of the job does, as its worker last reported.

        Answered from what is known here, without asking a worker, so it may be called as often as one likes. The
        reports come every ``status_interval`` of the `Environment`, 200 ms by default, and whenever a subtask ends; to
        draw curves, set it to 50 ms or so. After the end of the job it is as it was last.

        Examples
        --------
        >>> import flownet as fn
        >>> env = fn.Environment(status_interval="50ms")
        >>> numbers = env.from_iterable(range(1000), rate_limit=5000).collect()
        >>> with env.execute_async() as job:
        ...     result = job.wait()
        ...     sample = job.sample()
        >>> [(task.name, task.records_out) for task in sample.tasks]
        [('from_iterable -> collect', 1000)]
        """
        sample = self._handle.sample()
        return JobSample(
            state=sample["state"],
            seconds=sample["seconds"],
            tasks=tuple(TaskSample(**{**task, "metrics": _metrics(task)}) for task in sample["tasks"]),
            workers=tuple(WorkerSample(**worker) for worker in sample["workers"]),
            stalled=sample["stalled"],
        )

    def savepoint(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> Savepoint:
        """Take a checkpoint now and copy it to a place of its own, which no job changes or deletes. The job goes on.

        Begin from it with ``enable_checkpointing(restore_from=...)`` or ``flownet run --from``: the same dataflow, or
        one that was changed, with any parallelism and any workers. See docs/exactly-once.md.

        Parameters
        ----------
        path
            A folder that is not there or empty, or ``"file:///..."``.
        timeout
            Seconds after which to give up waiting; the savepoint may be written all the same. Default: no limit but the
            checkpoint's.

        Raises
        ------
        MissingUidError
            Operators keep state and have no `uid <Stream.uid>`; it names them.
        SavepointError
            The job takes no checkpoints, this one failed, or the job has ended.
        TimeoutError
            The time is over.
        ConfigError
            There is something in the folder, or its scheme is unknown.

        Examples
        --------
        >>> import tempfile, flownet as fn
        >>> env = fn.Environment()
        >>> env.enable_checkpointing(storage=tempfile.mkdtemp())
        >>> words = env.from_collection(["to", "be"] * 500, rate_limit=1000).uid("words")
        >>> counts = words.key_by(str).count().uid("counts").collect()
        >>> with env.execute_async() as job:
        ...     saved = job.savepoint(tempfile.mkdtemp())
        >>> saved.bytes > 0
        True
        """
        limit_ms = (1 << 53) if timeout is None else int(timeout * 1000)
        saved = self._handle.savepoint(os.fspath(path), limit_ms)
        if saved is None:
            raise TimeoutError(f"no savepoint within {timeout} s")
        return Savepoint(**saved)

    def stop(self, *, drain: bool = True, savepoint: str | os.PathLike[str] | None = None) -> None:
        """Ask the job to end well: its sources end, what is in flight is worked off, sinks flush and complete.

        Returns at once; `wait` then returns the result, as of a job whose sources had ended by themselves. A source
        that waits for its next record ends when it has come. What takes longer than ``stop_timeout`` is cancelled, and
        `wait` raises `StopTimeoutError`. A job that has ended, or is failing, goes on as it was; of several calls the
        first counts.

        Parameters
        ----------
        drain
            Whether windows that are open and timers that are pending fire, as at the end of the input. If not, what
            they would have given is lost, but for a job with checkpoints, which goes on from there.
        savepoint
            Where the state that it ends with is copied to, as of `savepoint`, whose errors it raises. `wait` raises
            what goes wrong with the copy. Default: nowhere.

        Examples
        --------
        >>> import itertools, flownet as fn
        >>> env = fn.Environment()
        >>> numbers = env.from_iterable(itertools.count()).collect()
        >>> with env.execute_async() as job:
        ...     job.stop()
        ...     result = job.wait()
        >>> len(numbers) == result.records
        True
        """
        self._handle.stop(drain, None if savepoint is None else os.fspath(savepoint))

    def __repr__(self) -> str:
        status = self.status()
        return f"<Job {status.name!r}: {status.state}, {status.seconds:.1f} s, {status.records:,} records>"

    def _repr_html_(self) -> str:
        shown = self.status()._repr_html_()
        return shown if self.ui_url is None else f'{shown}<p><a href="{html.escape(self.ui_url)}">its page</a></p>'

    def cancel(self) -> None:
        """Ask the job to end as it is: sinks are closed and not flushed. See `stop` for the other way.

        Returns at once; `wait` then raises `CancelledError`.
        """
        self._handle.cancel()

    def close(self) -> None:
        """End the job if it still runs, and wait until nothing of it is left. Harmless when called again."""
        self._stop_discovery()
        self._handle.close()
        self._give_back()

    def _stop_discovery(self) -> None:
        if self._discovery is not None:
            self._discovery.stop()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def end_all() -> None:
    """End the jobs that the program has left running."""
    for job in list(_LIVE):
        # One from before a fork is its parent's.
        with suppress(FlownetError):
            job.close()


def _end(handle: JobHandle, lease: Lease) -> None:
    handle.close()
    lease.close()


def _result(report: Mapping[str, Any]) -> JobResult:
    return JobResult(**_fields(report))


def _fields(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **report,
        "tasks": tuple(TaskReport(**task) for task in report["tasks"]),
        "checkpoints": tuple(CheckpointSummary(**checkpoint) for checkpoint in report["checkpoints"]),
        "restarts": tuple(RestartSummary(**restart) for restart in report["restarts"]),
        "metrics": _metrics(report),
    }


def _metrics(told: Mapping[str, Any]) -> tuple[UserMetric, ...]:
    return tuple(UserMetric.of(metric) for metric in told["metrics"])


def _summary(result: JobStatus) -> str:
    return (
        f"{result.records:,} records in {result.seconds:.2f} s, {result.records_per_second:,.0f} a second; "
        f"{format_size(result.bytes_local)} moved locally, {format_size(result.bytes_tcp)} over TCP"
    )


def _remarks(status: JobStatus) -> list[str]:
    dropped = [
        f"dropped: {task.dropped_records:,} records, {format_size(task.dropped_bytes)}, before {task.name}"
        for task in status.tasks
        if task.dropped_records
    ]
    late = [
        f"late: {task.late_records:,} records came after their windows were given up and were dropped by {task.name}"
        for task in status.tasks
        if task.late_records
    ]
    time = [
        f"event time of {task.name}: {event_time(task.watermark_ms, task.watermark_lag_seconds)}"
        for task in status.tasks
        if task.watermark_ms is not None and task.watermark_lag_seconds is not None
    ]
    in_flight = [
        f"in flight to {task.name}: {task.in_flight_seconds:.1f} s at most, in buffers filled up to "
        f"{format_size(task.fill_limit)}"
        for task in status.tasks
        if task.fill_limit is not None and task.in_flight_seconds >= _NOTICEABLE_WAIT
    ]
    sentences = {"bottleneck": status.bottleneck, "stalled": status.stalled}
    return [
        *dropped,
        *late,
        *_counted(status.metrics),
        *time,
        *aligning(status, "waited"),
        *in_flight,
        *_history(status),
        *(f"{name}: {sentence}" for name, sentence in sentences.items() if sentence),
    ]


def _counted(metrics: tuple[UserMetric, ...]) -> list[str]:
    lines = [f"{metric.name} of {metric.operator}: {metric}" for metric in metrics[:_MOST_COUNTED]]
    left = len(metrics) - len(lines)
    return [*lines, f"and {left} more that functions count"] if left else lines


def aligning(status: JobStatus, waits: str) -> list[str]:
    """Say of which sources others are behind; ``waits`` is the verb."""
    return [
        f"{task.name} {waits} for the sources it is aligned with, {task.aligning:.0%} of the time"
        for task in status.tasks
        if task.aligning >= NOTICEABLE_SHARE
    ]


def _history(status: JobStatus) -> list[str]:
    lines = []
    if status.resumed_from is not None:
        lines.append(f"went on from checkpoint {status.resumed_from}")
    if status.checkpoints:
        last = status.checkpoints[-1]
        longest = max(checkpoint.seconds for checkpoint in status.checkpoints)
        lines.append(
            f"checkpoints: {status.checkpoints_made}, {longest:.2f} s at most; the last, {last.number}, "
            f"{format_size(last.bytes)} in {last.seconds:.2f} s"
        )
    if status.checkpoints_failed:
        lines.append(f"checkpoints failed: {status.checkpoints_failed}; the last: {status.last_failed_checkpoint}")
    if status.restarts:
        lines.append(
            f"restarts: {status.restarted}; the last, at {status.restarts[-1].at_seconds:.1f} s: "
            f"{status.restarts[-1].cause}"
        )
    return lines


def _table(status: JobStatus) -> list[list[str]]:
    rows = [["task", "subtasks", "in", "out", "busy", "back-pressured", "idle", "interpreter"]]
    for task in status.tasks:
        shares = (f"{share:.0%}" for share in (task.busy, task.back_pressured, task.idle, task.interpreter))
        rows.append([task.name, f"{task.parallelism}", f"{task.records_in:,}", f"{task.records_out:,}", *shares])
    if any(task.rows_in > task.records_in or task.rows_out > task.records_out for task in status.tasks):
        counts = [["rows in", "rows out"], *([f"{task.rows_in:,}", f"{task.rows_out:,}"] for task in status.tasks)]
        rows = [[*row[:4], *count, *row[4:]] for row, count in zip(rows, counts, strict=True)]
    return rows


_LIVE: weakref.WeakSet[Job] = weakref.WeakSet()

NOTICEABLE_SHARE = 0.05
"""Of the time: what takes less is no news."""

_NOTICEABLE_WAIT = 0.1
"""Seconds: records that wait for less are no news."""

_MOST_COUNTED = 20
"""Metrics of functions that a table tells of."""

_TICK = 0.1
"""Seconds between two looks at pending signals."""
