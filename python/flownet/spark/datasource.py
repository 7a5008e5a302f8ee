"""The format ``flownet`` of Structured Streaming: Spark's end of outlets and inlets.

Who calls what: Spark makes the reader once in a Python process of its own on the driver's machine, which asks for
offsets, plans and commits as long as the query runs, and once more to pickle it for the tasks that read. The writer is
pickled for the tasks likewise. Both read the handle where they are made; tasks never do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass

import pyarrow
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ..errors import ConfigError, ConnectionLostError, FlownetError
from . import wire
from .rendezvous import Handle, Kind
from .session import arrow_schema
from .wire import Connection, Header


class FlownetDataSource(DataSource):
    """Connects a query with the outlet or inlet that its option ``endpoint`` names. Registered by `register`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        unknown = sorted({name.lower() for name in options} - {"endpoint", *_OF_SPARK})
        if unknown:
            raise ConfigError(f"format 'flownet' has no option {unknown[0]!r}; it has 'endpoint'", setting=unknown[0])
        if not options.get("endpoint"):
            text = "format 'flownet' needs .option('endpoint', outlet.endpoint), or inlet.endpoint to write"
            raise ConfigError(text, setting="endpoint")

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "flownet"

    def schema(self) -> StructType:
        """Return the columns of the outlet."""
        return self._handle("outlet").columns

    def streamReader(self, schema: StructType) -> JobReader:
        """Make what reads from an outlet."""
        handle = self._handle("outlet")
        return JobReader(handle, _same_columns(handle, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> JobWriter:
        """Make what writes to an inlet."""
        handle = self._handle("inlet")
        return JobWriter(handle, _same_columns(handle, schema))

    def _handle(self, kind: Kind) -> Handle:
        handle = Handle.load(str(self.options["endpoint"]))
        if handle.kind != kind:
            way_out = "use writeStream" if kind == "outlet" else "use readStream"
            text = f"endpoint {self.options['endpoint']!r} is of an {handle.kind}, not of an {kind}: {way_out}"
            raise ConfigError(text, setting="endpoint")
        return handle


@dataclass
class Range(InputPartition):
    """Batches of one subtask."""

    subtask: int
    subtasks: int
    address: str
    start: int
    end: int


class JobReader(DataSourceStreamReader):
    """Reads from an outlet. An offset is the run of the job and, by subtask, the number of the next batch.

    Parameters
    ----------
    handle
        Of the outlet.
    schema
        Of the batches.
    """

    def __init__(self, handle: Handle, schema: pyarrow.Schema) -> None:
        self._handle, self._schema = handle, schema
        self._links = _Links(handle)
        self._seen: Header = {}
        self._final = dict[int, tuple[int, int]]()

    def initialOffset(self) -> Header:
        """Return the offset before everything."""
        return {"run": self._where()["run"]}

    def latestOffset(self) -> Header:  # type: ignore[override]  # as before Spark 4.2: the outlet's buffer is the limit
        """Return the offset behind everything that is there."""
        where = self._where()
        offset: Header = {"run": where["run"]}
        for subtask in range(where["subtasks"] or 0):
            answer = self._ask(where, subtask, {"op": "latest"})
            if number := self._final[subtask][0] if answer is None else answer["next"]:
                offset[str(subtask)] = number
        return offset

    def partitions(self, start: Header, end: Header) -> Sequence[InputPartition]:
        """Say which subtask has which part of a range."""
        where = self._where()
        self._check_run(where, start, end)
        found = list[InputPartition]()
        for name, number in end.items():
            first = start.get(name, 0)
            if name == "run" or first >= number:
                continue
            subtask = int(name)
            answer = self._ask(where, subtask, {"op": "plan", "start": first, "end": number})
            if answer is None:
                self._check_gone(subtask, first)
            elif answer["has_rows"]:
                found.append(Range(subtask, where["subtasks"], where["members"][name], first, number))
        return found

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the batches of a range."""
        assert isinstance(partition, Range)
        try:
            with wire.dial(partition.address, self._handle.keys) as connection:
                start = partition.start
                while start < partition.end:
                    header, payload = connection.call({"op": "read", "start": start, "end": partition.end})
                    if payload:
                        yield wire.unpack(payload, self._schema)
                    start = int(header["next"])
        except ConnectionLostError as error:
            raise self._links.lost(partition.subtask, partition.subtasks, partition.address) from error

    def commit(self, end: Header) -> None:
        """Let the outlet forget what is below an offset."""
        where = self._where()
        self._check_run(where, end)
        for name, number in end.items():
            if name != "run":
                self._ask(where, int(name), {"op": "commit", "end": number})

    def stop(self) -> None:
        """Close the connections."""
        self._links.close()

    def _where(self) -> Header:
        """Ask for the subtasks. Not any more when all have ended: the outlet may be closed then."""
        if not self._seen or len(self._final) != self._seen["subtasks"]:
            self._seen = self._links.where()
        return self._seen

    def _ask(self, where: Header, subtask: int, request: Header) -> Header | None:
        """Ask a subtask; None if it has ended before, and then `_final` has its last numbers."""
        name = str(subtask)
        if subtask in self._final:
            return None
        if name in where["members"]:
            address = where["members"][name]
            try:
                answer = self._links.call(address, request)
            except ConnectionLostError as error:
                # It may just have ended, and says so to the hub before it closes its port.
                where = self._links.where()
                if name not in where["ended"]:
                    raise self._links.lost(subtask, where["subtasks"], address) from error
            except FlownetError as error:
                raise FlownetError(f"{self._links.place(subtask, where['subtasks'], address)}: {error}") from error
            else:
                if answer.get("final"):
                    self._final[subtask] = answer["final"][0], answer["final"][1]
                return answer
        if name in where["ended"]:
            self._final[subtask] = where["ended"][name][0], where["ended"][name][1]
            return None
        if name in where["lost"]:
            raise self._links.lost(subtask, where["subtasks"], where["lost"][name])
        # Not there yet: it has given nothing.
        return {"next": 0, "has_rows": False}

    def _check_gone(self, subtask: int, first: int) -> None:
        data = self._final[subtask][1]
        if first < data:
            raise FlownetError(
                f"job {self._handle.name!r}: batches from {first} of subtask {subtask + 1} are asked for, but Spark "
                f"has committed all {data} and they are gone: the checkpoint is older than what the job has given"
            )

    def _check_run(self, where: Header, *offsets: Header) -> None:
        if any(offset["run"] != where["run"] for offset in offsets):
            raise FlownetError(
                f"job {self._handle.name!r}: the checkpoint belongs to another run of the job, whose rows are gone; "
                "start the query with a new checkpoint"
            )


@dataclass
class WriteMessage(WriterCommitMessage):
    """A partition that a subtask has taken."""

    query: str
    subtasks: int


class JobWriter(DataSourceStreamArrowWriter):
    """Writes to an inlet.

    Parameters
    ----------
    handle
        Of the inlet.
    schema
        Of the batches.
    """

    def __init__(self, handle: Handle, schema: pyarrow.Schema) -> None:
        self._handle, self._schema = handle, schema

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Send a partition to its subtask; waits while the job is busy."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise FlownetError("Spark does not say to which micro-batch this task belongs: format 'flownet' needs that")
        name = {"query": query, "batch": int(batch), "partition": context.partitionId()}
        subtask, subtasks, address = self._place_of(context.partitionId())
        try:
            with wire.dial(address, self._handle.keys) as connection:
                self._send(connection, name, iterator)
        except ConnectionLostError as error:
            raise _Links(self._handle).lost(subtask, subtasks, address) from error
        return WriteMessage(query, subtasks)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Tell every subtask that the micro-batch is complete, so that event time may pass."""
        written = next((message for message in messages if isinstance(message, WriteMessage)), None)
        for subtask in range(written.subtasks if written is not None else 0):
            assert written is not None
            address = self._place_of(subtask)[2]
            try:
                with wire.dial(address, self._handle.keys) as connection:
                    connection.call({"op": "committed", "query": written.query, "batch": batchId})
            except ConnectionLostError as error:
                raise _Links(self._handle).lost(subtask, written.subtasks, address) from error

    def _send(self, connection: Connection, name: Header, batches: Iterator[pyarrow.RecordBatch]) -> None:
        is_taken = connection.call({"op": "begin", **name})[0]["is_taken"]
        for batch in batches:
            if is_taken:
                continue  # read to its end, or Spark does not use the process again
            if batch.schema != self._schema:
                [batch] = pyarrow.Table.from_batches([batch]).cast(self._schema).combine_chunks().to_batches() or [None]
            if batch is not None:
                for payload in wire.pack(batch):
                    connection.call({"op": "rows"}, payload)
        if not is_taken:
            connection.call({"op": "end"})

    def _place_of(self, partition: int) -> tuple[int, int, str]:
        """Find the subtask for a partition: always the same, or it could not know what it has taken."""
        links = _Links(self._handle)
        deadline = time.monotonic() + _START_SECONDS
        try:
            while True:
                where = links.where()
                if where["subtasks"] is not None:
                    subtask = partition % where["subtasks"]
                    if (name := str(subtask)) in where["members"]:
                        return subtask, where["subtasks"], where["members"][name]
                    if name in where["ended"]:
                        raise FlownetError(f"job {self._handle.name!r}: the inlet is closed, it takes no more rows")
                    if name in where["lost"]:
                        raise links.lost(subtask, where["subtasks"], where["lost"][name])
                if time.monotonic() >= deadline:
                    raise FlownetError(
                        f"job {self._handle.name!r} has not begun to read its inlet within {_START_SECONDS:.0f} s"
                    )
                time.sleep(_LOOK_SECONDS)
        finally:
            links.close()


class _Links:
    """Connections with the hub and the subtasks, kept: a query asks many times a second."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._open = dict[str, Connection]()

    def where(self) -> Header:
        """Ask the hub who and where the subtasks are."""
        try:
            return self.call(self._handle.hub, {"op": "where"})
        except ConnectionLostError as error:
            raise ConnectionLostError(
                f"job {self._handle.name!r} is gone, nobody answers at its endpoint {self._handle.hub} "
                f"({error.reason}): its outlet or inlet was closed, or its process has ended",
                peer=self._handle.hub,
                reason=error.reason,
            ) from error

    def call(self, address: str, request: Header) -> Header:
        """Ask a server; a connection that has broken meanwhile is made anew."""
        if (known := self._open.pop(address, None)) is not None:
            try:
                answer = known.call(request)[0]
            except ConnectionLostError:
                known.close()
            except BaseException:
                known.close()
                raise
            else:
                self._open[address] = known
                return answer
        connection = wire.dial(address, self._handle.keys)
        try:
            answer = connection.call(request)[0]
        except BaseException:
            connection.close()
            raise
        self._open[address] = connection
        return answer

    def place(self, subtask: int, subtasks: int, address: str) -> str:
        """Name a subtask."""
        return f"job {self._handle.name!r}, subtask {subtask + 1} of {subtasks} at {address}"

    def lost(self, subtask: int, subtasks: int, address: str) -> ConnectionLostError:
        """Make the error for a subtask that died."""
        return ConnectionLostError(
            f"{self.place(subtask, subtasks, address)} is lost, with the rows it held: the job failed or was "
            "cancelled. Run it again with a new endpoint, and the query with a new checkpoint",
            peer=address,
            reason="lost",
        )

    def close(self) -> None:
        """Close the connections."""
        while self._open:
            self._open.popitem()[1].close()


def _same_columns(handle: Handle, schema: StructType) -> pyarrow.Schema:
    """Make the schema of the batches; it must be that of the job."""
    ours = arrow_schema(handle.columns)
    theirs = arrow_schema(schema)
    if [(field.name, field.type) for field in ours] != [(field.name, field.type) for field in theirs]:
        raise ConfigError(
            f"the query has the columns {schema.simpleString()}, the {handle.kind} of job {handle.name!r} has "
            f"{handle.columns.simpleString()}",
            setting="schema",
        )
    return theirs


_OF_SPARK = {"checkpointlocation", "path", "queryname"}
"""Options that Spark passes on and that are no concern of ours."""
_START_SECONDS = 60.0
_LOOK_SECONDS = 0.05
