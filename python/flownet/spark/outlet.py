"""From a job to a streaming query: the sink that serves Spark, and the object of the caller that belongs to it."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pyspark.sql.types import StructType

from ..api.context import TaskContext
from ..api.functions import Sink
from ..errors import FlownetError
from .committed_batches import CommittedBatches
from .frames import to_batch
from .rendezvous import Membership
from .secure import Keys
from .session import arrow_schema
from .stream_end import StreamEnd
from .wire import Header, Message


class Outlet(StreamEnd):
    """Gives the records of a job to a streaming query of Spark: ``stream.sink_to(outlet.sink)``.

    Each subtask of the sink keeps its records as Arrow batches, in a buffer of its own, and serves them on a port of
    its worker. The query reads them with ``spark.readStream.format("flownet").option("endpoint", outlet.endpoint)``,
    and a batch leaves the buffer when the query has committed it. A full buffer makes the sink wait, and so the job:
    it runs as fast as the query takes. When the input of the job ends, the job ends as soon as a query has committed
    all and been told the end; the query stays, without new rows.

    Parameters
    ----------
    schema
        Columns, in DDL such as ``"carrier string, late long"`` or as a ``StructType``. Records are tuples, dicts by
        column name, or the value itself if there is one column.
    buffer
        Bytes that each subtask holds at most, as Arrow, or one batch of 8192 records if that is more; up to 8191
        records besides wait to become a batch. Default: ``"64MiB"``.
    address
        Numeric address of this machine that the workers, and the driver of Spark, reach. Default: ``"127.0.0.1"``,
        for workers and a Spark on this machine.
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
    An outlet serves one job, and lives in the process that executes it until `close`. The handle is a file with mode
    0600 and holds a secret; whoever plans the query must be able to read it.

    A batch is read again as often as Spark repeats a micro-batch, always with the same rows, so a query with a
    checkpoint sees each record once, also after a restart. A checkpoint that asks for what was committed before, or
    that is of another job, is an error. The job itself takes no checkpoints: if it fails, what its buffers held is
    lost, and the query fails with an error that names the job, the subtask and its address.

    Examples
    --------
    >>> with flownet.spark.Outlet("word string, n long") as outlet:  # doctest: +SKIP
    ...     env.from_collection(["to", "be", "to"]).key_by(lambda word: word).count().sink_to(outlet.sink)
    ...     job = env.execute_async(workers=2)
    ...     rows = spark.readStream.format("flownet").option("endpoint", outlet.endpoint).load()
    ...     query = rows.writeStream.format("parquet").option("path", "words").start()
    """

    def __init__(
        self,
        schema: str | StructType,
        *,
        buffer: int | str = "64MiB",
        address: str = "127.0.0.1",
        tls: str = "auto",
        endpoint: str | None = None,
        name: str = "flownet",
    ) -> None:
        super().__init__("outlet", schema, buffer, address, tls, endpoint, name)
        handle = self._hub.handle
        self._sink = OutletSink(handle.hub, handle.keys, self._columns, self._limit_bytes)

    @property
    def sink(self) -> Sink[Any]:
        """For `Stream.sink_to`."""
        return self._sink

    def status(self) -> list[dict[str, Any]]:
        """Ask the subtasks what they hold.

        Returns
        -------
        list[dict[str, Any]]
            For each subtask that is there ``subtask``, ``held_bytes``, ``peak_bytes``, ``limit_bytes``, ``waits`` (how
            often the sink had to wait for the query) and ``is_waiting``.
        """
        return self._hub.status()

    def close(self) -> None:
        """End it: a job that still writes fails, a query that still reads too. Harmless when called again."""
        self._hub.close()

    def __enter__(self) -> Outlet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class OutletSink(Sink[Any]):
    """The part of an `Outlet` that runs in the workers."""

    _member: Membership | None = None

    def __init__(self, hub: str, keys: Keys, columns: StructType, limit_bytes: int) -> None:
        self._hub, self._keys, self._columns, self._limit = hub, keys, columns, limit_bytes

    def open(self, ctx: TaskContext) -> None:
        """Open the port of the subtask."""
        schema = arrow_schema(self._columns)
        self._shelf = shelf = CommittedBatches(self._limit, lambda records: to_batch(records, schema))
        self._member = Membership(
            self._hub,
            self._keys,
            ctx.subtask,
            ctx.parallelism,
            lambda connection: _OutletSession(shelf),
            lambda asked: shelf.close("the outlet was closed before Spark had taken all records"),
        )

    def write(self, records: list[Any]) -> None:
        """Put records on the shelf; waits while it is full."""
        self._shelf.put(records)

    def flush(self) -> None:
        """Wait until Spark has committed all."""
        assert self._member is not None
        self._member.end(*self._shelf.finish())

    def close(self) -> None:
        """Close the port."""
        if self._member is not None:
            self._member.close()


class _OutletSession:
    """Serves a reader of Spark."""

    def __init__(self, shelf: CommittedBatches) -> None:
        self._shelf = shelf

    def answer(self, header: Header, payload: bytes) -> Message:
        match header["op"]:
            case "latest":
                return {"next": self._shelf.latest(), "final": self._shelf.final()}, b""
            case "plan":
                return {"has_rows": self._shelf.has_rows(int(header["start"]), int(header["end"]))}, b""
            case "read":
                batch, start = self._shelf.read(int(header["start"]), int(header["end"]))
                return {"next": start}, b"" if batch is None else batch.serialize().to_pybytes()
            case "commit":
                self._shelf.commit(int(header["end"]))
                return {"final": self._shelf.final()}, b""
            case "status":
                return self._shelf.status(), b""
            case other:
                raise FlownetError(f"no such request: {other!r}")

    def gone(self) -> None:
        pass
