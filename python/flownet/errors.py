"""Errors and warnings of flownet: one base class, and one class for each cause.

The text of an error names the cause, the numbers and a remedy. Attributes hold the same values for programs.

A plan or setting error is raised by the call that causes it. An error of a running job is raised by ``execute()`` or
``Job.wait()``, once, for the root cause. For example, a dead worker breaks many connections, and only its death is
reported. Problems that do not end the job are warnings.
"""

from __future__ import annotations

import warnings
from typing import Any


class FlownetError(Exception):
    """Base class of all flownet errors.

    Parameters
    ----------
    message
        Description of the problem, its place and a remedy.
    **details
        Values for the attributes that the class declares.
    """

    attempts: int | None = None
    """Number of attempts, if ``restart="auto"`` gave up because each attempt failed the same way."""
    _way_out: str = ""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        for name, value in details.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no attribute {name!r}")
            setattr(self, name, value)

    def __str__(self) -> str:
        return "\n".join(filter(None, [super().__str__(), self._way_out]))


class ConfigError(FlownetError, ValueError):
    """A setting is unknown, has the wrong type or is out of range."""

    setting: str | None = None
    """Name of the setting, as ``Environment`` spells it."""
    value: object = None
    """The given value."""


class PlanError(FlownetError, ValueError):
    """The dataflow is invalid."""

    operator: str | None = None
    """Name of the operator with the problem."""


class DuplicateUidError(PlanError):
    """Two operators of a dataflow have the same uid."""

    uid: str | None = None
    """The uid that is used twice."""


class CycleError(PlanError):
    """An operator is downstream of itself."""

    operators: tuple[str, ...] = ()
    """Names of the operators on the cycle, in the order of the records."""


class InsufficientBuffersError(PlanError):
    """The network memory of a worker is too small for the job."""

    worker: int | None = None
    """Index of the first worker that cannot hold its share."""
    needed: int | None = None
    """Smallest number of buffers that this worker needs."""
    total: int | None = None
    """Buffers this worker has."""
    segment_bytes: int | None = None
    """Size of one buffer in bytes."""


class NotShippableError(PlanError, TypeError):
    """A function or an object of the dataflow cannot be sent to a worker process."""

    culprit: str | None = None
    """The part that cannot be pickled, for example ``variable 'lock' (_thread.lock)``."""


class InputError(FlownetError, OSError):
    """A source cannot read a file, folder or socket."""

    path: str | None = None
    """The file or folder, or ``host:port`` for a socket."""


class LaunchError(FlownetError):
    """A worker process could not be started, or did not report in time."""

    worker: int | None = None
    """Index of the worker."""
    command: tuple[str, ...] = ()
    """Command line of the worker."""


class OperatorError(FlownetError):
    """A function of yours raised an exception.

    The text has the place and then the traceback of your code. ``message`` is only the text of your exception.
    """

    operator: str | None = None
    """Name of the operator."""
    subtask: int | None = None
    """Index of the failed subtask, from 0."""
    parallelism: int | None = None
    """Number of subtasks of the operator."""
    worker: str | None = None
    """Address of the worker process, or None in the process of the caller."""
    record: str | None = None
    """Shortened ``repr`` of the record that was being processed, when there was one."""
    error_type: str | None = None
    """Name of the class of the user's exception."""
    traceback: str | None = None
    """The user's frames, as Python prints them."""

    @property
    def message(self) -> str:
        """Text of the user's exception."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        if self.operator is None:
            return super().__str__()
        place = f"operator {self.operator!r}"
        where = []
        if self.subtask is not None:
            where.append(
                f"subtask {self.subtask + 1} of {self.parallelism}" if self.parallelism else f"subtask {self.subtask}"
            )
        if self.worker:
            where.append(f"worker {self.worker}")
        if where:
            place += f" ({', '.join(where)})"
        record = f" on record {self.record}" if self.record is not None else ""
        cause = f"{self.error_type}: {self.message}" if self.error_type else self.message
        lines = [f"{place} failed{record}", *_frames(self.traceback, cause), cause, self._way_out]
        return "\n".join(line for line in lines if line)


class CallTimeoutError(OperatorError, TimeoutError):
    """A call of `Stream.map_async` took longer than its ``timeout``."""

    seconds: float | None = None
    """The time limit in seconds."""


class KafkaError(OperatorError):
    """A `KafkaSource` or a `KafkaSink` failed.

    Subclasses cover common causes. The text names the topic, the broker and a remedy.
    """

    topic: str | None = None
    """The topic, if the error is about one."""
    code: str | None = None
    """Kafka's name of the error, such as ``UNKNOWN_TOPIC_OR_PART``."""

    def __init__(self, message: str = "", **details: Any) -> None:
        import re

        super().__init__(message, **details)
        # A worker sends only the text of the error.
        if self.topic is None and (topic := re.search(r"topic '([^']*)'", message)):
            self.topic = topic[1]
        if self.code is None and (code := re.search(r"\(([A-Z_]+)\); ", message)):
            self.code = code[1]


