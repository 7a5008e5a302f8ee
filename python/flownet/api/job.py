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
    """A copy of a checkpoint in a place of its own, which is yours: the job never deletes it."""

    url: str
    """Where it is."""
    checkpoint: int
    """Number of the checkpoint that it is a copy of."""
    bytes: int
    """Bytes of state."""
    seconds: float
    """From the trigger of that checkpoint until it was copied."""


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

    def trigger_checkpoint(self) -> None:
        """Ask for a checkpoint."""

    def savepoint(self, url: str, timeout_ms: int) -> dict[str, Any] | None:
        """Take a savepoint; None when the time is over first."""

    def add_splits(self, operator: int, restarted: int, splits: bytes) -> None:
        """Tell a source that there is more to read, if the attempt behind so many restarts still runs."""

    def log(self) -> LogSource:
        """Give what was said in it."""

    def cancel(self) -> None:
        """Ask the job to end."""

    def close(self) -> None:
        """End whatever is left of the job."""


class Lease(Protocol):
    """The workers of a `flownet.planning.launcher.Host`, as long as one job has them."""

    @property
    def pool(self) -> WorkerPool:
        """The workers: all there, all idle."""

    def interruptible(self) -> AbstractContextManager[None]:
        """Hold while somebody waits for the job: Ctrl-C is then raised there, and leaves the workers alone.

        The job stops first, which it can do with its workers only.
        """

    def watch(self, status: Callable[[], JobStatus]) -> None:
        """Be told that the job still runs. Called ten times a second by whoever waits for the job."""

    def explain(self, error: FlownetError) -> None:
        """Add to an error that ended the job what the host knows about it."""

    def complete(self) -> None:
        """Note that the job has ended well. Called before `close`."""

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
        self._signals: list[KeyboardInterrupt | TerminationExit] = []
        self._is_stopping = False
        status = handle.status()
        self._said = handle.log()
        tasks = [(task["name"], task["parallelism"]) for task in status["tasks"]]
        # It keeps nothing of the job alive.
        self._printer = _printer(handle, self._said, tasks) if status["workers"] else None
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
                except (KeyboardInterrupt, TerminationExit) as signalled:
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
                # Both wait, the second until nothing of the job is left.
                await asyncio.to_thread(self._finish_printing)
                await asyncio.to_thread(self.close)
                raise
            if result is not None:
                self._complete()
                return result
            await asyncio.sleep(_TICK)

    def _result_so_far(self) -> JobResult | None:
        """Say what it came to, if it has ended: `wait`, without waiting, for who gets its records meanwhile."""
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
        """Where the job is, at this moment."""
        return JobStatus(**fields(self._handle.status()))

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
            tasks=tuple(_task_sample(task) for task in sample["tasks"]),
            workers=tuple(WorkerSample(**worker) for worker in sample["workers"]),
            stalled=sample["stalled"],
        )

    def log(self, *, after: int = 0, level: Level | None = None, most: int = 1000) -> tuple[LogEntry, ...]:
        """Say what was said in the job: what its functions print and log in workers, and what flownet has to say of it.

        The newest entries, of some 2 MiB that are kept. Workers' lines are printed, and their records logged, in this
        process, too, as they come: see docs/operations/logging.md. What functions print in this process, as all do
        without workers, goes where they print it and is not here; what they log is.

        Parameters
        ----------
        after
            Only entries with a higher `number <LogEntry.number>`. Default: all.
        level
            Only records of this level or worse. Default: all, and what was printed.
        most
            No more than so many.

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
        """Ask for a checkpoint beside those of the interval: now, or as soon as the one that is under way has ended.

        Returns at once; `JobStatus.checkpoints` has it when it counts.

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
        """Take a checkpoint now and copy it to a place of its own, which no job changes or deletes. The job goes on.

        Begin from it with ``enable_checkpointing(restore_from=...)`` or ``flownet run --from``: the same dataflow, or
        one that was changed, with any parallelism and any workers. See docs/operations/savepoints.md.

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

    def stop(self, *, drain: bool | None = None, savepoint: str | os.PathLike[str] | None = None) -> None:
        """Ask the job to end well: its sources end, what is in flight is worked off, sinks flush and complete.

        Returns at once; `wait` then returns the result, as of a job whose sources had ended by themselves. A source
        that waits for its next record ends when it has come. What takes longer than ``stop_timeout`` is cancelled, and
        `wait` raises `StopTimeoutError`. A job that has ended, or is failing, goes on as it was; of several calls the
        first counts.

        Parameters
        ----------
        drain
            Whether windows that are open and timers that are pending fire, as at the end of the input. After a drain
            there is nothing left to do: a run that begins from the checkpoints or the savepoint reads nothing. Without
            a drain a job with checkpoints resumes where it stopped, and one without loses what they would have given.
            Default: None, which drains unless the job has checkpoints.
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
        """Ask the job to end as it is: sinks are closed and not flushed. See `stop` for the other way.

        Returns at once; `wait` then raises `CancelledError`.
        """
        self._handle.cancel()

    def close(self) -> None:
        """End the job if it still runs, and wait until nothing of it is left. Harmless when called again."""
        self._stop_discovery()
        self._handle.close()
        self._finish_printing(_PRINT_AT_CLOSE_S)
        self._give_back()

    def _end_with(self, error: FlownetError) -> None:
        """Leave nothing of a job that this has ended, and say what the host of its workers knows about it."""
        if self._lease is not None:
            self._lease.explain(error)
        self._finish_printing()
        self.close()

    def _complete(self) -> None:
        """Give the workers back: the job has ended well."""
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
        # A job that nobody holds would be ended with the interpreter, if then.
        handle.close()
        raise LaunchError(f"cannot start the thread that prints what workers say: {error}") from error


def end_all() -> None:
    """End the jobs that the program has left running."""
    for job in list(_LIVE):
        # One from before a fork is its parent's.
        with suppress(FlownetError):
            job.close()


def _end(handle: JobHandle, lease: Lease) -> None:
    handle.close()
    lease.close()


_LIVE: weakref.WeakSet[Job] = weakref.WeakSet()

_PRINT_AT_CLOSE_S = 5.0
"""How long what a job that is given up has said may take to be printed."""

_TICK = 0.1
"""Seconds between two looks at pending signals."""
