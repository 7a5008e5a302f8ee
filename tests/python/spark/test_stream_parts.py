"""The parts of streams that need no Spark: the wire, what an outlet holds and what an inlet takes."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import flownet as fn
from flownet import _flownet
from flownet.errors import ConnectionLostError, FlownetError

from .conftest import eventually, sockets

if TYPE_CHECKING:
    from flownet.spark.committed_batches import CommittedBatches
    from flownet.spark.secure import Keys
    from flownet.spark.wire import Server

SECRET = b"s" * 32


@pytest.fixture(params=["plain", "tls"])
def keys(request: pytest.FixtureRequest) -> Keys:
    from flownet.spark.secure import Keys

    return Keys(SECRET, certificates() if request.param == "tls" else None)


def certificates() -> str:
    made = _flownet.certificates("on", "127.0.0.1")
    assert made is not None
    return made


class Echo:
    """Answers with what it was asked, or refuses."""

    def answer(self, header: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        if header["op"] == "refuse":
            raise FlownetError("not today")
        return header, payload

    def gone(self) -> None:
        pass


@pytest.fixture
def server(keys: Keys) -> Iterator[Server]:
    from flownet.spark import wire

    before = sockets()
    server = wire.Server("127.0.0.1", keys, lambda connection: Echo())
    yield server
    server.close()
    assert sockets() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flownet-")]


def raw(server: Server) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_a_request_has_an_answer_and_a_refusal_leaves_the_connection_in_use(server: Server, keys: Keys) -> None:
    from flownet.spark import wire

    with wire.dial(server.address, keys) as connection:
        assert connection.call({"op": "echo"}, b"x" * 100_000) == ({"op": "echo"}, b"x" * 100_000)
        with pytest.raises(FlownetError, match="not today"):
            connection.call({"op": "refuse"})
        with pytest.raises(FlownetError, match="no such request: KeyError: 'op'"):
            connection.call({})
        assert connection.call({"op": "echo"}) == ({"op": "echo"}, b"")


def test_a_wrong_secret_is_refused_by_either_end(server: Server, keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    from flownet.spark import wire
    from flownet.spark.secure import Keys

    with pytest.raises(ConnectionLostError, match="the secret does not fit"):
        wire.dial(server.address, Keys(b"t" * 32, keys.certificates))
    eventually("a line", lambda: "its secret does not fit" in caplog.text)
    if keys.certificates:
        return
    with raw(server) as impostor:
        impostor.sendall(wire._MAGIC)
        impostor.recv(len(wire._MAGIC) + 32)
        impostor.sendall(bytes(64))
        assert impostor.recv(1) == b""


def test_both_ends_say_who_refuses_a_certificate_and_a_plain_peer(caplog: pytest.LogCaptureFixture) -> None:
    from flownet.spark import wire
    from flownet.spark.secure import Keys

    ours, foreign, plain = Keys(SECRET, certificates()), Keys(SECRET, certificates()), Keys(SECRET)
    with contextlib.closing(wire.Server("127.0.0.1", ours, lambda connection: Echo())) as server:
        with pytest.raises(ConnectionLostError, match="its certificate is refused: another authority issued it"):
            wire.dial(server.address, foreign)
        eventually("a line", lambda: "it refuses our certificate: another authority issued it" in caplog.text)
        # One that takes the server's certificate, but shows another.
        mixed = Keys(SECRET, f"{foreign.certificates}{ours.certificates}".replace(first_blocks(ours), ""))
        with pytest.raises(ConnectionLostError, match="it refuses our certificate: another authority issued it"):
            wire.dial(server.address, mixed)
        eventually("a line", lambda: "its certificate is refused: another authority issued it" in caplog.text)
        with raw(server) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            eventually("a line", lambda: "it does not speak TLS" in caplog.text)
        # Neither a stranger's first byte nor a plain end of ours leaves anybody waiting for the rest.
        with raw(server) as stranger:
            stranger.sendall(b"G")
            eventually("a line", lambda: caplog.text.count("it does not speak TLS") == 2)
            assert stranger.recv(7)[0] == 21, "an alert"
        with pytest.raises(ConnectionLostError, match="it speaks TLS, which is off here"):
            wire.dial(server.address, plain)
        eventually("a line", lambda: caplog.text.count("it does not speak TLS") == 3)
        assert len(caplog.records) == 5, "one line each"
    with contextlib.closing(wire.Server("127.0.0.1", plain, lambda connection: Echo())) as server:
        with pytest.raises(ConnectionLostError, match="it does not speak TLS"):
            wire.dial(server.address, ours)
        eventually("a line", lambda: "it speaks TLS, which is off here" in caplog.records[-1].getMessage())
        assert len(caplog.records) == 6, "one line each"


@pytest.mark.parametrize("end", ["Outlet", "Inlet"])
def test_a_variable_of_the_process_has_the_ends_of_streams_encrypt(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    from flownet import spark

    schema = StructType([StructField("number", LongType())])
    for variable, given, is_on in ((None, "auto", False), ("on", "auto", True), ("off", "on", False)):
        if variable is not None:
            monkeypatch.setenv("FLOWNET_TLS", variable)
        with getattr(spark, end)(schema, tls=given) as stream:
            assert (stream._hub.handle.keys.certificates is not None) == is_on, variable


def first_blocks(keys: Keys) -> str:
    """The certificate and its key."""
    assert keys.certificates is not None
    return keys.certificates[: keys.certificates.index("-----END PRIVATE KEY-----\n")] + "-----END PRIVATE KEY-----\n"


def test_one_thread_sends_while_another_waits_for_bytes(server: Server, keys: Keys) -> None:
    from flownet.spark import wire

    with wire.dial(server.address, keys) as connection:
        received: list[int] = []

        def read() -> None:
            while len(received) < 200:
                message = connection.receive()
                assert message is not None
                assert message[1] == bytes([len(received)]) * 100_000
                received.append(message[0]["n"])

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(200):
            connection.send({"op": "echo", "n": number}, bytes([number]) * 100_000)
        reader.join()
        assert received == list(range(200))


@pytest.mark.parametrize(
    "message",
    [
        struct.pack("!II", 0xFFFFFFFF, 0),
        struct.pack("!II", 2, 0xFFFFFFFF) + b"{}",
        struct.pack("!II", 4, 0) + b"null",
        struct.pack("!II", 9, 0) + b"[" * 9,
        struct.pack("!II", 100_000, 0) + b"[" * 100_000,
        struct.pack("!II", 4, 0) + b"\xff\xfe\xfd\xfc",
        struct.pack("!II", 0, 0),
    ],
)
def test_bytes_that_are_no_message_end_the_connection(server: Server, keys: Keys, message: bytes) -> None:
    from flownet.spark import wire

    with wire.dial(server.address, keys) as connection:
        connection._channel.sendall(message)
        with pytest.raises(ConnectionLostError):
            connection.call({"op": "echo"})
    with wire.dial(server.address, keys) as connection:
        assert connection.call({"op": "echo"})[0] == {"op": "echo"}


def test_strangers_and_their_bytes_do_not_hold_up_others(server: Server, keys: Keys) -> None:
    from flownet.spark import wire

    with raw(server), raw(server) as noisy:
        noisy.sendall(os.urandom(100_000))
        with wire.dial(server.address, keys) as connection:
            assert connection.call({"op": "echo"})[0] == {"op": "echo"}


def test_a_payload_that_is_no_batch_of_the_schema_is_an_error() -> None:
    from flownet.spark import wire

    schema = pyarrow.schema([("word", "string")])
    batch = pyarrow.record_batch({"word": ["to", "be"]}, schema=schema)
    [payload] = wire.pack(batch)
    assert wire.unpack(payload, schema) == batch
    for broken in (b"", b"\xff" * 64, payload[: len(payload) // 2]):
        with pytest.raises(FlownetError, match="are no batch with the columns"):
            wire.unpack(broken, schema)


def test_a_large_batch_travels_in_parts() -> None:
    from flownet.spark import wire

    batch = pyarrow.record_batch({"number": pyarrow.array(range(2_000_000), "int64")})
    payloads = list(wire.pack(batch))
    assert max(map(len, payloads)) < 5 << 20
    joined = pyarrow.Table.from_batches([wire.unpack(payload, batch.schema) for payload in payloads])
    assert joined == pyarrow.Table.from_batches([batch])


def a_shelf(limit_bytes: int) -> CommittedBatches:
    from flownet.spark.committed_batches import CommittedBatches

    def to_batch(records: list[Any]) -> pyarrow.RecordBatch:
        return pyarrow.record_batch({"number": pyarrow.array(records, "int64")})

    return CommittedBatches(limit_bytes, to_batch)


def taken(shelf: CommittedBatches, start: int, end: int) -> list[int]:
    found = list[int]()
    while start < end:
        batch, start = shelf.read(start, end)
        found += [] if batch is None else batch.column(0).to_pylist()
    return found


def test_a_range_is_read_again_with_the_same_rows_until_it_is_committed() -> None:
    shelf = a_shelf(1000)
    shelf.put([1])
    shelf.put([2])
    assert shelf.latest() == 1
    shelf.put([3])
    assert shelf.latest() == 2
    shelf.put([4])
    assert taken(shelf, 0, 2) == taken(shelf, 0, 2) == [1, 2, 3]
    shelf.commit(1)
    assert shelf.latest() == 3
    assert taken(shelf, 1, 3) == [3, 4]
    with pytest.raises(FlownetError, match="batches 0 to 1 are asked for, but Spark has committed those below 1"):
        shelf.read(0, 2)
    with pytest.raises(FlownetError, match="batches 1 to 6 are asked for, but the newest is 2"):
        shelf.read(1, 7)
    with pytest.raises(FlownetError, match="commit up to batch 9"):
        shelf.commit(9)


def test_a_full_shelf_moves_its_number_so_that_spark_commits() -> None:
    batch = list(range(8192))
    size = 8 * len(batch)
    shelf = a_shelf(size)
    shelf.put(batch)
    writer = threading.Thread(target=shelf.put, args=(batch,))
    writer.start()
    eventually("a writer that waits", lambda: shelf.status()["is_waiting"])
    assert shelf.latest() == 1
    assert shelf.latest() == 2
    assert not shelf.has_rows(1, 2)
    shelf.commit(1)
    writer.join()
    assert shelf.status() == {
        "held_bytes": size,
        "peak_bytes": size,
        "limit_bytes": size,
        "waits": 1,
        "is_waiting": False,
    }
    assert taken(shelf, 1, 3) == batch


def test_records_that_are_too_few_for_a_batch_wait_for_room_without_a_writer() -> None:
    shelf = a_shelf(16)
    shelf.put([1, 2])
    assert shelf.latest() == 1
    shelf.put([3])
    assert shelf.latest() == 2
    assert not shelf.has_rows(1, 2)
    shelf.commit(1)
    assert shelf.latest() == 3
    assert taken(shelf, 2, 3) == [3]


def test_a_shelf_is_finished_when_all_is_committed_and_the_end_is_known() -> None:
    shelf = a_shelf(1000)
    shelf.put([1])
    found = list[tuple[int, int]]()
    writer = threading.Thread(target=lambda: found.append(shelf.finish()))
    writer.start()
    assert shelf.latest() == 1
    eventually("a number that moves without a batch", lambda: shelf.latest() > 1)
    assert shelf.final() is None
    shelf.commit(1)
    assert writer.is_alive()
    assert shelf.final() == (2, 1)
    writer.join()
    assert found == [(2, 1)]


def test_a_record_that_does_not_fit_is_told_to_the_query_and_to_the_job() -> None:
    from flownet.spark.committed_batches import CommittedBatches
    from flownet.spark.frames import to_batch

    shelf = CommittedBatches(1000, lambda records: to_batch(records, pyarrow.schema([("number", "int64")])))
    shelf.put(["one"])
    with pytest.raises(FlownetError, match="record 'one' does not fit column 'number' of type int64"):
        shelf.latest()
    with pytest.raises(TypeError, match="record 'one' does not fit"):
        shelf.finish()


def test_a_closed_shelf_lets_nobody_wait() -> None:
    shelf = a_shelf(8)
    shelf.put([1])
    shelf.close("the end")
    for wait in (lambda: shelf.put([2]), shelf.finish):
        with pytest.raises(FlownetError, match="the end"):
            wait()


def test_a_partition_is_passed_on_once_and_as_a_whole() -> None:
    from flownet.spark.staging_buffer import Name, Rows, StagingBuffer

    intake = StagingBuffer(1000)
    name = Name("query", 3, 0)
    first, second = intake.begin(name), intake.begin(name)
    assert first is not None
    assert second is not None
    intake.add(first, b"one")
    intake.add(second, b"one")
    intake.give_up(first)
    third = intake.begin(name)
    assert third is not None
    intake.add(third, b"one")
    intake.add(third, b"two")
    assert intake.complete(third)
    assert not intake.complete(second)
    assert intake.begin(name) is None
    assert intake.begin(Name("query", 2, 5)) is None, "a straggler of a micro-batch that is over"
    other = intake.begin(Name("other", 0, 0))
    assert other is not None
    intake.close()
    with pytest.raises(FlownetError, match="the inlet is closed"):
        intake.complete(other)
    assert [event.payload for event in intake.events() if isinstance(event, Rows)] == [b"one", b"two"]
    intake.discard()
    assert intake.status()["held_bytes"] == 0
    assert all(attempt.file.closed for attempt in (first, second, third, other))


def test_partitions_wait_for_room_and_the_eldest_gets_on() -> None:
    from flownet.spark.staging_buffer import Name, Rows, StagingBuffer

    intake = StagingBuffer(10)
    eldest, younger = intake.begin(Name("query", 0, 0)), intake.begin(Name("query", 0, 1))
    assert eldest is not None
    assert younger is not None
    intake.add(younger, bytes(6))
    intake.add(eldest, bytes(6))  # beyond the limit, or nothing would ever be complete
    waiting = threading.Thread(target=intake.add, args=(younger, bytes(6)))
    waiting.start()
    eventually("a partition that waits", lambda: intake.status()["is_waiting"])
    assert intake.complete(eldest)
    payloads = (event.payload for event in intake.events() if isinstance(event, Rows))
    assert next(payloads) == bytes(6)
    assert waiting.is_alive()
    rest = list[bytes]()
    reader = threading.Thread(target=lambda: rest.extend(payloads))
    reader.start()
    waiting.join()
    assert intake.complete(younger)
    intake.close()
    reader.join()
    assert rest == [bytes(6), bytes(6)]
    assert intake.status() | {"repeats": 0} == {
        "held_bytes": 0,
        "peak_bytes": 12,
        "limit_bytes": 10,
        "waits": 1,
        "is_waiting": False,
        "repeats": 0,
    }


def test_the_end_of_a_micro_batch_comes_behind_its_partitions_and_once() -> None:
    from flownet.spark.staging_buffer import BatchEnd, Name, Rows, StagingBuffer

    intake = StagingBuffer(1000)
    ends = [BatchEnd("query", 3), BatchEnd("query", 4), BatchEnd("other", 0)]
    for name in (Name("query", 3, 1), Name("query", 3, 0)):
        attempt = intake.begin(name)
        assert attempt is not None
        intake.add(attempt, b"rows")
        assert intake.complete(attempt)
    for end in (ends[0], ends[0], ends[1], BatchEnd("query", 3), ends[2]):
        intake.end_batch(end)
    intake.close()
    rows = [Rows(Name("query", 3, 1), b"rows"), Rows(Name("query", 3, 0), b"rows")]
    assert list(intake.events()) == [*rows, *ends]


SECOND = 1000


def marked_rows(events: list[tuple[str, int, list[int]]]) -> Iterator[Any]:
    """Yield the times of partitions, with the marks of their micro-batches; no times end a micro-batch."""
    from flownet.spark.micro_batches import MicroBatches
    from flownet.spark.staging_buffer import Name

    batches = MicroBatches()
    for query, partition, times in events:
        yield from batches.begin(Name(query, 0, partition)) if times else batches.end(query)
        for time_ms in times:
            # Watermarks are made of every record that comes so late after another, were they not held.
            time.sleep(0.25 if time_ms == times[0] else 0)
            yield time_ms


class Marked:
    """A source with marks, as an inlet has."""

    tells_splits = True

    def __init__(self, of_subtask: list[list[tuple[str, int, list[int]]]]) -> None:
        self._of_subtask = of_subtask

    def __call__(self, subtask: int, subtasks: int) -> Iterator[Any]:
        return marked_rows(self._of_subtask[subtask])


def late_and_counted(of_subtask: list[list[tuple[str, int, list[int]]]]) -> tuple[int, dict[int, int]]:
    """Count records by windows of ten seconds, of which a late record would be missing."""
    env = fn.Environment(parallelism=len(of_subtask), buffer_timeout="1ms")
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time_ms: time_ms)
    timed = env.from_iterable(Marked(of_subtask)).assign_timestamps_and_watermarks(strategy)
    windows = timed.key_by(lambda time_ms: time_ms // (10 * SECOND)).window(fn.Tumbling("10s"))
    counts = windows.count().collect()
    result = env.execute()
    found = Counter[int]()
    for key, count in counts:
        found[key] += count
    return sum(task.late_records for task in result.tasks), dict(found)


def test_the_order_of_partitions_in_a_micro_batch_makes_nothing_late() -> None:
    newest_first = [
        ("q", partition, [start * SECOND, start * SECOND + 1]) for partition, start in enumerate((50, 30, 10))
    ]
    end = ("q", -1, list[int]())
    assert late_and_counted([[*newest_first, end]]) == (0, {5: 2, 3: 2, 1: 2})


def test_event_time_passes_at_the_end_of_a_micro_batch_to_the_least_over_its_partitions() -> None:
    end = ("q", -1, list[int]())
    batches = [("q", 0, [50 * SECOND]), ("q", 1, [30 * SECOND]), end, ("q", 0, [31 * SECOND]), ("q", 1, [10 * SECOND])]
    # The second is behind the least, 30 s, and its window is over.
    assert late_and_counted([[*batches, end]]) == (1, {5: 1, 3: 2})


def test_a_subtask_without_rows_of_a_micro_batch_holds_up_no_other() -> None:
    end = ("q", -1, list[int]())
    busy = [("q", 0, [50 * SECOND]), end, ("q", 0, [90 * SECOND]), end, ("q", 0, [10 * SECOND]), end]
    for quiet in ([end, end, end], [("q", 1, [40 * SECOND]), end, end, end]):
        late, counted = late_and_counted([busy, quiet])
        assert (late, counted[9]) == (1, 1), "event time has passed 10 s"


def test_two_queries_hold_event_time_each_for_itself() -> None:
    ends = [(query, -1, list[int]()) for query in "ab"]
    rows = [("a", 0, [50 * SECOND]), ("b", 0, [20 * SECOND]), ends[0], ("b", 1, [10 * SECOND]), ends[1]]
    assert late_and_counted([rows]) == (0, {5: 1, 2: 1, 1: 1})
