"""Transactions of one subtask of `KafkaSink`, each of which is committed once, whoever commits it and however often.

A transaction that was prepared must be there after a crash, and be committed by another process. The client cannot take
over an open transaction from another one, and the broker ends those that are open for long. So nothing is open between
the checkpoint and its end: the records of a batch are part of the checkpoint, and are written and committed in one
transaction once it counts. A *lineage* makes that happen once. It is a transactional id that nobody else has, and a
consumer group of the same name whose offset is the number of the last batch that was committed: the *mark*.

I1. The mark is written in the transaction of its batch. So either both are there or neither is.
I2. Whoever is about to commit takes over the transactional id first. From then on an older holder commits nothing, and
    what it had under way has been committed or aborted; the mark is read behind that.
I3. Batches of a lineage are numbered from 1 and committed in their order. So one is there if the mark has come to it.
I4. A lineage begins with the mark 0, and where a batch is prepared its mark is younger than `FRESH_S`. So if there is
    no mark, the broker has deleted it (``offsets.retention.minutes``), and nobody can tell: that is refused.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...errors import KafkaTransactionError
from .client import Broker, client
from .limits import TopicLimits
from .record import Row

if TYPE_CHECKING:
    import confluent_kafka

FRESH_S = 3600.0
"""An older mark is written again before the next batch: brokers keep marks for a week, unless told otherwise."""


class TransactionHistory:
    """The transactions of one transactional id."""

    def __init__(self, broker: Broker, limits: TopicLimits, name: str, timeout_s: float) -> None:
        """Take over the id from whoever had it."""
        self.name = name
        self._broker = broker
        self._topic = limits.topic
        library = client()
        ours = {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._marks: confluent_kafka.Consumer = library.Consumer(broker.settings(ours))
        self._mark_is_of = time.monotonic()
        transactional = {"transactional.id": name, "transaction.timeout.ms": round(1000 * timeout_s)}
        self._producer: confluent_kafka.Producer = library.Producer(
            broker.settings(transactional, producer_defaults(limits))
        )
        try:
            self._producer.init_transactions(broker.timeout_s)
        except library.KafkaException as error:
            self.close()
            raise broker.failed(error, "begin transactions for", self._topic) from error

    def begin(self) -> None:
        """Write the first mark."""
        self._transact(0, [])

    def keep_fresh(self, mark: int) -> None:
        """Write the mark again if it has become old."""
        if time.monotonic() - self._mark_is_of > FRESH_S:
            self._transact(mark, [])

    def commit(self, number: int, rows: list[Row]) -> None:
        """Write a batch, with its mark."""
        self._transact(number, rows)

    def mark(self) -> int:
        """Return the number of the last batch that was committed.

        Raises
        ------
        KafkaTransactionError
            There is none any more.
        """
        library = client()
        try:
            (found,) = self._marks.committed([library.TopicPartition(self._topic, 0)], self._broker.timeout_s)
        except library.KafkaException as error:
            raise self._broker.failed(error, _ASKING, self._topic) from error
        if found.error is not None:
            raise self._broker.failed(found.error, _ASKING, self._topic)
        if found.offset < 0:
            raise KafkaTransactionError(
                f"cannot tell whether what the checkpoint has for topic {self._topic!r} was written: the broker at "
                f"{self._broker.servers!r} has forgotten the mark of {self.name!r}, as it does after "
                "offsets.retention.minutes; a job that stands still for so long needs a longer one, or begins anew in "
                "another storage",
                topic=self._topic,
            )
        return int(found.offset)

    def close(self) -> None:
        """Let go of the clients; what is not committed is not there."""
        self._marks.close()
        self.__dict__.pop("_producer", None)

    def _transact(self, mark: int, rows: list[Row]) -> None:
        library, timeout_s = client(), self._broker.timeout_s
        producer = self._producer
        refused: list[confluent_kafka.KafkaError] = []
        # What is left undone because something else went wrong.
        purged = {library.KafkaError._PURGE_QUEUE, library.KafkaError._PURGE_INFLIGHT}

        def delivered(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
            if error is not None and error.code() not in purged:
                refused.append(error)

        try:
            producer.begin_transaction()
            for row in rows:
                produce(self._broker, producer, self._topic, row, on_delivery=delivered)
            producer.flush(timeout_s)
            at = library.TopicPartition(self._topic, 0, mark)
            producer.send_offsets_to_transaction([at], self._marks.consumer_group_metadata(), timeout_s)
            producer.commit_transaction(timeout_s)
        except (library.KafkaException, SystemError) as error:
            said = _client_error(error)
            if said is None:
                raise
            # Nothing of it can be seen. The job goes on from the checkpoint that has the batch, and asks for the mark.
            reason = self._abort()
            # Behind a record that was refused all else fails for that alone.
            first = refused[0] if refused else said
            if reason is not None and first.code() == library.KafkaError._FATAL:
                first = reason
            raise self._broker.failed(first, "commit a transaction on", self._topic) from error
        self._mark_is_of = time.monotonic()

    def _abort(self) -> confluent_kafka.KafkaError | None:
        """Abort the transaction, if there is one; return the error that made the client useless, if one did.

        A client that was fenced while it takes records refuses these with no other reason than that it is useless.
        """
        library = client()
        try:
            self._producer.abort_transaction(min(5.0, self._broker.timeout_s))
        except (library.KafkaException, SystemError) as error:
            # There is none any more, or the next owner of the id has it aborted.
            found = _client_error(error)
            return found if found is not None and found.fatal() else None
        return None


def produce(broker: Broker, producer: confluent_kafka.Producer, topic: str, row: Row, **options: Any) -> None:
    """Hand a record to the client, which holds some until they are written; waits for room."""
    library = client()
    key, value, timestamp_ms, headers = row
    deadline = None
    while True:
        try:
            return producer.produce(topic, value, key, timestamp=timestamp_ms, headers=list(headers), **options)
        except BufferError as error:
            now = time.monotonic()
            deadline = deadline or now + broker.timeout_s
            if now > deadline:
                full = library.KafkaError(library.KafkaError._TIMED_OUT, "nothing is taken any more")
                raise broker.failed(full, "write to", topic) from error
            producer.poll(0.1)


def producer_defaults(limits: TopicLimits) -> dict[str, Any]:
    """Return the properties of a producer, unless the user gives others."""
    # Where Kafka's own clients put a key, too.
    defaults: dict[str, Any] = {"partitioner": "murmur2_random", "linger.ms": 5}
    if limits.batch_bytes is not None:
        # The client does not split a batch that the broker refuses, however small its records.
        defaults["batch.size"] = max(1, min(1_000_000, limits.batch_bytes))
    return defaults


def _client_error(raised: BaseException) -> confluent_kafka.KafkaError | None:
    """Find the error of the client in an exception of one of its calls.

    Where a client becomes useless while delivery reports wait, it runs their callback with its own exception set
    already. Then Python raises ``SystemError`` from that one.
    """
    found = raised.__cause__ if isinstance(raised, SystemError) else raised
    return found.args[0] if isinstance(found, client().KafkaException) else None


_ASKING = "find out what was committed to"
