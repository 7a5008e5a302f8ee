"""The workload ``live-counts``: a live stream counted by key, by flownet or by Spark's micro-batches.

Both read the same lines from the same socket, ``TIME KEY``, where TIME is the moment at which the line was due. What is
measured is the time from there until the count that includes the line is out, so a source that falls behind counts as
latency. The first half of the time is not counted: both engines warm up.
"""

from __future__ import annotations

import random
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ...api.environment import Environment
from ...errors import FlownetError
from ...internal.extras import need
from ...internal.parameter import Parameter, Value
from ..workload import Figure, Measurement, RunPlace, Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _Stream:
    """What is sent: so many lines a second, for so long, of so many keys."""

    rate: float
    seconds: float
    keys: int
    seed: int

    @property
    def lines(self) -> int:
        return int(self.rate * self.seconds)


class _Server:
    """Sends a stream to the first who connects, by the clock, and hangs up."""

    def __init__(self, stream: _Stream, listener: socket.socket) -> None:
        self.stream = stream
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self.began_us = 0
        self._listener = listener
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="flownet-live-lines")
        self._thread.start()

    def stop(self) -> None:
        """Hang up now."""
        self._stop.set()
        self._thread.join()

    def due_us(self, line: int) -> int:
        """When a line is due, on the clock of the day."""
        return self.began_us + int(line * 1e6 / self.stream.rate)

    def _serve(self) -> None:
        self._listener.settimeout(_SECONDS_BETWEEN_LOOKS)
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(_SECONDS_BETWEEN_LOOKS)
                self._send(connection)
            return

    def _send(self, connection: socket.socket) -> None:
        keys = random.Random(self.stream.seed).choices(range(self.stream.keys), k=4096)
        self.began_us = time.time_ns() // 1000
        sent = 0
        while sent < self.stream.lines and not self._stop.is_set():
            late_us = time.time_ns() // 1000 - self.began_us
            due = min(self.stream.lines, int(late_us * self.stream.rate / 1e6) + 1, sent + _MOST_LINES)
            lines = (f"{self.due_us(line)} {keys[line % 4096]}\n" for line in range(sent, due))
            if not self._sent_all(connection, "".join(lines).encode()):
                return
            sent = due
            time.sleep(max(0.0, (self.due_us(sent) - time.time_ns() // 1000) / 1e6))

    def _sent_all(self, connection: socket.socket, lines: bytes) -> bool:
        left = memoryview(lines)
        while left and not self._stop.is_set():
            try:
                left = left[connection.send(left) :]
            except TimeoutError:
                continue  # held back by the reader
            except OSError:
                return False
        return not left


@contextmanager
def _serving(stream: _Stream, place: RunPlace) -> Iterator[_Server]:
    address = "127.0.0.1"
    if place.spark is not None:
        from ...spark.session import own_address

        address = own_address(place.spark)
    with socket.create_server((address, 0)) as listener:
        server = _Server(stream, listener)
        try:
            yield server
        finally:
            server.stop()


def _measure(parameters: Mapping[str, Value], place: RunPlace) -> Measurement:
    given: dict[str, Any] = dict(parameters)
    stream = _Stream(given["rate"], given["seconds"], given["keys"], place.seed)
    latencies = need("hdrh.histogram", "measuring latency").HdrHistogram(1, 3_600_000_000_000, 3)
    with _serving(stream, place) as server:
        if given["engine"] == "flownet":
            last_us = _flownet(given, place, server, latencies)
        elif place.spark is None:
            raise FlownetError("engine='spark' needs a session of Spark: run it with on='across'")
        else:
            last_us = _spark(given["workers"], place.spark, server, latencies)
        seconds = (last_us - server.began_us) / 1e6
    figures = {name: latencies.get_value_at_percentile(at) / 1000 for name, at in _PERCENTILES.items()}
    return Measurement(figures | {"records_per_s": stream.lines / seconds}, latencies.encode().decode())


def _flownet(given: Mapping[str, Any], place: RunPlace, server: _Server, latencies: Any) -> int:
    parallelism, timeout = max(1, given["workers"]), f"{given['buffer_timeout']}us"
    env = Environment(parallelism=parallelism, buffer_timeout=timeout, name="live-counts")
    counted = (
        env.socket_text(*server.address)
        .map(_parsed)
        .key_by(lambda record: record[0])
        .reduce(lambda before, new: (new[0], before[1] + 1, new[2]))
        .map(lambda record: (record[2], time.time_ns() // 1000))
        .collect()
    )
    if place.across and place.spark is not None:
        from ...spark import cluster

        env.execute(on=cluster(place.spark, workers=given["workers"]))
    else:
        env.execute(given["workers"])
    found = list(counted)
    if len(found) != server.stream.lines:
        raise FlownetError(f"{len(found)} counts came of {server.stream.lines} lines")
    counted_from_us = server.due_us(server.stream.lines // 2)
    for due_us, out_us in found:
        if due_us >= counted_from_us:
            latencies.record_value(max(out_us - due_us, 1) * 1000)
    return int(max(out_us for _, out_us in found))


def _parsed(line: str) -> tuple[str, int, int]:
    due_us, _, key = line.partition(" ")
    return key, 1, int(due_us)


def _spark(workers: int, spark: SparkSession, server: _Server, latencies: Any) -> int:
    """Count by Spark's sort shuffle in micro-batches, as fast as they go."""
    host, port = server.address
    partitions = "spark.sql.shuffle.partitions"
    before = spark.conf.get(partitions)
    spark.conf.set(partitions, str(workers))
    lines = spark.readStream.format("socket").option("host", host).option("port", port).load()
    counts = lines.selectExpr("split(value, ' ')[1] AS key").groupBy("key").count()
    try:
        with tempfile.TemporaryDirectory(prefix="flownet-live-") as folder:
            query = (
                counts.writeStream.format("noop")
                .outputMode("update")
                .option("checkpointLocation", folder)
                .queryName("live-counts")
                .start()
            )
            try:
                return _followed(query, server, latencies)
            finally:
                query.stop()
    finally:
        spark.conf.set(partitions, str(before))


def _followed(query: Any, server: _Server, latencies: Any) -> int:
    """Take the latency of every line from the end of the batch that it was in."""
    done, batch, out_us = 0, -1, 0
    half = server.stream.lines // 2
    while done < server.stream.lines:
        if not query.isActive:
            raise FlownetError(f"Spark ended the stream: {query.exception()}")
        for progress in query.recentProgress:
            if progress["batchId"] <= batch or not progress["numInputRows"]:
                continue
            batch = progress["batchId"]
            out_us = _micros(progress["timestamp"]) + progress["durationMs"]["triggerExecution"] * 1000
            for line in range(max(done, half), done + progress["numInputRows"]):
                latencies.record_value(max(out_us - server.due_us(line), 1) * 1000)
            done += progress["numInputRows"]
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return out_us


def _micros(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp() * 1e6)


_SECONDS_BETWEEN_LOOKS: Final = 0.1
_MOST_LINES: Final = 10_000
_PERCENTILES: Final = {"p99_us": 99.0, "p50_us": 50.0, "p999_us": 99.9}

LIVE_COUNTS: Final = Workload(
    name="live-counts",
    doc="latency and throughput of counts by key over a live stream of lines, by flownet or by Spark's micro-batches",
    parameters={
        "engine": Parameter("choice", "who counts", default="flownet", choices=("flownet", "spark")),
        "rate": Parameter("number", "lines a second", default=1000),
        "seconds": Parameter("number", "how long lines are sent; the first half is not counted", default=10),
        "keys": Parameter("count", "different keys", default=100),
        "workers": Parameter("count", "workers of flownet, shuffle partitions of Spark", default=2),
        "buffer_timeout": Parameter("duration", "of flownet's exchange", default="1ms"),
    },
    figures={
        "p99_us": Figure("us", "99 of 100 lines were counted sooner after they were due", higher_is_better=False),
        "p50_us": Figure("us", "half of the lines were counted sooner", higher_is_better=False),
        "p999_us": Figure("us", "999 of 1000 lines were counted sooner", higher_is_better=False),
        "records_per_s": Figure(
            "records/s", "lines by the time from the first one due to the last one counted", higher_is_better=True
        ),
    },
    measure=_measure,
    cores=lambda parameters: int(parameters["workers"] or 1) + 1,
    goes_across=True,
    needs_spark=lambda parameters: parameters["engine"] == "spark",
)