class KafkaUnreachableError(KafkaError, ConnectionError):
    """No Kafka broker answered within ``timeout``."""


class KafkaTopicError(KafkaError):
    """A Kafka topic or partition does not exist."""


class KafkaRightsError(KafkaError, PermissionError):
    """Kafka rejects the user, or the user lacks a permission."""


class KafkaTransactionError(KafkaError):
    """The broker ended a Kafka transaction: a timeout, or another run took over."""


class CodecError(FlownetError, ValueError):
    """A value cannot be encoded as a record, or bytes are not an encoded record."""

    operator: str | None = None
    """Name of the operator that emitted the value."""
    type_name: str | None = None
    """Type of the value that has no encoding."""


class RetractionError(FlownetError, ValueError):
    """A change cannot retract a row: the row is unknown, or its results are not stored."""

    operator: str | None = None
    """Name of the operator, if an operator received the change."""
    record: str | None = None
    """Shortened ``repr`` of the change, or of the row."""


class IterationError(FlownetError):
    """An iteration failed: its queue is full, or its step emits after the end."""

    operator: str | None = None
    """Name of the operator at the end of the iteration: ``until``, unless you named it."""
    subtask: int | None = None
    """Index of the failed subtask, from 0."""
    parallelism: int | None = None
    """Number of subtasks of the operator."""
    records: int | None = None
    """Records that wait for the next round, if there are too many."""
    bytes: int | None = None
    """Size of the waiting records in bytes."""
    max_bytes: int | None = None
    """Bytes that a subtask may use for them, in memory and on disk."""


class DiskStateError(FlownetError):
    """State cannot be stored on disk, for example because the disk is full."""

    operator: str | None = None
    """Name of the task."""
    subtask: int | None = None
    """Index of the failed subtask, from 0."""
    parallelism: int | None = None
    """Number of subtasks of the operator."""
    state: str | None = None
    """Name of the state."""
    folder: str | None = None
    """Folder of the state file on the worker."""
    bytes: int | None = None
    """Size of the file."""
    keys: int | None = None
    """Number of keys on disk that are not in memory."""


class RecordTooLargeError(FlownetError):
    """A record is larger than the network memory can hold."""

    operator: str | None = None
    """Name of the operator that emitted the record."""
    bytes: int | None = None
    """Encoded size of the record."""
    max_bytes: int | None = None
    """Largest size allowed."""


class ReceiveLimitError(FlownetError):
    """An input without flow control queued more than ``receive_limit``.

    Its task is slower than its producers.
    """

    operator: str | None = None
    """Name of the task that has the input."""
    queued_bytes: int | None = None
    """Bytes that were queued."""
    limit_bytes: int | None = None
    """Bytes allowed."""


class WorkerLostError(FlownetError):
    """A worker process died, fell silent, or lost its connection to the driver."""

    worker: str | None = None
    """Name of the worker."""
    pid: int | None = None
    """Process id of the worker."""
    reason: str | None = None
    """The observation: an exit code, a signal, a missed heartbeat, a connection that ended."""


class ConnectionLostError(FlownetError, ConnectionError):
    """A connection between two workers ended while records were still due."""

    peer: str | None = None
    """Address of the other end."""
    reason: str | None = None
    """Reason for the end of the connection."""


