"""The client of Kafka: how it is set up, and its errors as those of flownet.

The client is confluent-kafka, on librdkafka.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import (
    ConfigError,
    KafkaError,
    KafkaRightsError,
    KafkaTopicError,
    KafkaTransactionError,
    KafkaUnreachableError,
)
from ...internal import config
from ...internal.extras import need

if TYPE_CHECKING:
    import confluent_kafka

LOG = logging.getLogger("flownet.kafka")

Duration = str | timedelta


def client() -> ModuleType:
    """Import the client.

    Raises
    ------
    FlownetError
        It is not installed.
    """
    return need("confluent_kafka", "Kafka", "kafka")


class Broker(NamedTuple):
    """Where Kafka is, and how it is spoken to."""

    servers: str
    """``host:port``, with commas between them."""
    config: dict[str, Any]
    """Properties of librdkafka that the user gave."""
    timeout_s: float
    """How long it may not answer."""

    def settings(self, ours: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Put together what a client is made of: ours win over the user's, those over defaults."""
        # Fewer tries, and so fewer lines in the log, where there is nobody.
        patience = {"reconnect.backoff.ms": 250, "reconnect.backoff.max.ms": 2_000}
        settings = {**patience, **(defaults or {}), **self.config, **ours}
        return {"bootstrap.servers": self.servers, "client.id": "flownet", **settings, "logger": LOG}

    def failed(self, error: Any, doing: str, topic: str | None = None) -> KafkaError:
        """Make an error of flownet of one of the client.

        Parameters
        ----------
        error
            A ``confluent_kafka.KafkaError``, or an exception that has one.
        doing
            What could not be done, for the text.
        topic
            What it was done with.
        """
        if isinstance(error, BaseException) and error.args:
            error = error.args[0]
        name = error.name() if hasattr(error, "name") else type(error).__name__
        said = error.str() if hasattr(error, "str") else str(error)
        kind, way_out = _kind(name)
        about = f" topic {topic!r}" if topic is not None else ""
        text = f"cannot {doing}{about} at {self.servers!r}: {said} ({name}); "
        return kind(text + way_out.format(seconds=f"{self.timeout_s:g}", topic=topic), topic=topic, code=name)


def broker(
    owner: str,
    servers: str | Sequence[str],
    properties: Mapping[str, Any] | None,
    timeout: Duration,
    owned: Iterable[str],
) -> Broker:
    """Check how a user says where Kafka is.

    Raises
    ------
    ConfigError
        A value does not fit, or a property is one that flownet sets itself.
    """
    given: Any = servers
    listed = [given] if isinstance(given, str) else list(given)
    if not listed or not all(isinstance(server, str) and server for server in listed):
        raise ConfigError(f"{owner}(servers={given!r:.60}): must be 'host:port'", setting="servers", value=given)
    properties = dict(properties or {})
    if taken := sorted({*owned, "bootstrap.servers", "logger"} & set(properties)):
        raise ConfigError(
            f"{owner}(config=...): {taken[0]!r} is set by flownet; the arguments of {owner} say what it follows from",
            setting="config",
            value=taken[0],
        )
    seconds = config.duration_us("timeout", timeout) / 1e6
    if seconds < 1:
        raise ConfigError(f"{owner}(timeout={timeout!r}): must be 1 s at least", setting="timeout", value=timeout)
    return Broker(",".join(listed), properties, seconds)


def topic_names(owner: str, setting: str, topics: Any) -> list[str]:
    """Check names of topics.

    Raises
    ------
    ConfigError
        There is none, one is no text, or one is there twice.
    """
    names = [topics] if isinstance(topics, str) else list(topics) if isinstance(topics, Iterable) else []
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ConfigError(f"{owner}({setting}={topics!r:.60}): name topics, each once", setting=setting, value=topics)
    return names


def partitions(broker: Broker, consumer: confluent_kafka.Consumer, topic: str) -> list[int]:
    """List the partitions of a topic.

    Raises
    ------
    KafkaError
        No broker answers, or the topic is not there, or may not be seen.
    """
    library = client()
    try:
        found = consumer.list_topics(topic, broker.timeout_s).topics[topic]
    except library.KafkaException as error:
        raise broker.failed(error, "ask for", topic) from error
    if found.error is not None:
        raise broker.failed(found.error, "use", topic)
    return sorted(found.partitions)


def _kind(name: str) -> tuple[type[KafkaError], str]:
    """Say which class an error of the client is of, and what would help."""
    for kind, way_out, names in _KINDS:
        if name in names or (kind is KafkaRightsError and name.endswith("AUTHORIZATION_FAILED")):
            return kind, way_out
    return KafkaError, "see the log of the broker"


_KINDS: tuple[tuple[type[KafkaError], str, frozenset[str]], ...] = (
    (
        KafkaUnreachableError,
        "no broker answered within {seconds} s: is it running, and is the address that it advertises "
        "(advertised.listeners) one that this machine reaches?",
        frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT"}),
    ),
    (
        KafkaTopicError,
        "create it first, as by kafka-topics.sh --create --topic {topic}: flownet makes no topics",
        frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION"}),
    ),
    (
        KafkaError,
        "what the checkpoint, or the run before, would go on with has been deleted by then, as by retention.ms: begin "
        "anew in another storage, or lose it with config={{'auto.offset.reset': 'earliest'}}",
        frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"}),
    ),
    (
        KafkaError,
        "raise max.message.bytes of the topic, or write smaller records",
        frozenset({"MSG_SIZE_TOO_LARGE"}),
    ),
    (
        KafkaRightsError,
        "the user that config= logs in needs rights: a source Read and Describe on its topics and Read on its group; "
        "a sink Write and Describe on its topic, Write and Describe on transactional ids, and Read on groups, that "
        "begin with its name",
        frozenset({"SASL_AUTHENTICATION_FAILED", "_AUTHENTICATION", "_SSL"}),
    ),
    (
        KafkaTransactionError,
        "another run of the job has taken over, or the transaction took longer than transaction_timeout: nothing of it "
        "can be seen, and the job writes it again when it goes on from its checkpoint; a longer transaction_timeout "
        "helps where this repeats, up to the broker's transaction.max.timeout.ms",
        frozenset(
            {
                "_FENCED",
                "PRODUCER_FENCED",
                "INVALID_PRODUCER_EPOCH",
                "INVALID_PRODUCER_ID_MAPPING",
                "INVALID_TRANSACTION_TIMEOUT",
                "INVALID_TXN_STATE",
                "TRANSACTION_COORDINATOR_FENCED",
                "TRANSACTION_ABORTABLE",
                "CONCURRENT_TRANSACTIONS",
            }
        ),
    ),
)
