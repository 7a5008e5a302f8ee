"""The environment: settings, sources, and methods to run a dataflow."""

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
    """Create, configure and run a dataflow.

    You can also set every setting with the environment variable ``FLOWNET_<NAME>`` or with ``flownet run --set
    name=value``. Both override the argument.

    Parameters
    ----------
    parallelism
        Subtasks of each operator that does not set its own, 1 to 32768. Default: 1.
    buffer_timeout
        Longest time a record waits for its buffer to fill: ``"10ms"``, a ``timedelta``, ``0`` to send each record at
        once, or None to send only full buffers. A shorter time costs throughput, a longer one latency. Default:
        ``"100ms"``.
    max_in_flight_time
        Longest time of records in one exchange to an operator that is slower than its input: ``"1s"``, a ``timedelta``
        of at least 1 ms, or None. Buffers are filled only as far as the operator can process those in flight within
        that time. The operator measures its speed while it runs. A buffer holds at least one record or 0.3 ms of work;
        other records wait upstream. With N subtasks on either side, there are up to ``4 N + 16`` buffers before each
        subtask. The minimum is that many records, or that many times 0.3 ms. Fast operators still get full buffers;
        with None all operators do. Between workers it needs ``flow_control="credit"``. Default: ``"1s"``.
    max_parallelism
        Number of key groups, 1 to 32768. It is the highest parallelism that keyed operators can ever have. None derives
        it from the parallelism. Default: None.
    codec
        ``"typed"`` encodes values of the built-in types, datetimes, numpy values, and instances of dataclasses,
        NamedTuples, Enums, attrs classes and pydantic models. ``"pickle"`` also encodes any other picklable object, but
        slower. Default: ``"typed"``.
    object_reuse
        False: each function owns its records, and may change and keep them. Inside a task, flownet copies an object if
        it is mutable and another holder still refers to it. It does not copy numbers, strings, tuples of these and
        objects without another holder. Every subtask has its own functions in every run, as serialised, also without
        workers. Results never depend on chaining, workers or parallelism.
        True: objects are passed on without copies, and without workers your functions themselves run. It is faster if
        mutable records go to several operators or are stored. Functions must then not change records that were passed
        on. Default: False.
    network_memory
        Memory of a worker for buffers, ``"64MiB"`` or a number of bytes. A worker never exceeds it, except for 512
        bytes a buffer that keep buffers apart in the CPU caches. A job whose tasks need more is refused. None: each
        worker has 64 MiB, or as much as its tasks need if that is more. Default: None.
    segment_size
        Size of a buffer, ``"32KiB"`` or a number of bytes. Default: 32 KiB.
    exclusive_buffers
        Buffers that each channel between workers reserves while it has no data. Fewer if memory is short. Default: 2.
    floating_buffers
        Buffers that the channels of one input share, at least 1. Default: 8.
    bandwidth_delay
        In-flight data of one channel between workers, ``"4MB"`` or a number of bytes. Use the rate of the longest link
        times its round trip, and more if packets get lost. Both ends then hold as many buffers as that takes, if there
        are enough. None: links are short, and the buffers above fill them. Default: None.
    flow_control
        Method that keeps producers from overrunning consumers on other workers. Default: ``"credit"``.

        - ``"credit"``: each channel's receiver announces its free buffers. A slow consumer slows only its own
          producers.
        - ``"tcp"``: no credit, as in Flink before 1.5. A consumer without buffers stops the socket that all channels of
          the exchange between two workers share, so the other channels wait too.
        - ``"storm"``: as in Apache Storm 1.0. Queues grow. When a queue fills to 0.9 of ``receive_buffer``, all sources
          of the job pause. They resume when all queues are down to 0.4.
        - ``"pid"``: as in Spark Streaming. Queues grow. Once a second a rate estimator (proportional 1.0, integral 0.2,
          derivative 0.0, at least 100 records a second) sets the rate of all sources from the processing and queueing
          time of records.
        - ``"drop"``: no flow control. Records that do not fit into ``receive_buffer`` are dropped whole, and counted.
        - ``"unbounded"``: no flow control. Unread records are queued, up to ``receive_limit``.

        All methods except the first exist for comparison. Operators of one process always use credit.
    receive_buffer
        Largest queue of one input for data from other workers: ``"5MB"``, a number of bytes, or None for the size of
        its exclusive and floating buffers. With ``"credit"`` and ``"tcp"`` it replaces the floating buffers. Default:
        None.
    receive_limit
        Largest queue of an input without flow control. Beyond it the job fails with `ReceiveLimitError`. Default:
        1 GiB.
    max_record_size
        Largest record, ``"64MiB"`` or a number of bytes. A larger one fails the job. Default: 64 MiB.
    slots_per_worker
        Most subtasks of one operator in a worker process. None: no limit. Default: None.
    status_interval
        Longest age of the counters of `Job.status` and `Job.sample`. Default: ``"200ms"``.
    latency_interval
        Time between two latency markers of a source subtask: ``"1s"``, a ``timedelta`` of at least 1 ms, or None for no
        markers. Markers queue with the records. `TaskReport` and ``/metrics`` report the time of records from the
        sources to each task, which includes their time in queues. Default: None.
    heartbeat_interval, heartbeat_timeout
        Time between heartbeats of a worker, or of a silent data connection, and the longest silence of either before
        the job fails. Default: ``"1s"`` and ``"10s"``.
    launch_timeout
        Longest time for the start of the workers. Default: ``"60s"``.
    cancel_timeout
        Longest time the functions may run on after the job ended early. Then worker processes are killed. Default:
        ``"500ms"``, so that a failed job is gone within a second.
    stop_timeout
        Longest time a stopped job may take to process in-flight records, after `Job.stop`, Ctrl-C or SIGTERM. Then it
        is cancelled. Default: ``"10s"``.
    state_backend
        Storage for keyed state: of ``reduce``, ``count``, ``sum``, ..., windows, joins and keyed process functions.
        Broadcast state is always in memory. A job may change its backend at a checkpoint or a savepoint. Default:
        ``"auto"``.

        - ``"memory"``: all state in memory.
        - ``"disk"``: recently used state in memory, up to ``state_memory``, the rest on disk, encoded as in a
          checkpoint. It is slower if keys are read from disk, and values must be of types that a checkpoint can store.
          Timers have an eighth of that memory, and the others are on disk.
        - ``"auto"``: ``"disk"`` for rows whose event time has no ``delay``, because their windows and joins may have
          to store rows until the input ends. Otherwise ``"memory"``.
    state_memory
        Memory of a worker for state on disk, ``"1GiB"`` or a number of bytes, from 1 KiB. The subtasks with such state
        share it equally. The size of a key is estimated: eight times its encoded size plus 32 bytes, in a process
        function plus 280 bytes, in a join four times plus 96 bytes, and its table entry. The whole state of a key is
        loaded when it is used. Full checkpoints, and checkpoints that a job resumes from, take additional memory.
        Default: 512 MiB.
    state_dir
        Folder for state on disk on each worker. It is created if it does not exist. Its files have no names, and vanish
        with their process, however that ends. None: the folder for temporary files, which should not be in memory
        itself. Default: None.
    restart
        Restart strategy after a failure. Worker processes stay, and lost ones are replaced. Without checkpoints a
        restarted job begins from its start. A job that fails before it runs is not restarted. Default: ``"auto"``.

        - ``"none"``: the job is not restarted.
        - ``"exponential"``: after 1 s, then each time 1.5 times as long, up to a minute, with 10 % jitter. The delay is
          1 s again after the job has run for an hour.
        - ``"fixed:3:10s"``: at most three times, after 10 s each.
        - ``"rate:3:5min:10s"``: while there are at most three failures within 5 minutes, after 10 s each.
        - ``"auto"``: without checkpoints ``"none"``, with checkpoints ``"exponential"``. The job fails if an error of a
          function or of data occurs five times at the same record, or ten times in the same operator, without a
          checkpoint in between.
    tls
        Encryption and mutual authentication of the connections between processes by TLS 1.3. Default: ``"auto"``.

        - ``"off"``: no TLS.
        - ``"on"``: all connections, with certificates made for the job.
        - A path: all connections, with ``tls.crt``, ``tls.key`` and ``ca.crt`` in PEM from that folder of this machine.
          The other processes get them from this one.
        - ``"auto"``: on if processes listen off loopback, such as inside Spark, otherwise off.
    name
        Name of the job. Default: ``"job"``; ``flownet run`` uses the name of the module.

    Raises
    ------
    ConfigError
        A value is invalid. Raised here, not when the dataflow runs.

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
    """Called before each run. ``flownet run`` stops a script here if it only reads the dataflow."""

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
        """Enable checkpoints, from which the job resumes after a failure.

        When a worker or a connection is lost, or a function raises, the job restarts from its last checkpoint, as
        ``restart`` sets. When the whole job is lost, run the same program again to resume. Sources return to their
        positions, and state is restored. Transactional sinks (`Stream.write_text`, `TransactionalSink`) never publish
        the records written since the checkpoint. Other sinks receive them again.
        docs/concepts/delivery-guarantees.md lists the guarantees of sources and sinks.

        Parameters
        ----------
        interval
            Time from one checkpoint to the next: ``"10s"`` or a ``timedelta``. Default: ``"10s"``.
        storage
            Folder for the checkpoints of this job, which all its processes must see: a path or ``"file:///..."``, or in
            builds with object stores ``"s3://bucket/folder"``, ``"gs://..."`` or ``"az://..."``. If it has a
            checkpoint, the job resumes from it. To start from the beginning, give another folder, or remove it. A job
            that has reached the end of its input has nothing left to process.
        mode
            ``"exactly_once"``: inputs wait for each other at a checkpoint. ``"at_least_once"``: inputs do not wait, and
            some records count again after a failure. Default: ``"exactly_once"``.
        unaligned
            Whether a checkpoint overtakes queued records and stores them. Use it if functions are slow: the checkpoint
            then does not wait for them. A job can resume from it with any parallelism, except downstream of a
            ``broadcast`` or ``partition_custom`` that had queued records. Only with ``"exactly_once"``. Default: False.
        aligned_timeout
            Time from the start of a checkpoint until it overtakes queued records, such as ``"1s"``; 0: at once. A
            checkpoint that completes earlier stores no records. Must be less than ``timeout``. It does not need
            ``unaligned``. Default: at once with ``unaligned``, otherwise never.
        timeout
            Longest time of a checkpoint. Then it fails. Default: ``"10min"``.
        min_pause
            Shortest time between the end of a checkpoint and the next. Default: 0.
        tolerable_failures
            Number of consecutive checkpoints that may fail before the job fails. Default: 0.
        retained
            Number of checkpoints to retain. Default: 1.
        allow_non_replayable
            Whether to accept non-replayable sources: an iterator, a socket, Spark. Their records count at most once:
            after a failure, records read since the last checkpoint are lost. Default: False.
        restore_from
            A savepoint (`Job.savepoint`), or the folder of another job's checkpoints. The job starts from it while it
            has no checkpoint of its own, and copies it to ``storage``. The dataflow may differ: state is matched by
            `uid <Stream.uid>`. Restoring runs code from it, so use only files that you or your job wrote. Default: the
            job starts from the beginning.
        restore_checkpoint
            Number of the checkpoint in ``restore_from``, as ``flownet checkpoints`` lists them. If the last checkpoint
            of a job is damaged, start it from an older one in another ``storage``. It needs no uids. Sinks write again
            the records written since that checkpoint. Default: the last one.
        allow_non_restored_state
            Whether to drop the state of operators that the dataflow no longer has. Default: False, the job is refused
            and the error names the operators.

        Raises
        ------
        ConfigError
            A value is invalid.

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
        """Create a stream from a collection of values.

        Parameters
        ----------
        items
            Any iterable. It is read completely by this call. For large inputs, see `from_iterable`.
        rate_limit
            Largest rate of all subtasks of the source together: records a second as a number or ``"1000/s"``, or
            encoded bytes a second as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        CodecError
            An item is of a type that no exchange can carry.
        ConfigError
            ``rate_limit`` is not a rate.

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
        """Create a stream from an iterable or from a function of the subtask.

        The source reads the iterable only as fast as downstream operators take its records, so it may be endless.

        Parameters
        ----------
        iterable
            An iterable, which one subtask of this process reads in a thread of the runtime while the job runs. The
            first run exhausts a generator.

            Or a function, which is sent to the workers. Every subtask of the source calls it with its index and the
            number of subtasks, and iterates over the result. Split the work by these two numbers. The result need not
            be picklable. An object that is both callable and iterable is treated as an iterable.
        rate_limit
            Largest rate of all subtasks of the source together: records a second as a number or ``"1000/s"``, or
            encoded bytes a second as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        ConfigError
            ``rate_limit`` is not a rate.

        Notes
        -----
        A rate limit is a token bucket for each subtask, which has an equal share of the rate. The bucket begins with
        one record and holds at most 100 ms worth of records. Over any time a source emits at most its rate, plus 100 ms
        worth and one record. Shorter delays are made up for. Operators, timers and cancelling do not wait for the rate
        limit.

        Examples
        --------
        >>> numbers = env.from_iterable(range(1_000_000))

        Read in the workers, with one subtask for each unit of the parallelism:

        >>> numbers = env.from_iterable(lambda subtask, subtasks: range(subtask, 1_000_000, subtasks))

        Emit at most 500 records a second, to protect an external store without back-pressure:

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
        """Read the lines of text files, without line ends.

        Subtasks share ranges of the files, so one large file is read in parallel too. Files are listed once, when you
        submit the job. Lines added later are not read. If a file is truncated, replaced or overwritten while the job
        reads it, the job fails with `InputError`. Workers inside Spark may have copies of the files, and check only
        the size. With ``watch``, the source follows files and reads new ones: see docs/how-to/follow-files.md. A line
        may be as long as a record, ``max_record_size``.

        A subtask reads one file after the other, in the order of their names. If timestamps are assigned in its task,
        it reads files side by side, always the one with the earliest times.

        Parameters
        ----------
        paths
            A file, folder or pattern such as ``"logs/**/*.log"``, or several. Folders are read with all files below
            them, except hidden files and files that a job has not completed. Hidden names begin with ``.`` or ``_``,
            unless they are partitions such as ``_day=1``. Workers must see the same paths.
        errors
            Handling of bytes that are not UTF-8: ``"strict"`` fails the job with `InputError`, ``"replace"`` puts
            U+FFFD in their place, ``"ignore"`` leaves them out. Default: ``"strict"``.
        watch
            Whether to follow the files and read new files until you stop the job. To set the interval, give ``"200ms"``
            or a ``timedelta``; True checks every second. A line is read when it has its line end. Files need not exist
            yet. A renamed file is the same file. A truncated or overwritten file fails the job with `InputError`.
            Default: False.
        rate_limit
            Largest rate of all subtasks of the source together: records a second as a number or ``"1000/s"``, or
            encoded bytes a second as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        InputError
            A path is missing or cannot be read. Raised here, not when the dataflow runs.
        ConfigError
            ``errors``, ``watch`` or ``rate_limit`` is invalid, or ``paths`` is empty.

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
        """Read lines from a TCP server until it closes the connection.

        Parameters
        ----------
        host, port
            Address of the server. The subtask connects when the job starts. If it cannot connect, the job fails.
        errors
            As for `read_text`.
        rate_limit
            Largest rate of all subtasks of the source together: records a second as a number or ``"1000/s"``, or
            encoded bytes a second as ``"2MB/s"``. Default: None, as fast as downstream takes them.
            TCP slows the server down.

        Raises
        ------
        ConfigError
            ``port`` is not 1 to 65535, or ``errors`` or ``rate_limit`` is invalid.

        Examples
        --------
        >>> lines = env.socket_text("localhost", 9999)
        """
        return self._stream(source_methods.socket_text(self._dataflow, host, port, errors, rate_limit=rate_limit))

    def from_source(self, source: Source[T], *, rate_limit: source_methods.RateLimit | None = None) -> Stream[T]:
        """Create a stream from a custom replayable source.

        Subtasks share the splits of the source in the order in which it lists them. A subtask reads its splits side by
        side, batch by batch. If timestamps are assigned in its task, it reads the split with the earliest times, and
        each split has its own watermark. With checkpoints, the job resumes from the positions of the splits.

        Parameters
        ----------
        source
            An instance of a subclass of `Source`. Every subtask has a copy.
        rate_limit
            Largest rate of all subtasks of the source together: records a second as a number or ``"1000/s"``, or
            encoded bytes a second as ``"2MB/s"``. Default: None, as fast as downstream takes them.

        Raises
        ------
        PlanError
            ``source`` is not a `Source`. When the dataflow runs: a split is listed twice, or is not a valid name.
        ConfigError
            ``rate_limit`` is not a rate.

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
        """Create a replayable stream from a generator that starts at a position.

        It is the simplest form of `from_source`.

        Parameters
        ----------
        read
            A function that yields ``(position, record)``. To resume after a record, flownet calls it with the position
            of that record. If there is no record for now, yield None, and flownet asks again in 20 ms. The function
            takes a position, None at the start; with ``splits``, it takes a split and a position. Positions have the
            types of records.
        splits
            Strings, numbers or tuples of these. One subtask reads each split separately. None: one subtask without
            splits. Default: None.
        batches
            Whether the function yields lists of records, ``(position, [record, ...])``. It is faster if many records
            are available. Default: False.
        rate_limit
            As for `from_source`.

        Raises
        ------
        PlanError
            ``read`` is not a function, or is async. When the dataflow runs: a split is listed twice, or is not a valid
            name.
        ConfigError
            ``rate_limit`` is not a rate.

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
        """Create a stream from scripted records and watermarks, for tests.

        Parameters
        ----------
        *scripts
            For each subtask of the source, its steps: `flownet.testing.Record`, `Watermark`, `Idle` and `Active`. At
            the end of a script event time ends, as at the end of any source.

        Raises
        ------
        PlanError
            There is no script, or a script has another object in it.

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
        """Read a Spark DataFrame, in parallel, inside Spark.

        Run the job inside Spark with `Stream.to_spark` or ``execute(on=flownet.spark.cluster(...))``. The Spark tasks
        that read the DataFrame are the workers. Each worker has one subtask of this source, which reads rows only as
        fast as downstream operators take them. A job can read several DataFrames.

        Parameters
        ----------
        frame
            A DataFrame of a classic session or of Spark Connect. If it is the only one and has as many partitions as
            there are workers, each worker reads one partition. Otherwise the batches of each partition are distributed
            to all workers.
        as_dicts
            Whether records are dicts by column name instead of tuples in column order. Default: False.
        as_rows
            Whether to return `Rows` with the columns of the DataFrame. Batches pass unchanged, and `Rows.to_spark`
            writes them back. Default: False.
        ordered
            Whether each partition is sorted as its timestamps promise, such as by ``sortWithinPartitions``. Event time
            then follows the rows. It must be the only DataFrame of the job, with as many partitions as there are
            workers. Default: False, event time advances when the input ends, and no row is late.

        Raises
        ------
        ConfigError
            ``frame`` is not a DataFrame, is a streaming one, or has no columns.
        PlanError
            A column has a type that a job does not support.
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
        """Explain the plan of the job: tasks, exchanges, buffers and memory.

        The job does not run.

        Parameters
        ----------
        workers
            Number of worker processes, as for `execute`. Default: None, 0 unless set elsewhere.

        Returns
        -------
        str
            Tasks and their operators, exchanges and their channels, buffers and memory of a worker. If there are too
            few buffers, the last line begins with ``refused:``. It lists the number of missing buffers and the settings
            that help. `execute` would then raise `InsufficientBuffersError`.

        Raises
        ------
        PlanError
            The dataflow is empty, has a cycle, or a forward edge connects different parallelisms.

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
        """Run the dataflow until all its sources end.

        Ctrl-C stops the job as `Job.stop` does, within ``stop_timeout``, and then raises ``KeyboardInterrupt``. SIGTERM
        does the same and raises ``SystemExit``. A second signal cancels the job.

        Parameters
        ----------
        workers
            Number of worker processes on this machine. 0 runs the job in this process. Default: 0.
        on
            Another host for the workers, such as ``flownet.spark.cluster(spark, workers=4)``, instead of ``workers``.
            Default: None.
        ui
            Web UI of the running job: True, a port, ``"HOST:PORT"``, or the result of `serve_ui`. Its address is
            printed to standard error. Default: None, no web UI.

        Returns
        -------
        JobResult
            Records, rates, and the time of each task.

        Raises
        ------
        PlanError
            The dataflow is invalid, or its tasks do not fit. The job was not started.
        OperatorError
            A function of yours raised an exception.
        FlownetError
            Any other error that ended the job: see `flownet.errors`. The job is completely gone.

        Examples
        --------
        >>> numbers = env.from_collection([1, 2, 3]).collect()
        >>> result = env.execute()
        """
        with self.execute_async(workers, on=on, ui=ui) as job:
            return job.wait()

    def execute_async(self, workers: int | None = None, *, on: Host | None = None, ui: Where | Ui | None = None) -> Job:
        """Start the dataflow and return a `Job` at once.

        Parameters
        ----------
        workers, on, ui
            As for `execute`.

        Returns
        -------
        Job
            The job, to watch, cancel and wait for. Use it in a ``with`` block, which cancels a running job at its end.

        Raises
        ------
        PlanError
            The dataflow is invalid, or its tasks do not fit. The job was not started.
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
                f"workers={workers!r} must be a whole number: the first argument of execute() is the number of "
                f"workers, and a job gets its name from Environment(name={workers!r})",
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
"""Settings of a job without checkpoints and restarts."""

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
"""Settings of checkpoints, by the parameter names of `Environment.enable_checkpointing`."""


def _classes_of_checkpoint(settings: dict[str, Any]) -> bytes:
    """Find the classes in the checkpoint that a job resumes from, and encode them for its workers."""
    if settings["checkpoint_storage"] is None:
        return b""
    kept = _flownet.kept_classes(settings["checkpoint_storage"], settings["restore_from"])
    return class_changes.find_classes(kept) if kept else b""


def _frames_of(dataflow: Dataflow, settings: dict[str, Any], on: Host | None) -> Frames:
    """List the DataFrames that the host of the workers reads and writes, and refuse unsupported ones."""
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
    """End running jobs before the interpreter shuts down, which functions must not see."""
    job = sys.modules.get(f"{__package__}.job")
    if job is not None:
        job.end_all()
    if not _flownet.end_functions(_MILLISECONDS_AT_EXIT):
        logging.getLogger("flownet").warning("a function of a job in this process does not return, and ends with it")


_MILLISECONDS_AT_EXIT = 5_000