class ProtocolViolationError(FlownetError):
    """A worker violated the protocol: it is another build of flownet, or has a bug."""

    operator: str | None = None
    """Name of the task that received it."""
    peer: str | None = None
    """Address of the worker that sent it."""
    partition: int | None = None
    """The partition that the worker had to send: the output of one of its subtasks."""
    channel: int | None = None
    """Index of the input channel of the message."""
    reason: str | None = None
    """The violation."""


class CheckpointError(FlownetError):
    """More consecutive checkpoints failed than tolerated, or their storage is unusable."""

    checkpoint: int | None = None
    """Number of the checkpoint that failed last."""
    storage: str | None = None
    """Storage of the checkpoints."""
    path: str | None = None
    """The object in the storage that could not be written or read."""


class RestoreError(CheckpointError):
    """The job cannot resume from the checkpoint.

    The checkpoint is damaged, of another version, or does not fit this dataflow.
    """

    operators: tuple[str, ...] = ()
    """Names or uids of the operators that the checkpoint does not fit, if some do not."""


class MissingUidError(RestoreError):
    """Operators with state have no ``uid``.

    Without a uid, the state of an operator cannot be found after the dataflow changes.
    """


class DroppedStateError(RestoreError):
    """The checkpoint has state of removed operators.

    ``allow_non_restored_state=True`` drops this state.
    """


class SavepointError(CheckpointError):
    """A savepoint could not be taken: the job takes no checkpoints, failed meanwhile, or has ended."""


class FencedError(CheckpointError):
    """Another run of the job uses the same storage, so this run stops publishing."""


class CancelledError(FlownetError):
    """The job was cancelled before it ended."""


class StopTimeoutError(CancelledError):
    """The job took longer than ``stop_timeout`` to stop, and was cancelled."""

    seconds: float | None = None
    """The time limit in seconds."""
    tasks: tuple[str, ...] = ()
    """Subtasks that had not ended, ``name (1/2)``."""


class UiError(FlownetError):
    """The web UI refused a request, or the server is not flownet."""

    url: str | None = None
    """URL of the request, without its token."""
    status: int | None = None
    """HTTP status of the response, if the error is about one."""


class UiUnreachableError(UiError, ConnectionError):
    """No server listens at the address of the web UI, or it has ended."""


class UiTimeoutError(UiUnreachableError, TimeoutError):
    """The server of the web UI did not answer in time."""


class UiRightsError(UiError, PermissionError):
    """The web UI needs a token or another token, or allows no actions."""


class NoSuchJobError(UiError, LookupError):
    """The process has no such job, or several jobs match."""

    job: str | None = None
    """Requested job id, if one was given."""


class UsageWarning(UserWarning):
    """The dataflow has a probable mistake, but the job still runs.

    For example, a step has no effect or makes records late.
    """


class StalledWarning(RuntimeWarning):
    """A running job is stalled: records wait, but none moved for ten seconds.

    The job keeps waiting. ``execute()`` and `Job.wait` issue the warning once for each stall. If a function does not
    return, they issue it once for all subtasks of its task. `Job.status` and `Job.sample` report the stall while it
    lasts. The text lists which subtask waits for which.

    Parameters
    ----------
    message
        The text.
    **details
        Values for the attributes.
    """

    job: str = ""
    """Name of the job."""
    seconds: float = 0.0
    """Length of the stall in seconds when it was found."""
    since: float = 0.0
    """Time of the last movement, in seconds since the job was submitted."""
    cause: str = ""
    """Cause of the stall. ``"function"``: a function of yours, or another operator, does not return, which may be
    intended. ``"worker"``: a worker does not answer. ``"exchange"``: a fault of flownet."""
    summary: str = ""
    """The stall in one line."""
    chain: tuple[str, ...] = ()
    """Waiting subtasks, one a line. All of them wait for the last line. If subtasks wait for each other, all of them
    are listed."""
    waiting: int = 0
    """Number of subtasks without room in their outputs."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        vars(self).update(details)


def warn_user(warning: Warning) -> None:
    """Issue a warning at the line of user code that called into the package."""
    import inspect

    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def _frames(traceback: str | None, cause: str) -> list[str]:
    """Return the traceback lines between Python's headline and the final exception line."""
    if not traceback:
        return []
    text = traceback.strip("\n").removeprefix("Traceback (most recent call last):\n")
    return text.removesuffix(cause).rstrip("\n").split("\n")
