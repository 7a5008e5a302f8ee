"""Records into a topic of Kafka, once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...api.context import TaskContext
from ...api.functions import TransactionalSink
from ...errors import ConfigError, KafkaError
from ...internal import config as settings
from .client import Broker, Duration, broker, client, partitions, topic_names
from .limits import topic_limits
from .record import Format, KafkaRecord, Row, writer
from .transaction_history import TransactionHistory, produce, producer_defaults

if TYPE_CHECKING:
    import confluent_kafka

Prepared = tuple[str, int, list[Row]]
"""A lineage, the number of a batch in it, and its records."""


class KafkaSink(TransactionalSink[Any]):
    """Writes records into a topic of Kafka. Pass an instance to `Stream.sink_to`.

    With checkpoints the records of each are written and committed in one transaction, when the checkpoint counts, and
    once: also if workers or the whole job are killed in the middle, and however long the job is down in between, up to
    the broker's ``offsets.retention.minutes`` (a week), after which it is refused. Until then they are part of the
    checkpoint. Who reads with ``isolation.level=read_committed`` sees each once. Without checkpoints all records are
    written at the end of the input.

    Needs the client of ``pip install 'flownet-streams[kafka]'``.

    Parameters
    ----------
    servers
        ``"host:port"`` of one or several brokers, of Kafka 2.5 or newer.
    topic
        Where to. It has to be there.
    key, value
        How keys and values are written: ``"bytes"``, ``"text"`` in UTF-8, ``"json"``, or a function that makes bytes.
        None stays None. Default: ``"bytes"``.
    guarantee
        ``"exactly_once"``, or ``"at_least_once"``: records are written as they come, are all there when a checkpoint
        counts, and some are there again after a failure. Default: ``"exactly_once"``.
    name
        What transactional ids and consumer groups of the sink begin with, for the broker's access rules; flownet makes
        one of each for every subtask of every start. Default: ``"flownet"``.
    transaction_timeout
        How long writing the records of a checkpoint may take, before the broker gives the transaction up and the job
        starts again from it. Default: ``"1min"``; the broker's ``transaction.max.timeout.ms`` is the most.
    timeout
        How long no broker may answer before the job fails, ``"30s"`` or a ``timedelta``. Default: ``"30s"``.
    config
        Further properties of librdkafka, such as ``security.protocol`` and ``compression.type``.

    Raises
    ------
    ConfigError
        A value does not fit.
    FlownetError
        The client is not installed.
    KafkaUnreachableError, KafkaTopicError, KafkaRightsError, KafkaTransactionError, KafkaError
        When the job runs: no broker answers, the topic is not there, the user may not write, a transaction took too
        long, or a record is too large.

    Notes
    -----
    Of a `KafkaRecord` key, value, timestamp and headers are written; its topic, partition and offset are where it came
    from. Anything else is a value without a key. A key goes to the partition where Kafka's own clients put it.

    Examples
    --------
    >>> sink = fn.KafkaSink("localhost:9092", "counts", key="text", value="json")  # doctest: +SKIP
    >>> counts.map(lambda pair: fn.KafkaRecord(pair[1], key=pair[0])).sink_to(sink)  # doctest: +SKIP
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str,
        *,
        key: Format = "bytes",
        value: Format = "bytes",
        guarantee: Literal["exactly_once", "at_least_once"] = "exactly_once",
        name: str = "flownet",
        transaction_timeout: Duration = "1min",
        timeout: Duration = "30s",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        client()
        self._broker: Broker = broker("KafkaSink", servers, config, timeout, _OWNED)
        self._topic = topic_names("KafkaSink", "topic", topic)[0]
        # Without the servers: those to begin with may be others of the same cluster.
        self.target = f"topic {self._topic!r}" if guarantee == "exactly_once" else None
        self._key, self._value = writer("key", key), writer("value", value)
        if guarantee not in ("exactly_once", "at_least_once"):
            raise ConfigError(
                f"KafkaSink(guarantee={guarantee!r}): must be 'exactly_once' or 'at_least_once'",
                setting="guarantee",
                value=guarantee,
            )
        self._is_exact = guarantee == "exactly_once"
        self._name = topic_names("KafkaSink", "name", name)[0]
        self._transaction_s = settings.duration_us("transaction_timeout", transaction_timeout) / 1e6

    def open(self, ctx: TaskContext) -> None:
        """Look for the topic, and begin a lineage of transactions."""
        self._rows: list[Row] = []
        self._batches = self._committed = 0
        self._own: TransactionHistory | None = None
        self._former: TransactionHistory | None = None
        self._failed: KafkaError | None = None
        self._producer: confluent_kafka.Producer | None = None
        library = client()
        probe = library.Consumer(self._broker.settings({"group.id": self._name}))
        try:
            partitions(self._broker, probe, self._topic)
        finally:
            probe.close()
        self._limits = topic_limits(self._broker, self._topic)
        if self._is_exact:
            self._own = self._lineage(f"{self._name}-{uuid.uuid4().hex}")
            self._own.begin()
        else:
            ours = {"enable.idempotence": True}
            self._producer = library.Producer(self._broker.settings(ours, producer_defaults(self._limits)))

    def write(self, records: list[Any]) -> None:
        """Take records: write them, or keep them for the transaction."""
        rows = list(map(self._row, records))
        if self._producer is None:
            self._rows.extend(rows)
            return
        for row in rows:
            produce(self._broker, self._producer, self._topic, row, on_delivery=self._delivered)
        self._producer.poll(0)
        self._raise_failed()

    def flush(self) -> None:
        """Wait until all that was written at least once is there."""
        if self._producer is None:
            return
        left = self._producer.flush(self._broker.timeout_s)
        self._raise_failed()
        if left:
            error = client().KafkaError(client().KafkaError._TIMED_OUT, f"{left} records are under way")
            raise self._broker.failed(error, "write to", self._topic)

    def prepare_commit(self) -> Prepared | None:
        """Hand the records to the checkpoint, with a number."""
        if self._own is None or not self._rows:
            return None
        self._own.keep_fresh(self._committed)
        rows, self._rows = self._rows, []
        self._batches += 1
        return self._own.name, self._batches, rows

    def commit(self, prepared: Prepared) -> None:
        """Write a batch, unless it is there."""
        name, number, rows = prepared
        if self._own is not None and name == self._own.name:
            if number > self._committed:
                self._own.commit(number, rows)
                self._committed = number
            return
        # Of a run before: what it was about to do is over once its lineage is taken over.
        if self._former is None or self._former.name != name:
            self._close_former()
            self._former = self._lineage(name)
        if self._former.mark() < number:
            self._former.commit(number, rows)

    def abort(self) -> None:
        """Forget the records."""
        self._rows = []

    def close(self) -> None:
        """Let go of the clients."""
        self._producer = None
        self._close_former()
        if own := self.__dict__.pop("_own", None):
            own.close()

    def _close_former(self) -> None:
        former, self._former = self.__dict__.get("_former"), None
        if former is not None:
            former.close()

    def _lineage(self, name: str) -> TransactionHistory:
        return TransactionHistory(self._broker, self._limits, name, self._transaction_s)

    def _row(self, record: Any) -> Row:
        given = record if isinstance(record, KafkaRecord) else KafkaRecord(record)
        key = None if given.key is None else self._key(given.key)
        value = None if given.value is None else self._value(given.value)
        headers = tuple(given.headers)
        row = key, value, given.timestamp_ms or 0, headers
        self._limits.check(row)
        return row

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None and self._failed is None:
            self._failed = self._broker.failed(error, "write to", self._topic)

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise self._failed


_OWNED = ("transactional.id", "transaction.timeout.ms", "enable.idempotence", "group.id")
