"""Jobs: wait for a job, watch it, take savepoints, stop or cancel it."""

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

from ..errors import CancelledError, FlownetError, LaunchError, StalledWarning
from ..internal.waiting import TerminationExit, Watcher, name_of, sigterm_raised
from ..observation.log import Level, LogEntry, LogSource, Printer
from ..observation.report import JobResult, JobStatus, fields, told_metrics, told_operators
from ..observation.sample import JobSample, TaskSample, WorkerSample

if TYPE_CHECKING:
    from .._flownet import WorkerPool
    from ..planning.discovery import Discovery


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Describe a savepoint: a copy of a checkpoint that the job never deletes."""

    url: str
    """URL of the savepoint."""
    checkpoint: int
    """Number of the copied checkpoint."""
    bytes: int
    """Bytes of state."""
    seconds: float
    """Seconds from the trigger of the checkpoint to the end of the copy."""


class JobHandle(Protocol):
    """The job in Rust."""

    def wait(self, timeout_ms: int) -> dict[str, Any] | None:
        """Wait for the end of the job; return None after the timeout. Raises the error that ended the job."""

    def status(self) -> dict[str, Any]:
        """Return the status of the job."""

    def sample(self) -> dict[str, Any]:
        """Return the metrics of every subtask and process."""

    def stall(self, after: int) -> dict[str, Any] | None:
        """Report a stall if the job has had more than ``after`` stalls: records wait, but none move."""

    def stop(self, drain: bool, savepoint: str | None) -> None:
        """Ask the job to stop gracefully, with an optional final savepoint."""

    def trigger_checkpoint(self) -> None:
        """Ask for a checkpoint."""

    def savepoint(self, url: str, timeout_ms: int) -> dict[str, Any] | None:
        """Take a savepoint; return None after the timeout."""

    def add_splits(self, operator: int, restarted: int, splits: bytes) -> None:
        """Add splits to a source if the attempt after ``restarted`` restarts still runs."""

    def log(self) -> LogSource:
        """Return the log of the job."""

    def cancel(self) -> None:
        """Ask the job to cancel."""

    def close(self) -> None:
        """End the job and everything that is left of it."""


class Lease(Protocol):
    """Hold the workers of a `flownet.planning.launcher.Host` for one job."""

    @property
    def pool(self) -> WorkerPool:
        """The worker pool, complete and idle."""

    def interruptible(self) -> AbstractContextManager[None]:
        """Raise Ctrl-C in the waiting thread and leave the workers alone.

        The job needs its workers to stop, so it stops first.
        """

    def watch(self, status: Callable[[], JobStatus]) -> None:
        """Observe the running job. Called ten times a second by the thread that waits for the job."""

    def explain(self, error: FlownetError) -> None:
        """Add the host's information to an error that ended the job."""

    def complete(self) -> None:
        """Note that the job ended without an error. Called before `close`."""

    def close(self) -> None:
        """Take the workers back. Called once, when the job is completely gone."""


