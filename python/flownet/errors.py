"""Every error flownet raises: one base class, one class a cause.

An error names the culprit, gives the numbers and says what would help, in its text and again as attributes, so that a
program can act on what a person can read. Errors of a plan or a setting are raised by the call that makes the mistake;
errors of a running job by ``execute()`` or ``Job.wait()``, once, for the root cause: a worker that dies breaks many
connections, and only its death is reported. What ends no job, but may need somebody to look after it, is a warning.
"""

from __future__ import annotations

import warnings
from typing import Any


class FlownetError(Exception):
    """Base of all errors of flownet.

    Parameters
    ----------
    message
        What happened, to whom, and what would help.
    **details
        Values for the attributes that the class declares.
    """

    attempts: int | None = None
    """How often the job was tried, if ``restart="auto"`` gave up because it failed the same way each time."""
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
    """A setting is unknown, has the wrong type or lies outside its range."""

    setting: str | None = None
    """Name of the setting, as ``Environment`` spells it."""
    value: object = None
    """What was given."""


class PlanError(FlownetError, ValueError):
    """The dataflow cannot be run as it is described."""

    operator: str | None = None
    """Name of the operator the complaint is about."""


class DuplicateUidError(PlanError):
    """Two operators of one dataflow carry the same uid."""

    uid: str | None = None
    """The uid that is taken."""


class CycleError(PlanError):
    """An operator is downstream of itself."""

    operators: tuple[str, ...] = ()
    """Names of the operators on the cycle, in the order of the records."""


class InsufficientBuffersError(PlanError):
    """The minimum of network buffers of a job does not fit into the memory of a worker."""

    worker: int | None = None
    """Index of the first worker that cannot hold its share."""
    needed: int | None = None
    """Buffers this worker needs at the least."""
    total: int | None = None
    """Buffers this worker has."""
    segment_bytes: int | None = None
    """Size of one buffer in bytes."""


class NotShippableError(PlanError, TypeError):
    """A function or an object of the dataflow cannot be sent to a worker process."""

    culprit: str | None = None
    """The part that cannot be pickled, for example ``variable 'lock' (_thread.lock)``."""


class InputError(FlownetError, OSError):
    """A file, folder or socket that a source should read cannot be read."""

    path: str | None = None
    """The file or folder, or ``host:port`` for a socket."""


class LaunchError(FlownetError):
    """A worker process could not be started, or did not report in time."""

    worker: int | None = None
    """Index of the worker."""
    command: tuple[str, ...] = ()
    """Command line of the worker."""


