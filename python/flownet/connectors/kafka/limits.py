"""What a topic takes: records that its broker would refuse are refused before a checkpoint counts them.

A record that is in a checkpoint is written when the checkpoint counts. If the broker refuses it then, it refuses it
after each restart, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ...errors import KafkaError
from .client import LOG, Broker, client

if TYPE_CHECKING:
    from .record import Row


class TopicLimits(NamedTuple):
    """Settings of a topic and of the client that a record may break."""

    topic: str
    client_bytes: int
    """``message.max.bytes`` of the client: the most for key, value and headers."""
    batch_bytes: int | None = None
    """``max.message.bytes`` of the topic: the most for a batch. None: not known."""
    is_compacted: bool = False
    """Whether ``cleanup.policy`` has ``compact``: each record needs a key."""
    most_ms_ago: int | None = None
    """``message.timestamp.before.max.ms``. None: timestamps are the broker's."""
    most_ms_ahead: int | None = None
    """``message.timestamp.after.max.ms``. None: timestamps are the broker's."""
    is_compressed: bool = False
    """Whether the client compresses: how large a batch becomes is not known before."""

    def check(self, row: Row) -> None:
        """Refuse a record that the topic does not take.

        Raises
        ------
        KafkaError
            It is too large, has no key, or is too old or too far in the future.
        """
        key, value, timestamp_ms, headers = row
        size = len(key or b"") + len(value or b"") + sum(len(name.encode()) + len(of or b"") for name, of in headers)
        if size > self.client_bytes:
            raise self._too_large(size, self.client_bytes)
        if (
            self.batch_bytes is not None
            and not self.is_compressed
            and size + _MOST_FRAMING_BYTES * (1 + len(headers)) > self.batch_bytes
        ):
            size = batch_bytes(row)
            if size > self.batch_bytes:
                raise self._too_large(size, self.batch_bytes)
        if self.is_compacted and key is None:
            raise self._refusal(
                "a record without a key",
                "keeps the last record of each key (cleanup.policy=compact)",
                "INVALID_RECORD",
                "give records a key, as by KafkaRecord(value, key)",
            )
        if timestamp_ms:
            self._check_time(timestamp_ms)

    def _check_time(self, timestamp_ms: int) -> None:
        if self.most_ms_ago is None or self.most_ms_ahead is None:
            return
        ahead_ms = timestamp_ms - int(1000 * time.time())
        if -self.most_ms_ago <= ahead_ms <= self.most_ms_ahead:
            return
        # The text is the same in each attempt: the failure is known again by it.
        limit, where, side = (
            (self.most_ms_ahead, "in the future", "after") if ahead_ms > 0 else (self.most_ms_ago, "ago", "before")
        )
        raise self._refusal(
            f"a record with the timestamp {timestamp_ms}",
            f"takes none of more than {limit} ms {where}",
            "INVALID_TIMESTAMP",
            f"raise message.timestamp.{side}.max.ms of the topic, or write KafkaRecords with another timestamp_ms",
        )

    def _too_large(self, size: int, limit: int) -> KafkaError:
        return self._refusal(
            f"a record of {size} bytes",
            f"takes {limit} bytes",
            "MSG_SIZE_TOO_LARGE",
            "raise max.message.bytes of the topic and config={'message.max.bytes': ...} of the sink, or write smaller "
            "records",
        )

    def _refusal(self, record: str, limit: str, code: str, way_out: str) -> KafkaError:
        text = f"{record} cannot be written to topic {self.topic!r}, which {limit} ({code}); {way_out}"
        return KafkaError(text, topic=self.topic, code=code)


def topic_limits(broker: Broker, topic: str) -> TopicLimits:
    """Ask for the limits of a topic.

    A user without the right to see settings (DescribeConfigs) may still write: then the limits of the topic are not
    known, and a record that breaks them is refused when its checkpoint is committed.

    Raises
    ------
    KafkaError
        No broker answers.
    """
    from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

    config = broker.config
    codec = config.get("compression.type", config.get("compression.codec", "none"))
    limits = TopicLimits(topic, int(config.get("message.max.bytes", 1_000_000)), is_compressed=codec != "none")
    admin = AdminClient(broker.settings({}))  # which has to live until it has its answer
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        answer = admin.describe_configs([asked], request_timeout=broker.timeout_s)[asked]
        found = {name: entry.value for name, entry in answer.result(2 * broker.timeout_s).items()}
    except client().KafkaException as error:
        if not error.args[0].name().endswith(_NOT_TOLD):
            raise broker.failed(error, "ask for the settings of", topic) from error
        LOG.info("the limits of topic %r are not known, as its settings cannot be seen: %s", topic, error)
        return limits
    ago, ahead = _times(found)
    return limits._replace(
        batch_bytes=_number(found, "max.message.bytes"),
        is_compacted="compact" in (found.get("cleanup.policy") or ""),
        most_ms_ago=ago,
        most_ms_ahead=ahead,
    )


def batch_bytes(row: Row) -> int:
    """Count the bytes of a batch that has this record alone, without compression."""
    key, value, _, headers = row
    # Attributes, and how far time and offset are from those of the batch.
    size = 3 + _field_bytes(key) + _field_bytes(value) + _varint_bytes(len(headers))
    size += sum(_field_bytes(name.encode()) + _field_bytes(of) for name, of in headers)
    return _BATCH_HEADER_BYTES + _varint_bytes(size) + size


def _times(found: Mapping[str, str | None]) -> tuple[int | None, int | None]:
    """Read how old and how far ahead a record may be, under the names of new brokers and of those before 3.6."""
    if found.get("message.timestamp.type") != "CreateTime":
        return None, None
    either = _number(found, "message.timestamp.difference.max.ms")
    ago, ahead = (_number(found, f"message.timestamp.{side}.max.ms") for side in ("before", "after"))
    return (either if ago is None else ago), (either if ahead is None else ahead)


def _number(found: Mapping[str, str | None], name: str) -> int | None:
    value = found.get(name)
    return None if value is None else int(value)


def _field_bytes(field: bytes | None) -> int:
    return 1 if field is None else _varint_bytes(len(field)) + len(field)


def _varint_bytes(number: int) -> int:
    """Count the bytes of a number that is not negative, in the zigzag encoding of Kafka."""
    return max(1, -(-(2 * number).bit_length() // 7))


_NOT_TOLD = ("AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE")
"""How errors end of a user without the right to see settings, and of brokers of other kinds that have none."""

_BATCH_HEADER_BYTES = 61

_MOST_FRAMING_BYTES = 100
"""More than a batch, or a header, has beyond its fields: what is smaller by that is not counted exactly."""