class Job:
    """Control a job that ``execute_async()`` started.

    Leaving its ``with`` block ends the job: if it still runs, it is cancelled.
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
        self._signals: list[KeyboardInterrupt | TerminationExit] = []
        self._is_stopping = False
        status = handle.status()
        self._said = handle.log()
        tasks = [(task["name"], task["parallelism"]) for task in status["tasks"]]
        # The printer holds no reference that keeps the job alive.
        self._printer = _printer(handle, self._said, tasks) if status["workers"] else None
        self.ui_url: str | None = None
        """Address of the web UI, or None if the job was started without ``ui=``."""
        _LIVE.add(self)
        # If no caller waits for or closes the job, garbage collection gives its workers back.
        self._give_back = (lambda: None) if lease is None else weakref.finalize(self, _end, handle, lease)

    def wait(self, timeout: float | None = None) -> JobResult:
        """Wait for the job to end and return its result.

        Parameters
        ----------
        timeout
            Seconds to wait. None waits without a limit. Default: None.

        Returns
        -------
        JobResult
            Records, rates, and the time of each task.

        Raises
        ------
        TimeoutError
            The job still runs after ``timeout``. It is not ended.
        KeyboardInterrupt, SystemExit
            You pressed Ctrl-C, or the process received SIGTERM. The first signal stops the job, see `stop`; the second
            one cancels it. If the job stopped cleanly, the next ``wait()`` returns its result. SIGTERM is handled only
            if the main thread waits and the program has no handler of its own.
        FlownetError
            The error that ended the job: see `flownet.errors`.

        Warns
        -----
        StalledWarning
            No record has moved for ten seconds although records wait.
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
        """Wait for the end of the job and show its progress."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with sigterm_raised(), nullcontext() if self._lease is None else self._lease.interruptible():
            while len(self._signals) < 2:
                try:
                    if self._signals and not self._is_stopping:
                        self._stop_at_signal(watcher)
                    result = self._look(deadline, watcher)
                except (KeyboardInterrupt, TerminationExit) as signalled:
                    # Keep this handler short: another signal inside it would escape.
                    self._signals.append(signalled)
                    continue
                except CancelledError as error:
                    self.close()
                    if not self._signals:
                        raise
                    watcher.say(f"job {self.status().name!r}: {error}")
                    raise self._signals.pop(0) from error
                except FlownetError as error:
                    self._end_with(error)
                    raise
                if result is not None:
                    self._complete()
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
            self._finish_printing()
            return JobResult(**fields(report))
        if self._lease is not None:
            self._lease.watch(self.status)
        watcher.late(self.status)
        watcher.tick(self.status)
        return None

    def _stop_at_signal(self, watcher: Watcher) -> None:
        self.stop()
        self._is_stopping = True
        watcher.say(
            f"job {self.status().name!r}: stopping: sources end, what is in flight is worked off, sinks complete; "
            f"another {name_of(self._signals[0])} cancels"
        )

    def __await__(self) -> Generator[Any, None, JobResult]:
        """Await the end of the job in a coroutine: ``result = await job``.

        It works as `wait`, but leaves signals to the event loop. If you cancel the waiting, the job still runs.

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
                # Both calls block, the second until the job is completely gone.
                await asyncio.to_thread(self._finish_printing)
                await asyncio.to_thread(self.close)
                raise
            if result is not None:
                self._complete()
                return result
            await asyncio.sleep(_TICK)

    def _result_so_far(self) -> JobResult | None:
        """Return the result if the job has ended: `wait` without waiting, for callers that read its records."""
        try:
            report = self._handle.wait(0)
        except FlownetError as error:
            self._end_with(error)
            raise
        if report is None:
            if self._lease is not None:
                self._lease.watch(self.status)
            return None
        self._finish_printing()
        self._complete()
        return JobResult(**fields(report))

    def status(self) -> JobStatus:
        """Return the current status of the job."""
        return JobStatus(**fields(self._handle.status()))

    def sample(self) -> JobSample:
        """Return the metrics of every subtask and process, as last reported.

        A call does not ask the workers, so you may call it often. Workers report every ``status_interval`` of the
        `Environment`, 200 ms by default, and when a subtask ends. To draw curves, set it to about 50 ms. After the end
        of the job, you get the last reports.

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
            tasks=tuple(_task_sample(task) for task in sample["tasks"]),
            workers=tuple(WorkerSample(**worker) for worker in sample["workers"]),
            stalled=sample["stalled"],
        )

    def log(self, *, after: int = 0, level: Level | None = None, most: int = 1000) -> tuple[LogEntry, ...]:
        """Return the log of the job: printed lines and log records.

        The log has the output and log records of functions in workers, and the messages of flownet. It holds the newest
        entries, about 2 MiB. This process also prints the workers' lines and logs their records as they arrive: see
        docs/operations/logging.md.

        Without workers, functions run in this process. Their log records are in the log, but their printed lines are
        not.

        Parameters
        ----------
        after
            Return only entries with a higher `number <LogEntry.number>`. Default: 0, all entries.
        level
            Return only log records of this level or a worse one. Default: None, all records and printed lines.
        most
            Largest number of entries. Default: 1000.

        Examples
        --------
        >>> import logging, flownet as fn
        >>> def parse(text):
        ...     if not text.isdigit():
        ...         logging.getLogger("jobs").warning("no number: %s", text)
        ...     return text
        >>> env = fn.Environment()
        >>> texts = env.from_collection(["1", "x"]).map(parse).collect()
        >>> with env.execute_async() as job:
        ...     result = job.wait()
        >>> [(entry.level, entry.text) for entry in job.log() if entry.logger == "jobs"]
        [('warning', 'no number: x')]
        """
        return tuple(LogEntry(**entry) for entry in self._said.entries(after, most, level))

    def trigger_checkpoint(self) -> None:
        """Trigger a checkpoint now, in addition to the periodic ones.

        If a checkpoint is running, the new one starts when that one ends. The call returns at once. When the
        checkpoint is complete, `JobStatus.checkpoints` includes it.

        Raises
        ------
        CheckpointError
            The job takes no checkpoints, or has ended.

        Examples
        --------
        >>> import tempfile, flownet as fn
        >>> env = fn.Environment()
        >>> env.enable_checkpointing("1h", storage=tempfile.mkdtemp())
        >>> words = env.from_collection(["to", "be"] * 500, rate_limit=1000).collect()
        >>> with env.execute_async() as job:
        ...     job.trigger_checkpoint()
        ...     result = job.wait()
        """
        self._handle.trigger_checkpoint()

    def savepoint(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> Savepoint:
        """Take a savepoint: a checkpoint copied to a folder of yours.

        No job changes or deletes a savepoint. The job keeps running. To start a job from it, use
        ``enable_checkpointing(restore_from=...)`` or ``flownet run --from``. You may change the dataflow, the
        parallelism and the workers. See docs/operations/savepoints.md.

        Parameters
        ----------
        path
            A folder that is empty or does not exist, or ``"file:///..."``.
        timeout
            Seconds to wait. The savepoint may be written even after the timeout. Default: None, only the timeout of the
            checkpoint applies.

        Returns
        -------
        Savepoint
            URL, checkpoint number and size of the savepoint.

        Raises
        ------
        MissingUidError
            Operators with state have no `uid <Stream.uid>`. The error names them.
        SavepointError
            The job takes no checkpoints, this checkpoint failed, or the job has ended.
        TimeoutError
            The savepoint was not complete within ``timeout``.
        ConfigError
            The folder is not empty, or the scheme is unknown.

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

    def stop(self, *, drain: bool | None = None, savepoint: str | os.PathLike[str] | None = None) -> None:
        """Stop the job gracefully: end sources, process in-flight records, flush sinks.

        The call returns at once. `wait` then returns the result, as if the sources had ended by themselves. A source
        that waits for a record ends when the record has arrived. If the job does not stop within ``stop_timeout``, it
        is cancelled and `wait` raises `StopTimeoutError`. A call has no effect if the job has ended, is failing, or
        was stopped before.

        Parameters
        ----------
        drain
            Whether open windows and pending timers fire, as at the end of the input. After a drain the job is complete:
            a run that resumes from its checkpoints or the savepoint reads nothing. Without a drain, a job with
            checkpoints resumes where it stopped. A job without checkpoints loses the results of those windows and
            timers. Default: None, drain unless the job has checkpoints.
        savepoint
            Folder for a copy of the final state. Raises the errors of `savepoint`. If the copy fails, `wait` raises the
            error. Default: None, no savepoint.

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
        drains = not self._resumes if drain is None else drain
        self._handle.stop(drains, None if savepoint is None else os.fspath(savepoint))

    def __repr__(self) -> str:
        status = self.status()
        return f"<Job {status.name!r}: {status.state}, {status.seconds:.1f} s, {status.records:,} records>"

    def _repr_html_(self) -> str:
        shown = self.status()._repr_html_()
        return shown if self.ui_url is None else f'{shown}<p><a href="{html.escape(self.ui_url)}">its page</a></p>'

    def _ipython_display_(self) -> None:
        from ..observation.notebook import show

        show(self)

    def cancel(self) -> None:
        """Cancel the job: close sinks without flushing. To flush them, use `stop`.

        The call returns at once. `wait` then raises `CancelledError`.
        """
        self._handle.cancel()

    def close(self) -> None:
        """Cancel the job if it still runs, and wait for its complete end. You may call it again."""
        self._stop_discovery()
        self._handle.close()
        self._finish_printing(_PRINT_AT_CLOSE_S)
        self._give_back()

    def _end_with(self, error: FlownetError) -> None:
        """Add the host's information to the error that ended the job, and close the job."""
        if self._lease is not None:
            self._lease.explain(error)
        self._finish_printing()
        self.close()

    def _complete(self) -> None:
        """Give the workers back after the job ended without an error."""
        self._stop_discovery()
        if self._lease is not None:
            self._lease.complete()
        self._give_back()

    def _finish_printing(self, timeout_s: float | None = None) -> None:
        if self._printer is not None:
            self._printer.finish(timeout_s)

    def _stop_discovery(self) -> None:
        if self._discovery is not None:
            self._discovery.stop()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _task_sample(told: Mapping[str, Any]) -> TaskSample:
    return TaskSample(**{**told, "metrics": told_metrics(told), "operators": told_operators(told)})


def _printer(handle: JobHandle, said: LogSource, tasks: list[tuple[str, int]]) -> Printer:
    try:
        return Printer(said, tasks)
    except RuntimeError as error:
        # The caller gets no job object to close, so the job would run until the interpreter ends.
        handle.close()
        raise LaunchError(f"cannot start the thread that prints what workers say: {error}") from error


def end_all() -> None:
    """End all jobs that the program left running."""
    for job in list(_LIVE):
        # A job from before a fork belongs to the parent process.
        with suppress(FlownetError):
            job.close()


def _end(handle: JobHandle, lease: Lease) -> None:
    handle.close()
    lease.close()


_LIVE: weakref.WeakSet[Job] = weakref.WeakSet()

_PRINT_AT_CLOSE_S = 5.0
"""Seconds for printing the remaining output of a job that is closed."""

_TICK = 0.1
"""Seconds between two checks for pending signals."""