class OperatorError(FlownetError):
    """A function of the user raised an exception.

    The text is the place, then the user's own traceback. ``message`` is the text of the user's exception alone.
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
    """The time it had."""


class KafkaError(OperatorError):
    """Kafka did not do what a `KafkaSource` or a `KafkaSink` needs.

    It is raised as one of the classes below where there is one for it. Its text names the topic and the broker, and
    says the way out.
    """

    topic: str | None = None
    """The topic, if it is about one."""
    code: str | None = None
    """What Kafka calls the error, such as ``UNKNOWN_TOPIC_OR_PART``."""

    def __init__(self, message: str = "", **details: Any) -> None:
        import re

        super().__init__(message, **details)
        # From a worker its text has come, and nothing else.
        if self.topic is None and (topic := re.search(r"topic '([^']*)'", message)):
            self.topic = topic[1]
        if self.code is None and (code := re.search(r"\(([A-Z_]+)\); ", message)):
            self.code = code[1]


class KafkaUnreachableError(KafkaError, ConnectionError):
    """No broker of Kafka answered within ``timeout``."""


class KafkaTopicError(KafkaError):
    """A topic of Kafka, or a partition of it, is not there."""


class KafkaRightsError(KafkaError, PermissionError):
    """Kafka does not know the user, or the user may not do that."""


class KafkaTransactionError(KafkaError):
    """A transaction of Kafka was ended by the broker: it took too long, or another run has taken over."""


class CodecError(FlownetError, ValueError):
    """A value cannot be encoded as a record, or bytes are not an encoded record."""

    operator: str | None = None
    """Name of the operator that emitted the value."""
    type_name: str | None = None
    """Type of the value that has no encoding."""


class RetractionError(FlownetError, ValueError):
    """A row that changes take back cannot be taken back: it never came, or nothing keeps what was made of it."""

    operator: str | None = None
    """Name of the operator, where one was given it."""
    record: str | None = None
    """Shortened ``repr`` of the change, or of the row."""


class IterationError(FlownetError):
    """An iteration cannot go on: more goes round than there is room for, or its step emits behind its end."""

    operator: str | None = None
    """Name of the operator at its end: ``until``, unless it was named."""
    subtask: int | None = None
    """Index of the failed subtask, from 0."""
    parallelism: int | None = None
    """Number of subtasks of the operator."""
    records: int | None = None
    """Records that wait to go round again, where there are too many."""
    bytes: int | None = None
    """Their size."""
    max_bytes: int | None = None
    """What a subtask may take for them, in memory and on disk."""


class DiskStateError(FlownetError):
    """State that has no room in memory cannot be kept on disk: the disk is full, for one."""

    operator: str | None = None
    """Name of the task."""
    subtask: int | None = None
    """Index of the failed subtask, from 0."""
    parallelism: int | None = None
    """Number of subtasks of the operator."""
    state: str | None = None
    """Name of the state."""
    folder: str | None = None
    """Where its file is, on the worker."""
    bytes: int | None = None
    """Size of the file."""
    keys: int | None = None
    """Keys that lie there, and not in memory."""


class RecordTooLargeError(FlownetError):
    """A record is larger than what the network memory can hold."""

    operator: str | None = None
    """Name of the operator that emitted the record."""
    bytes: int | None = None
    """Encoded size of the record."""
    max_bytes: int | None = None
    """Largest size allowed."""


class ReceiveLimitError(FlownetError):
    """An input that nothing bounds queued more than ``receive_limit``: its task is slower than its producers."""

    operator: str | None = None
    """Name of the task whose input it is."""
    queued_bytes: int | None = None
    """Bytes that were queued."""
    limit_bytes: int | None = None
    """Bytes allowed."""


class WorkerLostError(FlownetError):
    """A worker process died, fell silent, or lost its connection to the driver."""

    worker: str | None = None
    """Name of the worker."""
    pid: int | None = None
    """Its process id."""
    reason: str | None = None
    """The observation: an exit code, a signal, a missed heartbeat, a connection that ended."""


class ConnectionLostError(FlownetError, ConnectionError):
    """A connection between two workers ended while records were still due."""

    peer: str | None = None
    """Address of the other end."""
    reason: str | None = None
    """What ended it."""


class ProtocolViolationError(FlownetError):
    """A worker sent what no correct worker sends: it is another build than this process, or has a bug."""

    operator: str | None = None
    """Name of the task that received it."""
    peer: str | None = None
    """Address of the worker that sent it."""
    partition: int | None = None
    """The partition it was to send: the output of one subtask there."""
    channel: int | None = None
    """Index of the input channel it arrived on."""
    reason: str | None = None
    """What it did."""


class CheckpointError(FlownetError):
    """Checkpoints could not be taken, more in a row than are tolerated, or their storage could not be used."""

    checkpoint: int | None = None
    """Number of the checkpoint that failed last."""
    storage: str | None = None
    """Where checkpoints are kept."""
    path: str | None = None
    """The object there that could not be written or read."""


class RestoreError(CheckpointError):
    """The checkpoint is damaged, of another version, or does not fit this dataflow: the job cannot go on from it."""

    operators: tuple[str, ...] = ()
    """The operators that it does not fit, if it is for some of them: their names or uids."""


class MissingUidError(RestoreError):
    """Operators keep state and have no ``uid``: in a dataflow that changes nobody could tell which state is whose."""


class DroppedStateError(RestoreError):
    """The checkpoint has state of operators that are gone; ``allow_non_restored_state=True`` drops it."""


class SavepointError(CheckpointError):
    """A savepoint could not be taken: the job takes no checkpoints, failed meanwhile, or has ended."""


class FencedError(CheckpointError):
    """Another run of the job has begun with the same storage; this one publishes nothing any more."""


class CancelledError(FlownetError):
    """The job was cancelled before it ended."""


class StopTimeoutError(CancelledError):
    """The job was told to stop, took longer than ``stop_timeout``, and was cancelled."""

    seconds: float | None = None
    """The time it had."""
    tasks: tuple[str, ...] = ()
    """Subtasks that had not ended, ``name (1/2)``."""


class UiError(FlownetError):
    """The page of a running process did not do what was asked of it, or what answers there is no flownet."""

    url: str | None = None
    """Where it was asked, without its token."""
    status: int | None = None
    """Status of HTTP of its answer, if it is about one."""


class UiUnreachableError(UiError, ConnectionError):
    """Nothing listens there, or who did has gone."""


class UiTimeoutError(UiUnreachableError, TimeoutError):
    """Somebody listens there, and did not answer in time."""


class UiRightsError(UiError, PermissionError):
    """The page wants a token, another one, or allows no actions."""


class NoSuchJobError(UiError, LookupError):
    """The process has no such job, or it is not clear which of several is meant."""

    job: str | None = None
    """Id of the job that was asked for, if one was."""


class UsageWarning(UserWarning):
    """Something in the dataflow was hardly meant: it has no effect, or it makes records late. The job still runs."""


class StalledWarning(RuntimeWarning):
    """Nothing has moved in a running job for ten seconds, although records wait. The job goes on waiting.

    ``execute()`` and `Job.wait` issue it, once each time that a job comes to a standstill; for a function that does not
    return, once for all subtasks of its task. `Job.status` and `Job.sample` say it for as long as it lasts. The text
    says who waits for whom.

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
    """How long nothing had moved when it was found."""
    since: float = 0.0
    """When anything last moved: seconds since the job was submitted."""
    cause: str = ""
    """What the job waits for: ``"function"``, a function of yours, or another operator, that does not return, which may
    be what you want; ``"worker"``, one that does not answer; ``"exchange"``, which is a fault of flownet."""
    summary: str = ""
    """The same in one line."""
    chain: tuple[str, ...] = ()
    """Who waits for whom, a line a subtask. The last line is what all wait for; those that wait for each other are all
    there."""
    waiting: int = 0
    """Number of subtasks that have no room in front of them."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        vars(self).update(details)


def warn_user(warning: Warning) -> None:
    """Issue a warning at the line of the user's that called into the package."""
    import inspect

    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


def _frames(traceback: str | None, cause: str) -> list[str]:
    """Lines of the traceback between Python's headline and the final line that repeats the exception."""
    if not traceback:
        return []
    text = traceback.strip("\n").removeprefix("Traceback (most recent call last):\n")
    return text.removesuffix(cause).rstrip("\n").split("\n")
