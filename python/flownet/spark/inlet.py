"""From a streaming query to a job: the source that serves Spark, and the object of the caller that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from pyspark.sql.types import StructType

from ..errors import FlownetError
from . import wire
from .micro_batches import MicroBatches
from .rendezvous import Membership
from .secure import Keys
from .session import arrow_schema
from .staging_buffer import Attempt, BatchEnd, Name, StagingBuffer
from .stream_end import StreamEnd
from .task_bridge import rows_of
from .wire import Header, Message


class Inlet(StreamEnd):
    """Brings the rows of a streaming query of Spark into a job: ``env.from_iterable(inlet.source)``.

    The query writes with ``df.writeStream.format("flownet").option("endpoint", inlet.endpoint)``: its tasks send their
    rows as Arrow batches to the subtasks of the source, partition by partition. While the job has not taken what came
    before, the tasks wait, and with them the query. The source ends with `close`, when what has come is taken.

    Parameters
    ----------
    schema
        Columns of the query, in DDL such as ``"carrier string, delay int"`` or as a ``StructType``.
    as_dicts
        Whether records are dicts by column name and not tuples. Default: False.
    buffer
        Bytes that wait in each subtask at most, as Arrow, or one partition of a micro-batch if that is more; they lie
        in a nameless file of its worker. Default: ``"64MiB"``.
    address
        Numeric address of this machine that the workers and the executors of Spark reach. Default: ``"127.0.0.1"``.
    tls
        Whether the connections of the workers and the executors with each other and with this process are encrypted:
        ``"off"``, ``"on"`` (by certificates made for it), the folder of own certificates as in the setting of
        `Environment`, or ``"auto"``, which is on if ``address`` is not of loopback. ``FLOWNET_TLS`` goes before it, as
        there. Default: ``"auto"``.
    endpoint
        Path for the handle, a file that must not exist. None makes one in the folder of temporary files.
    name
        What errors of the query call the job. Default: ``"flownet"``.

    Raises
    ------
    ConfigError
        A value does not fit.

    Notes
    -----
    An inlet serves one job, and lives in the process that executes it until `close`.

    A partition of a micro-batch goes to the job as a whole and once, however often Spark tries its task or repeats the
    micro-batch after a restart from the checkpoint. This holds where the rows of a repeated micro-batch fall into the
    same partitions, as everywhere in Structured Streaming whose sources can be read again. It costs that no row goes
    on before its partition is complete. The job itself takes no checkpoints: rows that it has taken are lost with it.

    Event time passes at the end of a micro-batch, to the least over its partitions, less the delay. So the order in
    which partitions arrive makes no row late. Assign timestamps in front of the first exchange.

    Examples
    --------
    >>> with flownet.spark.Inlet("carrier string, delay int") as inlet:  # doctest: +SKIP
    ...     env.from_iterable(inlet.source).filter(lambda flight: flight[1] > 60).print()
    ...     job = env.execute_async(workers=2)
    ...     stream = df.writeStream.format("flownet").option("endpoint", inlet.endpoint)
    ...     query = stream.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
    ...     query.awaitTermination()
    ...     inlet.close()
    ...     job.wait()
    """

    def __init__(
        self,
        schema: str | StructType,
        *,
        as_dicts: bool = False,
        buffer: int | str = "64MiB",
        address: str = "127.0.0.1",
        tls: str = "auto",
        endpoint: str | None = None,
        name: str = "flownet",
    ) -> None:
        super().__init__("inlet", schema, buffer, address, tls, endpoint, name)
        handle = self._hub.handle
        self._source = InletSource(handle.hub, handle.keys, self._columns, self._limit_bytes, as_dicts)

    @property
    def source(self) -> Callable[[int, int], Iterable[Any]]:
        """For `Environment.from_iterable`."""
        return self._source

    def status(self) -> list[dict[str, Any]]:
        """Ask the subtasks what they hold.

        Returns
        -------
        list[dict[str, Any]]
            For each subtask that is there ``subtask``, ``held_bytes``, ``peak_bytes``, ``limit_bytes``, ``waits`` (how
            often a task of Spark had to wait for the job), ``is_waiting`` and ``repeats`` (partitions that came again
            and were left out).
        """
        return self._hub.status()

    def close(self) -> None:
        """End it: the source ends when the job has taken what came; a query that still writes fails.

        Harmless when called again. Returns when the subtasks have ended.
        """
        self._hub.tell_end()
        self._hub.wait_until_left()
        self._hub.close()

    def __enter__(self) -> Inlet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._hub.close()


class InletSource:
    """The part of an `Inlet` that runs in the workers."""

    def __init__(self, hub: str, keys: Keys, columns: StructType, limit_bytes: int, as_dicts: bool) -> None:
        self._hub, self._keys, self._columns = hub, keys, columns
        self._limit, self._as_dicts = limit_bytes, as_dicts

    tells_splits = True
    """To `Environment.from_iterable`: there are marks among the records."""

    def __call__(self, subtask: int, subtasks: int) -> Iterator[Any]:
        """Yield the rows for a subtask until the inlet is closed, and marks that say when event time may pass."""
        schema = arrow_schema(self._columns)
        intake = StagingBuffer(self._limit)
        member = Membership(
            self._hub,
            self._keys,
            subtask,
            subtasks,
            lambda connection: _InletSession(intake, self._columns),
            lambda asked: intake.close(),
        )
        try:
            batches = MicroBatches()
            for event in intake.events():
                if isinstance(event, BatchEnd):
                    yield from batches.end(event.query)
                else:
                    yield from batches.begin(event.name)
                    yield from rows_of(wire.unpack(event.payload, schema), self._as_dicts)
            member.end(0, 0)
        finally:
            intake.discard()
            member.close()


class _InletSession:
    """Serves a task of Spark that writes: one partition at a time."""

    def __init__(self, intake: StagingBuffer, columns: StructType) -> None:
        self._intake = intake
        self._schema = arrow_schema(columns)
        self._attempt: Attempt | None = None

    def answer(self, header: Header, payload: bytes) -> Message:
        match header["op"]:
            case "begin" if self._attempt is None:
                name = Name(str(header["query"]), int(header["batch"]), int(header["partition"]))
                self._attempt = self._intake.begin(name)
                return {"is_taken": self._attempt is None}, b""
            case "rows" if self._attempt is not None:
                # Looked at now, while the sender can still be told.
                wire.unpack(payload, self._schema)
                self._intake.add(self._attempt, payload)
                return {"op": "go on"}, b""
            case "end" if self._attempt is not None:
                is_first = self._intake.complete(self._attempt)
                self._attempt = None
                return {"is_first": is_first}, b""
            case "committed":
                self._intake.end_batch(BatchEnd(str(header["query"]), int(header["batch"])))
                return {"op": "go on"}, b""
            case "status":
                return self._intake.status(), b""
            case other:
                raise FlownetError(f"no such request now: {other!r}")

    def gone(self) -> None:
        if self._attempt is not None:
            self._intake.give_up(self._attempt)
