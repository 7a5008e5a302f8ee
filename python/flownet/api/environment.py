"""The environment: settings, sources, and the door to running a dataflow."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, overload

from .. import _flownet
from ..connectors import source_methods
from ..errors import ConfigError, LaunchError, PlanError, UsageWarning, warn_user
from ..internal import class_changes, config, serialise
from ..internal.config import UNSET, Unset
from ..internal.foreign_names import no_attribute
from ..observation import log_capture
from ..planning.arrival_order import arrival_dependent
from ..planning.dataflow import Dataflow, Node, Origin
from ..planning.graph import FlowControl
from ..planning.launcher import Frames, Host
from ..rows.reading import RowSources
from ..streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..connectors.source import Source
    from ..observation.report import JobResult
    from ..observation.ui import Ui, Where
    from ..rows.stream import Rows
    from ..testing.script import Step
    from .job import Job

T = TypeVar("T")


class Environment(RowSources):
    """Where a dataflow is described and run.

    Every setting can also be given by the environment variable ``FLOWNET_<NAME>`` and by ``flownet run --set
    name=value``; both win over the argument, so that who starts a job has the last word.

    Parameters
    ----------
    parallelism
        Subtasks of each operator that does not set its own, 1 to 32768. Default: 1.
    buffer_timeout
        How long a record may wait for its buffer to fill: ``"10ms"``, a ``timedelta``, ``0`` to send each record at
        once, or None to send only full buffers. Default: ``"100ms"``. Shorter costs throughput, longer costs latency.
    max_in_flight_time
        How old records may become on their way to an operator that is slower than its input, one exchange at a time:
        ``"1s"``, a ``timedelta`` of at least 1 ms, or None. Buffers are filled only so far that the operator gets
        through with those in flight to it within that time, as it measures while it runs, though never less than a
        record or 0.3 ms of work each; the others wait where they come from. With N subtasks on either side there are up
        to ``4 N + 16`` buffers before each, so that many records, or times 0.3 ms, is the least. Fast operators have
        full buffers as ever, as all have with None. It needs ``flow_control="credit"`` where the exchange is between
        workers. Default: ``"1s"``.
    max_parallelism
        Number of key groups, 1 to 32768: the highest parallelism that keyed operators can ever have. None chooses one
        from the parallelism. Default: None.
    codec
        ``"typed"`` moves values of the built-in types, datetimes, numpy values, and instances of dataclasses,
        NamedTuples, Enums, attrs classes and pydantic models. ``"pickle"`` moves anything else that pickle can, too, at
        its price in speed. Default: ``"typed"``.
    object_reuse
        False: whatever a function gets is its own, to change and to keep. What is handed on inside of a task is copied
        where it can be changed and somebody else still has it; numbers, text, tuples of such and objects that nobody
        kept are not. Every subtask has functions of its own in every run, as serialised, also without workers. So
        results never depend on chaining, workers or parallelism.
        True: objects are handed on as they are, and without workers the functions themselves run. Faster where records
        that can be changed go to several operators or are kept; then nobody may change what was handed on.
        Default: False.
    network_memory
        Memory of a worker for buffers, ``"64MiB"`` or a number of bytes. Never exceeded, but for 512 bytes a buffer
        that keep buffers apart in the caches. A job whose tasks need more is refused. None: the plan decides, before
        the job starts; each worker has 64 MiB, or as much as its tasks need if that is more. Default: None.
    segment_size
        Size of a buffer, ``"32KiB"`` or a number of bytes. Default: 32 KiB.
    exclusive_buffers
        Buffers that each channel between workers keeps while it has no data. Default: 2. Where memory is short, fewer.
    floating_buffers
        Buffers that the channels of one input share, at least 1. Default: 8.
    bandwidth_delay
        How much one channel between workers may have on its way, ``"4MB"`` or a number of bytes: the rate of the
        longest link times its round trip, and more where packets get lost. Both ends then hold as many buffers as that
        takes, if there are enough. None: links are short, and the buffers above fill them. Default: None.
    flow_control
        What keeps producers from sending more than their consumers on other workers take. Default: ``"credit"``.

        - ``"credit"``: each channel's receiver says how many buffers it has. A slow consumer slows its own producers,
          and nobody else.
        - ``"tcp"``: no credit, as in Flink before 1.5. A consumer without buffers stops the socket that all channels of
          the exchange between two workers share, so its neighbours wait with it.
        - ``"storm"``: as Apache Storm 1.0. Queues grow; when one of them is filled to 0.9 of ``receive_buffer``, all
          sources of the job stop, and go on when all are down to 0.4.
        - ``"pid"``: as Spark Streaming. Queues grow; once a second a rate estimator (proportional 1.0, integral 0.2,
          derivative 0.0, at least 100 records a second) sets the rate of all sources by how long records take and wait.
        - ``"drop"``: nothing. Records that do not fit into ``receive_buffer`` are dropped, whole, and counted.
        - ``"unbounded"``: nothing. What is not read yet is queued, up to ``receive_limit``.

        All but the first are there to be compared with it. Between operators of one process it is always as with
        credit.
    receive_buffer
        How much one input may queue from other workers: ``"5MB"``, a number of bytes, or None for what its exclusive
        and floating buffers hold. With ``"credit"`` and ``"tcp"`` it stands in for the floating buffers. Default: None.
    receive_limit
        How much an input may queue that nothing bounds, before the job fails with `ReceiveLimitError`. Default: 1 GiB.
    max_record_size
        Largest record, ``"64MiB"`` or a number of bytes. A larger one fails the job. Default: 64 MiB.
    slots_per_worker
        Subtasks of one operator that a worker process may run. None: as many as it takes. Default: None.
    status_interval
        How old the counters of `Job.status` and `Job.sample` may be. Default: ``"200ms"``.
    latency_interval
        How often each subtask of a source emits a marker: ``"1s"``, a ``timedelta`` of at least 1 ms, or None, never.
        Markers stand in line with the records, so `TaskReport` and ``/metrics`` say how long records take from the
        sources to each task: what they wait in queues. Default: None.
    heartbeat_interval, heartbeat_timeout
        How often a worker says that it lives and a data connection that hears nothing is asked, and how long either may
        be silent before the job fails. Default: ``"1s"`` and ``"10s"``.
    launch_timeout
        How long the workers may take to start. Default: ``"60s"``.
    cancel_timeout
        How long the functions of a job that ends early may go on before they are given up: worker processes are killed
        then. Default: ``"500ms"``, so that a failed job is gone within a second.
    stop_timeout
        How long a job that is stopped, by `Job.stop`, Ctrl-C or SIGTERM, may take to work off what is in flight; what
        takes longer is cancelled. Default: ``"10s"``.
    state_backend
        Where keyed ``reduce``, ``count``, ``sum``, ..., windows, joins and keyed process functions keep what they keep
        by key. ``"memory"``: all of it in memory. ``"disk"``: what was touched lately in memory, up to
        ``state_memory``, the rest on disk, encoded as in a checkpoint. Slower where keys come back from disk, and
        values have to be such as checkpoints can keep. Timers have an eighth of that memory, and lie on disk, too,
        where they have no room. Broadcast state lies in memory all the same. A job may change from one to the other,
        at a checkpoint or a savepoint. ``"auto"``: ``"disk"`` for rows whose event time has no ``delay``, since their
        windows and joins may have to keep rows until the input ends; else ``"memory"``. Default: ``"auto"``.
    state_memory
        For state on disk: memory of a worker for that state, ``"1GiB"`` or a number of bytes, from 1 KiB.
        The subtasks on the worker that keep such state have equal parts of it. What a key takes is estimated: eight
        times what is written of it, and 32 bytes, of a process function 280, of a join four times and 96 bytes, and its
        place in the table. What one key keeps is in memory whole when it is touched. Checkpoints that are written
        whole, and those that a job goes on from, take memory beside that. Default: 512 MiB.
    state_dir
        For state on disk: folder for that state on each worker; it is made where it is not there. Files in
        it have no names and are gone when their process is, however it ends. None: the folder for temporary files,
        which had better not be in memory itself. Default: None.
    restart
        What follows when the job fails: ``"none"``; ``"exponential"``, which starts it again after 1 s, then each time
        1.5 times as long, up to a minute, give or take a tenth, and from 1 s again when it has run for an hour;
        ``"fixed:3:10s"``, three times at most, after 10 s each; ``"rate:3:5min:10s"``, as long as no more than three
        failures fall within 5 minutes, after 10 s each. Worker processes stay, and those that were lost are replaced.
        Without checkpoints a job that is started again begins anew. A job that never came to run is not started again.
        ``"auto"``: with checkpoints ``"exponential"``, until an error of a function or of data comes five times at the
        same record, or ten times in the same operator, without a checkpoint in between: then the job ends with it.
        Without checkpoints ``"none"``. Default: ``"auto"``.
    tls
        Which connections between processes are encrypted and authenticated by TLS 1.3, both ends by certificates.
        ``"off"``: none. ``"on"``: all, by certificates made for the job. A path: all, by those in that folder of this
        machine, ``tls.crt``, ``tls.key`` and ``ca.crt`` in PEM; the other processes get them from this one.
        ``"auto"``: on where processes listen off loopback, such as inside Spark, else off. Default: ``"auto"``.
    name
        Name of the job. Default: ``"job"``; ``flownet run`` takes the name of the module.

    Raises
    ------
    ConfigError
        A value does not fit. Raised here, not when the dataflow runs.

    Examples
    --------
    >>> import flownet as fn
    >>> env = fn.Environment(parallelism=2, buffer_timeout="10ms")
    >>> doubled = env.from_collection([1, 2, 3]).map(lambda number: 2 * number).collect()
    >>> result = env.execute()
    >>> sorted(doubled)
    [2, 4, 6]
    """

    _on_execute: ClassVar[Callable[[Environment], None] | None] = None
    """Asked before each run; ``flownet run`` stops a script here that it only wanted to read."""

    def __init__(
        self,
        parallelism: int = 1,
        *,
        buffer_timeout: str | timedelta | Literal[0] | Unset | None = UNSET,
        max_in_flight_time: str | timedelta | Unset | None = UNSET,
        max_parallelism: int | Unset | None = UNSET,
        codec: Literal["typed", "pickle"] | Unset = UNSET,
        object_reuse: bool | Unset = UNSET,
        network_memory: str | int | Unset | None = UNSET,
        segment_size: str | int | Unset = UNSET,
        exclusive_buffers: int | Unset = UNSET,
        floating_buffers: int | Unset = UNSET,
        bandwidth_delay: str | int | Unset | None = UNSET,
        flow_control: FlowControl | Unset = UNSET,
        receive_buffer: str | int | Unset | None = UNSET,
        receive_limit: str | int | Unset = UNSET,
        max_record_size: str | int | Unset = UNSET,
        slots_per_worker: int | Unset | None = UNSET,
        status_interval: str | timedelta | Unset = UNSET,
        latency_interval: str | timedelta | Unset | None = UNSET,
        heartbeat_interval: str | timedelta | Unset = UNSET,
        heartbeat_timeout: str | timedelta | Unset = UNSET,
        launch_timeout: str | timedelta | Unset = UNSET,
        cancel_timeout: str | timedelta | Unset = UNSET,
        stop_timeout: str | timedelta | Unset = UNSET,
        state_backend: Literal["auto", "memory", "disk"] | Unset = UNSET,
        state_memory: str | int | Unset = UNSET,
        state_dir: str | os.PathLike[str] | Unset | None = UNSET,
        restart: str | Unset = UNSET,
        tls: str | os.PathLike[str] | Unset = UNSET,
        name: str | Unset = UNSET,
    ) -> None:
        # First, while there is no other variable.
        arguments = {name: value for name, value in locals().items() if name != "self"}
        self._given: dict[str, object] = {name: value for name, value in arguments.items() if value is not UNSET}
        if isinstance(state_dir, os.PathLike):
            self._given["state_dir"] = os.fspath(state_dir)
        self._overrides: dict[str, str] = {}
        self._dataflow = Dataflow()
        config.resolve(self._given, {})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute("Environment", name)

    def enable_checkpointing(
        self,
        interval: str | timedelta = "10s",
        *,
        storage: str | os.PathLike[str],
        mode: Literal["exactly_once", "at_least_once"] | Unset = UNSET,
        unaligned: bool | Unset = UNSET,
        aligned_timeout: str | timedelta | Literal[0] | Unset = UNSET,
        timeout: str | timedelta | Unset = UNSET,
        min_pause: str | timedelta | Literal[0] | Unset = UNSET,
        tolerable_failures: int | Unset = UNSET,
        retained: int | Unset = UNSET,
        allow_non_replayable: bool | Unset = UNSET,
        restore_from: str | os.PathLike[str] | Unset = UNSET,
        restore_checkpoint: int | Unset = UNSET,
        allow_non_restored_state: bool | Unset = UNSET,
    ) -> None:
        """Keep what the job has come to, again and again, so that it goes on from there after a failure.

        When a worker or a connection is lost, or a function raises, the job starts again from its last checkpoint, as
        ``restart`` says. When the whole job is lost, the same program run again goes on from there. Sources go back to
        where they were, state is what it was. What sinks wrote since is never seen where they take part
        (`Stream.write_text`, `TransactionalSink`); others get it once more. docs/concepts/delivery-guarantees.md lists
        the guarantees of sources and sinks.

        Parameters
        ----------
        interval
            From one checkpoint to the next: ``"10s"`` or a ``timedelta``. Default: ``"10s"``.
        storage
            Folder for the checkpoints of this job, a path, ``"file:///..."`` or, in builds with object stores,
            ``"s3://bucket/folder"``, ``"gs://..."`` or ``"az://..."``, that all its processes see. If there is
            a checkpoint in it, the job goes on from that. To begin anew, give another folder, or remove it. A job that
            has come to the end of its input has nothing left to do in it.
        mode
            ``"exactly_once"``: an input that has brought its part of a checkpoint waits for the others.
            ``"at_least_once"``: nobody waits, and some records count again after a failure. Default:
            ``"exactly_once"``.
        unaligned
            Whether a checkpoint overtakes records that are queued, which become part of it: where functions are slow it
            does not wait for them to work off what is before them. A job goes on from one with any parallelism, but
            behind a ``broadcast`` or ``partition_custom`` on which something was queued. Only with ``"exactly_once"``.
            Default: False.
        aligned_timeout
            How long a checkpoint waits in line before it overtakes, from its beginning, such as ``"1s"``; 0: not at
            all. One that is in time holds no records. Less than ``timeout``; ``unaligned`` need not be given with it.
            Default: as ``unaligned`` says, at once or never.
        timeout
            How long a checkpoint may take before it counts as failed. Default: ``"10min"``.
        min_pause
            Time between the end of a checkpoint and the next, at least. Default: 0.
        tolerable_failures
            Checkpoints in a row that may fail before the job does. Default: 0.
        retained
            How many checkpoints are kept. Default: 1.
        allow_non_replayable
            Whether sources are accepted that cannot be repeated: an iterator, a socket, Spark. What they bring counts
            at most once: after a failure, what came since the last checkpoint is missing. Default: False.
        restore_from
            A savepoint (`Job.savepoint`), or the folder of another job's checkpoints, that the job begins from while it
            has no checkpoint of its own: it is copied to ``storage``. The dataflow may be another one: state goes by
            `uid <Stream.uid>`. Restoring runs code from it, so take only what you or your job wrote. Default: the job
            begins anew.
        restore_checkpoint
            With ``restore_from``: number of the checkpoint there to begin from, as ``flownet checkpoints`` lists them.
            A job whose last checkpoint is damaged begins from an older one like this, in another ``storage``; it needs
            no uids. Sinks write again what they wrote since that checkpoint. Default: the last one.
        allow_non_restored_state
            Whether the job goes on from a checkpoint that has state of operators which the dataflow has no more: that
            state is lost. Default: False, it is refused with the names of the operators.

        Raises
        ------
        ConfigError
            A value does not fit.

        Examples
        --------
        >>> import tempfile
        >>> env.enable_checkpointing("10s", storage=tempfile.mkdtemp())
        """
        # First, while there is no other variable.
        arguments = {_CHECKPOINTING[name]: value for name, value in locals().items() if name != "self"}
        settings: dict[str, object] = {name: value for name, value in arguments.items() if value is not UNSET}
        if interval is None:
            raise ConfigError(
                "interval=None: say how long from one checkpoint to the next, such as '10s'", setting="interval"
            )
        settings["checkpoint_storage"] = os.fspath(storage)
        if restore_from is not UNSET:
            settings["restore_from"] = os.fspath(restore_from)
        config.resolve({**self._given, **settings}, {})
        self._given.update(settings)

    def from_collection(self, items: Iterable[T], *, rate_limit: source_methods.RateLimit | None = None) -> Stream[T]:
        """Start from values that are at hand.

        Parameters
        ----------
        items
            Read completely, now. For what is too large for that, see `from_iterable`.
        rate_limit
            The most that the source emits, all its subtasks together: records a second as a number or ``"1000/s"``, or
            bytes a second, as records are encoded, as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        CodecError
            An item is of a type that no exchange can carry.
        ConfigError
            ``rate_limit`` is no rate.

        Examples
        --------
        >>> numbers = env.from_collection([1, 2, 3])
        """
        pickle = self._settings(None)[0]["codec"] == "pickle"
        return self._stream(source_methods.from_collection(self._dataflow, items, pickle=pickle, rate_limit=rate_limit))

    def from_iterable(
        self,
        iterable: Iterable[T] | Callable[[int, int], Iterable[T]],
        *,
        rate_limit: source_methods.RateLimit | None = None,
    ) -> Stream[T]:
        """Start from an iterable that lives in this process, or from one that each subtask makes for itself.

        It is pulled only as fast as the operators downstream take its records, so it may be endless.

        Parameters
        ----------
        iterable
            Iterated over from a thread of the runtime while the job runs, in one subtask of this process. A generator
            is used up by the first run.

            Or a function: it is sent to the workers, and every subtask of the source calls it with its own index and
            the number of subtasks and iterates over what it returns. It has to split the work by these two; what it
            returns need not be picklable. What is both callable and iterable is iterated over.
        rate_limit
            The most that the source emits, all its subtasks together: records a second as a number or ``"1000/s"``, or
            bytes a second, as records are encoded, as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        ConfigError
            ``rate_limit`` is no rate.

        Notes
        -----
        A rate limit is a bucket of tokens for each subtask, which has an equal part of the rate. It begins with one
        record and never holds more than 100 ms worth of them: over any time a source emits no more than its rate
        allows, 100 ms worth beyond, and one record. What has been late for less than that is made up for. Operators,
        timers and cancelling do not wait for it.

        Examples
        --------
        >>> numbers = env.from_iterable(range(1_000_000))

        Made in the workers, by as many subtasks as the parallelism says:

        >>> numbers = env.from_iterable(lambda subtask, subtasks: range(subtask, 1_000_000, subtasks))

        At most 500 records a second, so that an external store which cannot push back is spared:

        >>> store = {}
        >>> class Store(fn.Sink[int]):
        ...     def write(self, records):
        ...         store.update((number, True) for number in records)
        >>> sink = env.from_iterable(range(50), rate_limit=500).sink_to(Store())
        """
        return self._stream(source_methods.from_iterable(self._dataflow, iterable, rate_limit=rate_limit))

    def read_text(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        errors: source_methods.TextErrors = "strict",
        watch: bool | str | timedelta = False,
        rate_limit: source_methods.RateLimit | None = None,
    ) -> Stream[str]:
        """Start from the lines of text files, without their line ends.

        Files are cut into ranges that the subtasks share, so one large file is read in parallel too. They are listed
        once, when the job is submitted: what files gain later is not read, and one that is cut short, replaced or
        written over while the job reads it fails the job with `InputError`. (Workers inside Spark may have copies of
        the files, and tell this by the size alone.) With ``watch`` files are followed instead, and new ones read as
        they come: see docs/how-to/follow-files.md. A line may be as long as a record, ``max_record_size``.

        A subtask reads file after file, in the order of their names; where timestamps are assigned in its task, side by
        side, always the one whose times are furthest behind.

        Parameters
        ----------
        paths
            A file, folder or pattern such as ``"logs/**/*.log"``, or several. Folders are read with all files below
            them, but for hidden ones: names that begin with ``.`` or ``_``, unless they are partitions such as
            ``_day=1``, and files that a job has not completed. Workers must see the same paths.
        errors
            For bytes that are not UTF-8: ``"strict"`` fails the job with `InputError`, ``"replace"`` puts U+FFFD in
            their place, ``"ignore"`` leaves them out.
        watch
            Whether to go on with what files gain, and with files that come: the job runs until it is stopped. How often
            to look, as ``"200ms"`` or a ``timedelta``; True is every second. A line is read when it has its end. Paths
            may be files that are not there yet. A file that is renamed is the same file; one that is cut or written
            over fails the job with `InputError`. Default: False.
        rate_limit
            The most that the source emits, all its subtasks together: records a second as a number or ``"1000/s"``, or
            bytes a second, as records are encoded, as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        InputError
            A path is missing or cannot be read. Raised here, not when the dataflow runs.
        ConfigError
            ``errors`` is none of the three, ``paths`` is empty, ``watch`` is no interval, or ``rate_limit`` is no rate.

        Examples
        --------
        >>> lines = env.read_text(["/etc/passwd", "/etc/group"])
        """
        return self._stream(source_methods.read_text(self._dataflow, paths, errors, watch=watch, rate_limit=rate_limit))

    def socket_text(
        self,
        host: str,
        port: int,
        *,
        errors: source_methods.TextErrors = "strict",
        rate_limit: source_methods.RateLimit | None = None,
    ) -> Stream[str]:
        """Start from the lines that a TCP server sends, without their line ends, until it closes the connection.

        Parameters
        ----------
        host, port
            Where the server listens. The subtask connects when the job starts; the job fails when it cannot.
        errors
            As for `read_text`.
        rate_limit
            The most that the source emits, all its subtasks together: records a second as a number or ``"1000/s"``, or
            bytes a second, as records are encoded, as ``"2MB/s"``. Default: None, as fast as downstream takes them.
            The server is held back by TCP.

        Raises
        ------
        ConfigError
            ``port`` is not 1 to 65535, ``errors`` is none of the three, or ``rate_limit`` is no rate.

        Examples
        --------
        >>> lines = env.socket_text("localhost", 9999)
        """
        return self._stream(source_methods.socket_text(self._dataflow, host, port, errors, rate_limit=rate_limit))

    def from_source(self, source: Source[T], *, rate_limit: source_methods.RateLimit | None = None) -> Stream[T]:
        """Start from a source of your own, that can be read again from where it was.

        Its splits are shared among the subtasks, in the order in which it lists them. A subtask reads its own side by
        side, batch by batch; where timestamps are assigned in its task, always the one whose times are furthest behind,
        and each has watermarks of its own. With checkpoints the job goes on from the positions of the splits.

        Parameters
        ----------
        source
            An instance of a subclass of `Source`; every subtask has a copy.
        rate_limit
            The most that the source emits, all its subtasks together: records a second as a number or ``"1000/s"``, or
            bytes a second, as records are encoded, as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        PlanError
            ``source`` is no `Source`. When the dataflow runs: a split is listed twice, or cannot name one.
        ConfigError
            ``rate_limit`` is no rate.

        Examples
        --------
        >>> class Ranges(fn.Source[int]):
        ...     def splits(self):
        ...         return [0, 100, 200]
        ...
        ...     def open(self, split, position):
        ...         return Range(split if position is None else position, split + 100)
        >>> class Range(fn.SplitReader[int]):
        ...     def __init__(self, next, end):
        ...         self.next, self.end = next, end
        ...
        ...     def read(self):
        ...         batch = list(range(self.next, min(self.next + 64, self.end)))
        ...         self.next += len(batch)
        ...         return batch or None
        ...
        ...     def position(self):
        ...         return self.next
        >>> numbers = env.from_source(Ranges()).collect()
        >>> result = env.execute()
        >>> sorted(numbers) == list(range(300))
        True
        """
        return self._stream(source_methods.from_source(self._dataflow, source, rate_limit=rate_limit))

    def from_generator(
        self,
        read: Callable[..., Iterator[Any]],
        *,
        splits: Iterable[Any] | None = None,
        batches: bool = False,
        rate_limit: source_methods.RateLimit | None = None,
    ) -> Stream[Any]:
        """Start from a generator that can begin anywhere: `from_source` in its simplest form.

        Parameters
        ----------
        read
            A function that yields ``(position, record)``: what it is to be called with to go on behind that record, and
            the record; or None where there is nothing for now, after which it is asked again in 20 ms. It is called
            with a position, None at the very beginning; with ``splits``, with a split and a position. Positions are of
            the types that records may be of.
        splits
            Texts, numbers or tuples of such, each of which is read by itself, by one of the subtasks. None: there is
            one subtask. Default: None.
        batches
            What is yielded are lists of records, ``(position, [record, ...])``: faster, where many are at hand.
            Default: False.
        rate_limit
            As for `from_source`.

        Raises
        ------
        PlanError
            ``read`` is no function, or is async. When the dataflow runs: a split is listed twice, or cannot name one.
        ConfigError
            ``rate_limit`` is no rate.

        Examples
        --------
        >>> def squares(position):
        ...     for number in range(position or 0, 4):
        ...         yield number + 1, number * number
        >>> numbers = env.from_generator(squares).collect()
        >>> result = env.execute()
        >>> list(numbers)
        [0, 1, 4, 9]
        """
        node = source_methods.from_generator(
            self._dataflow, read, splits=splits, batches=batches, rate_limit=rate_limit
        )
        return self._stream(node)

    def from_script(self, *scripts: Iterable[Step]) -> Stream[Any]:
        """Start from scripts that say what arrives, in which order and when: for tests.

        Parameters
        ----------
        *scripts
            For each subtask of the source the steps that it takes: `flownet.testing.Record`, `Watermark`, `Idle` and
            `Active`. At its end time ends, as at the end of any source.

        Raises
        ------
        PlanError
            There is no script, or something else is in one.

        Examples
        --------
        >>> from flownet.testing import Record, Watermark
        >>> script = [Record("a", 1_000), Watermark(9_999), Record("a", 2_000), Record("b", 12_000)]
        >>> counts = env.from_script(script).key_by(str).window(fn.Tumbling("10s")).count().collect()
        >>> result = env.execute()  # the second record is late
        >>> list(counts)
        [('a', 1), ('b', 1)]
        """
        from ..testing.script import from_script

        return self._stream(from_script(self._dataflow, scripts))

    @overload
    def from_spark(self, frame: DataFrame, *, as_dicts: bool = False, ordered: bool = False) -> Stream[Any]: ...

    @overload
    def from_spark(self, frame: DataFrame, *, as_rows: Literal[True], ordered: bool = False) -> Rows: ...

    def from_spark(
        self, frame: DataFrame, *, as_dicts: bool = False, as_rows: bool = False, ordered: bool = False
    ) -> Stream[Any] | Rows:
        """Start from the rows of a DataFrame of Spark, read by the workers themselves where Spark has them.

        The job then runs inside Spark: by `Stream.to_spark`, or by ``execute(on=flownet.spark.cluster(...))``. Spark's
        tasks that read the DataFrame are the workers. Each has one subtask of this source, which pulls rows only as
        fast as the operators downstream take them. A job can read several DataFrames.

        Parameters
        ----------
        frame
            Of a classic session or of Spark Connect. If it is the only one and has as many partitions as there are
            workers, each worker reads one partition. Otherwise each partition is dealt out to all workers, in batches.
        as_dicts
            Records are dicts by column name, rather than tuples in the order of the columns. Default: False.
        as_rows
            Give a stream of rows, whose columns are those of the DataFrame: batches go through as Spark hands them
            over, and `Rows.to_spark` gives them back. Default: False.
        ordered
            Each partition is in the order that timestamps promise, such as by ``sortWithinPartitions``. Event time then
            follows the rows. It must be the only DataFrame of the job, with as many partitions as there are workers.
            Default: False, nothing is promised: event time passes when the input ends, and no row is late.

        Raises
        ------
        ConfigError
            It is no DataFrame, a streaming one, or one without columns.
        PlanError
            A column is of a type that cannot go through a job.
        ImportError
            PySpark is missing: ``pip install 'flownet-streams[spark]'``.

        Notes
        -----
        As rows, a ``map`` is a ``list[struct[map_key, map_value]]`` and a ``variant`` a ``struct[variant_value,
        variant_metadata]``; `Rows.to_spark` turns them back. In records a map is a dict.

        Examples
        --------
        >>> flights = env.from_spark(spark.read.parquet("flights"), as_dicts=True)  # doctest: +SKIP
        """
        from ..spark import frames

        if as_rows:
            return self._rows(frames.read_rows(self._dataflow, frame, ordered))
        return self._stream(frames.read(self._dataflow, frame, as_dicts, ordered))

    def explain(self, workers: int | None = None) -> str:
        """Say what the job will take, without running it.

        Parameters
        ----------
        workers
            Worker processes, as for `execute`.

        Returns
        -------
        str
            Tasks and their operators, exchanges and their channels, buffers and memory a worker. If the buffers do not
            suffice, the last line begins with ``refused:`` and says how many are missing and which settings help;
            `execute` would raise `InsufficientBuffersError`.

        Raises
        ------
        PlanError
            There is no plan: the dataflow is empty, has a cycle, or a forward edge joins unequal parallelisms.

        Examples
        --------
        >>> sink = env.from_collection(["to be"]).flat_map(str.split).print()
        >>> print(env.explain())
        task 1  from_collection -> flat_map -> print    parallelism 1
        buffers: needs 0, wants 0 of 2048 (32 KiB each, 64 MiB) in this process
        """
        settings, parallelism = self._settings(workers)
        plan = self._dataflow.describe(parallelism, settings["workers"])
        return _flownet.explain(plan.operators, plan.edges, settings)

    def execute(self, workers: int | None = None, *, on: Host | None = None, ui: Where | Ui | None = None) -> JobResult:
        """Run the dataflow to the end of its sources.

        Ctrl-C stops the job as `Job.stop` does, within ``stop_timeout``, and raises ``KeyboardInterrupt`` when nothing
        of it is left; SIGTERM does the same and raises ``SystemExit``. A second one of either cancels it.

        Parameters
        ----------
        workers
            Worker processes to start on this machine. 0 runs all in this process. Default: 0.
        on
            Where else the workers run, such as ``flownet.spark.cluster(spark, workers=4)``; in place of ``workers``.
            Default: None.
        ui
            A page to look at the job while it runs: True, a port, ``"HOST:PORT"``, or what `serve_ui` gave. Its address
            is printed to standard error. Default: None, none.

        Returns
        -------
        JobResult
            Records, rates, and where the time went.

        Raises
        ------
        PlanError
            The dataflow cannot be run, or does not fit. Nothing was started.
        OperatorError
            A function of the user raised.
        FlownetError
            Anything else that ended the job: see `flownet.errors`. Nothing of the job is left.

        Examples
        --------
        >>> numbers = env.from_collection([1, 2, 3]).collect()
        >>> result = env.execute()
        """
        with self.execute_async(workers, on=on, ui=ui) as job:
            return job.wait()

    def execute_async(self, workers: int | None = None, *, on: Host | None = None, ui: Where | Ui | None = None) -> Job:
        """Start the dataflow and return at once.

        Parameters
        ----------
        workers, on, ui
            As for `execute`.

        Returns
        -------
        Job
            To watch, cancel and wait for. Use it in a ``with`` block: what still runs at its end is cancelled.

        Raises
        ------
        PlanError
            The dataflow cannot be run, or does not fit. Nothing was started.
        LaunchError
            The workers could not be started.

        Examples
        --------
        >>> numbers = env.from_collection([1, 2, 3]).collect()
        >>> with env.execute_async() as job:
        ...     result = job.wait()
        """
        if ui is None or ui is False:
            return self._submit(self._dataflow, workers, on)
        from ..observation.ui import announced, ui_of

        # Before the job, which must not run unseen where the port is taken.
        page = ui_of(ui)
        job = self._submit(self._dataflow, workers, on)
        job.ui_url = page.url_of(page.show(job))
        if page is not ui:
            announced(job)
        return job

    def _submit(
        self, dataflow: Dataflow, workers: int | None = None, on: Host | None = None, *, only_once: bool = False
    ) -> Job:
        """Start a dataflow with the settings of this environment."""
        from .job import Job

        if Environment._on_execute is not None:
            Environment._on_execute(self)
        if isinstance(workers, str):
            raise ConfigError(
                f"workers={workers!r} must be a whole number: the first argument of execute() is the number of workers, "
                f"and a job gets its name from Environment(name={workers!r})",
                setting="workers",
                value=workers,
            )
        if on is not None and workers is not None:
            raise ConfigError("on brings its own workers: leave workers out", setting="workers", value=workers)
        settings, parallelism = self._settings(workers)
        if only_once:
            settings |= _ONLY_ONCE
        frames = _frames_of(dataflow, settings, on)
        if on is not None:
            settings["workers"] = on.workers
        here = settings["workers"] == 0
        resumes = settings["checkpoint_interval"] is not None
        _warn_of_loose_ends(dataflow)
        for mixed in dataflow.mixed_splits(parallelism, settings["workers"]):
            warn_user(UsageWarning(str(mixed)))
        for sentence in arrival_dependent(dataflow, parallelism, settings["workers"]):
            warn_user(UsageWarning(sentence))
        # Where nothing is shipped, it is serialised all the same: every subtask of every run has a copy of its own.
        ship = None if here and settings["object_reuse"] else serialise.dumps
        plan = dataflow.build(parallelism, ship, settings["workers"])
        submit = functools.partial(_flownet.submit, plan.operators, plan.edges, settings, plan.objects)
        classes = _classes_of_checkpoint(settings)
        init = b"" if here else serialise.pack_init(classes)
        log_capture.overhear()
        discovery = dataflow.discovery()
        if on is None:
            job = Job(submit([] if here else _worker_command(), init, None), resumes=resumes, discovery=discovery)
            dataflow.after_start()
            return job
        # Before the host is asked, which takes seconds.
        _flownet.check(plan.operators, plan.edges, settings)
        lease = on.lease(settings["name"], settings["tls"], frames)
        try:
            job = Job(submit([], init, lease.pool), lease, resumes=resumes, discovery=discovery)
        except BaseException:
            lease.close()
            raise
        dataflow.after_start()
        return job

    def _settings(self, workers: int | None) -> tuple[dict[str, Any], int]:
        """Resolve the settings for Rust, and the parallelism of operators that do not set their own."""
        given = self._given if workers is None else {**self._given, "workers": workers}
        settings = config.resolve(given, self._overrides)
        return settings, cast(int, settings["parallelism"])

    def _override(self, settings: dict[str, str]) -> None:
        """Take settings of the command line; they win over all others."""
        config.resolve(self._given, settings)
        self._overrides.update(settings)

    def __repr__(self) -> str:
        return f"<Environment of {len(self._dataflow.nodes)} operators>"

    def _name_after(self, module: str) -> None:
        """Name the job after the module that describes it, unless it has a name."""
        self._given.setdefault("name", module)

    def _stream(self, node: Node) -> Stream[Any]:
        return Stream(self, (Origin(node),))


_ONLY_ONCE = {
    "checkpoint_interval": None,
    "checkpoint_storage": None,
    "restore_from": None,
    "restore_checkpoint": None,
    "restart": "none",
}
"""Of a job that keeps nothing, and is not begun again."""

_CHECKPOINTING = {
    "interval": "checkpoint_interval",
    "storage": "checkpoint_storage",
    "mode": "checkpoint_mode",
    "unaligned": "checkpoint_unaligned",
    "aligned_timeout": "checkpoint_aligned_timeout",
    "timeout": "checkpoint_timeout",
    "min_pause": "checkpoint_min_pause",
    "tolerable_failures": "tolerable_failed_checkpoints",
    "retained": "retained_checkpoints",
    "allow_non_replayable": "allow_non_replayable",
    "restore_from": "restore_from",
    "restore_checkpoint": "restore_checkpoint",
    "allow_non_restored_state": "allow_non_restored_state",
}
"""Settings of checkpoints, by what `Environment.enable_checkpointing` calls them."""


def _classes_of_checkpoint(settings: dict[str, Any]) -> bytes:
    """Find the classes of what a job goes on from; return what its workers are told of them."""
    if settings["checkpoint_storage"] is None:
        return b""
    kept = _flownet.kept_classes(settings["checkpoint_storage"], settings["restore_from"])
    return class_changes.find_classes(kept) if kept else b""


def _frames_of(dataflow: Dataflow, settings: dict[str, Any], on: Host | None) -> Frames:
    """List the rows that the host of the workers carries, and refuse what it cannot."""
    takes_checkpoints = settings["checkpoint_interval"] is not None
    frames = Frames(dataflow.host_inputs(), dataflow.host_outputs(), takes_checkpoints)
    if frames and on is None:
        method = "from_spark() reads" if frames.inputs else "to_spark(run=False) writes"
        raise PlanError(
            f"{method} inside Spark: run the job there, execute(on=flownet.spark.cluster(spark, workers=...))"
        )
    if frames.outputs and takes_checkpoints:
        raise ConfigError(
            f"job {settings['name']!r} takes checkpoints and gives rows to Spark by to_spark(), which no checkpoint "
            "holds: leave out enable_checkpointing(), and set restart= to have the job begin again from its start",
            setting="checkpoint_interval",
        )
    return frames


def _warn_of_loose_ends(dataflow: Dataflow) -> None:
    for node in dataflow.loose_ends():
        text = (
            f"nothing takes the records of operator {node.name!r}: add a sink behind it, such as .print() or "
            ".collect(), or leave it out"
        )
        warn_user(UsageWarning(text))


def _worker_command() -> list[str]:
    if not sys.executable:
        raise LaunchError("cannot start worker processes: sys.executable is not set; run with workers=0")
    # -P keeps a file of the working directory, such as queue.py, from standing in for a standard module.
    return [sys.executable, "-P", "-m", "flownet.worker"]


@atexit.register
def _end_jobs() -> None:
    """End what the program has left running: a function must not meet an interpreter that is being taken down."""
    job = sys.modules.get(f"{__package__}.job")
    if job is not None:
        job.end_all()
    if not _flownet.end_functions(_MILLISECONDS_AT_EXIT):
        logging.getLogger("flownet").warning("a function of a job in this process does not return, and ends with it")


_MILLISECONDS_AT_EXIT = 5_000
