"""Reads partitions by one client for all that a subtask has of a source.

The client hands out records of all its partitions as they come; they are dealt out to their partitions here.

I1. Records of a partition are handed out in the order of their offsets, and none is left out.
I2. A partition that is not read for a while holds no more than so many records: it is paused, and the others go on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..source import SplitReader
from .client import LOG, Broker, client
from .record import KafkaRecord

if TYPE_CHECKING:
    import confluent_kafka

BATCH = 500
"""Records that are asked for, and handed out, at once."""

MOST_RECORDS = 4_000
MOST_BYTES = 16 << 20
"""A partition with more than either of these is paused, until it has none left."""


class Fetcher:
    """The client of a subtask, shared by its partitions. It is closed with the last of them."""

    def __init__(self, broker: Broker, consumer: confluent_kafka.Consumer) -> None:
        self.broker = broker
        self.is_closed = False
        self._consumer = consumer
        self._partitions: dict[tuple[str, int], Partition] = {}
        # Where functions run as they are, subtasks may share it: who fetches hands out what it fetched.
        self._lock = threading.Lock()
        self._silent_since: float | None = None
        library = client()
        self._end: int = library.KafkaError._PARTITION_EOF
        # The client tries again by itself; whether it does so in vain is told by the silence.
        self._passing = {library.KafkaError._ALL_BROKERS_DOWN, library.KafkaError._TRANSPORT}

    def add(self, partition: Partition, offset: int) -> None:
        """Begin to read a partition."""
        with self._lock:
            self._partitions[partition.split] = partition
            self._consumer.incremental_assign([_at(partition, offset)])

    def remove(self, partition: Partition) -> None:
        """Have done with a partition."""
        with self._lock:
            if self._partitions.pop(partition.split, None) is None:
                return
            if self._partitions:
                self._consumer.incremental_unassign([_at(partition)])
            else:
                self.is_closed = True
                self._consumer.close()

    def fetch(self) -> None:
        """Deal out what has come."""
        with self._lock:
            messages = self._consumer.consume(BATCH, 0)
            full = set()
            for message in messages:
                error = message.error()
                if error is not None:
                    self._told_of(message, error)
                elif partition := self._of(message):
                    partition.take(message)
                    if partition.is_full:
                        full.add(partition)
            if full:
                self._consumer.pause([_at(partition) for partition in full])
            if messages:
                self._silent_since = None
            else:
                self._check_silence()

    def resume(self, partition: Partition) -> None:
        """Go on with a partition that was full."""
        with self._lock:
            self._consumer.resume([_at(partition)])

    def end_of(self, partition: Partition) -> int | None:
        """Return the offset behind the last record that may be read, as the broker said last; None before it has."""
        library = client()
        try:
            with self._lock:
                _, end = self._consumer.get_watermark_offsets(_at(partition), cached=True)
        except library.KafkaException:
            # It has not heard of the partition yet.
            return None
        return int(end) if end >= 0 else None

    def commit(self, offsets: list[confluent_kafka.TopicPartition]) -> None:
        """Tell Kafka where the job is, without waiting for an answer."""
        library = client()
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except library.KafkaException as error:
            LOG.warning("%s", self.broker.failed(error, "commit offsets"))

    def _of(self, message: confluent_kafka.Message) -> Partition | None:
        return self._partitions.get((message.topic() or "", message.partition() or 0))

    def _told_of(self, message: confluent_kafka.Message, error: confluent_kafka.KafkaError) -> None:
        partition = self._of(message)
        if error.code() == self._end:
            if partition is not None:
                partition.ends_at(message.offset() or 0)
        elif not error.retriable() and error.code() not in self._passing:
            raise self.broker.failed(error, f"read partition {message.partition()} of", message.topic())

    def _check_silence(self) -> None:
        """Ask, where nothing has come for long, whether there still is a broker: the client itself waits for ever."""
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < self.broker.timeout_s:
            return
        library = client()
        one = next(iter(self._partitions.values()))
        try:
            # It answers in no time, or has not been there for all that time.
            self._consumer.get_watermark_offsets(_at(one), _PATIENCE_S)
        except library.KafkaException as error:
            raise self.broker.failed(error, "read", one.split[0]) from error
        self._silent_since = None


class Partition(SplitReader[KafkaRecord]):
    """Reads one partition."""

    def __init__(
        self,
        fetcher: Fetcher,
        split: tuple[str, int],
        offset: int,
        end: int | None,
        readers: tuple[Callable[[bytes], Any] | None, Callable[[bytes], Any] | None],
    ) -> None:
        self.split = split
        self._fetcher = fetcher
        self._offset, self._end = offset, end
        self._read_key, self._read_value = readers
        self._queue: deque[confluent_kafka.Message] = deque()
        self._bytes = 0
        self._is_paused = False
        # What is behind the last record, once nothing is left: marks of transactions, and what was taken back.
        self._seen_to = offset
        fetcher.add(self, offset)

    @property
    def is_full(self) -> bool:
        """It is to be paused."""
        full = len(self._queue) > MOST_RECORDS or self._bytes > MOST_BYTES
        self._is_paused |= full
        return full

    def take(self, message: confluent_kafka.Message) -> None:
        """Take what is next."""
        self._queue.append(message)
        self._bytes += len(message)

    def ends_at(self, offset: int) -> None:
        """Take note that there is nothing more before an offset."""
        self._seen_to = offset

    def read(self) -> list[KafkaRecord] | None:
        """Return what is at hand."""
        if self._is_at_end():
            return None
        if not self._queue:
            if self._is_paused:
                self._is_paused = False
                self._fetcher.resume(self)
            self._fetcher.fetch()
        records: list[KafkaRecord] = []
        while self._queue and len(records) < BATCH:
            message = self._queue.popleft()
            self._bytes -= len(message)
            offset = message.offset() or 0
            if self._end is not None and offset >= self._end:
                self._offset = self._end
                break
            records.append(self._record(message))
            self._offset = offset + 1
        return records or (None if self._is_at_end() else records)

    def position(self) -> tuple[int, int | None]:
        """Return the next offset, and where it ends."""
        return self._offset, self._end

    def pending_records(self) -> int | None:
        """Return how many offsets lie before the end that the broker told of last, or the one it is read to."""
        end = self._fetcher.end_of(self)
        if end is None:
            return None
        reached = self._offset if self._queue else max(self._offset, self._seen_to)
        return max(0, (end if self._end is None else min(end, self._end)) - reached)

    def close(self) -> None:
        """Have done with the partition."""
        self._fetcher.remove(self)

    def _is_at_end(self) -> bool:
        if self._end is None:
            return False
        return self._offset >= self._end or (not self._queue and self._seen_to >= self._end)

    def _record(self, message: confluent_kafka.Message) -> KafkaRecord:
        key, value = message.key(), message.value()
        kind, timestamp_ms = message.timestamp()
        try:
            if key is not None and self._read_key is not None:
                key = self._read_key(key)
            if value is not None and self._read_value is not None:
                value = self._read_value(value)
        except Exception as error:
            topic, number = self.split
            error.add_note(f"reading offset {message.offset()} of topic {topic!r}, partition {number}")
            raise
        headers: Any = message.headers()
        return KafkaRecord(
            value,
            key,
            timestamp_ms if kind else None,
            *self.split,
            message.offset(),
            tuple(headers) if headers else (),
        )


def _at(partition: Partition, *offset: int) -> confluent_kafka.TopicPartition:
    made: confluent_kafka.TopicPartition = client().TopicPartition(*partition.split, *offset)
    return made


_PATIENCE_S = 5.0
