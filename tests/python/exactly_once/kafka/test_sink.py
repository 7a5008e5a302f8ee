"""Records into a topic of a real Kafka: once, as who reads what is committed sees it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import flownet as fn
from flownet import errors
from flownet.connectors.kafka import transaction_history

from ..failures import FailsOnce

if TYPE_CHECKING:
    from .broker import Broker

Topic = Callable[..., str]


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_records_are_there(
    guarantee: Any, checkpoints: bool, kafka: Broker, topic: Topic, workers: int, tmp_path: Path
) -> None:
    name = topic(2)
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    numbers = env.from_collection(list(range(400)), rate_limit=1000)
    if checkpoints:
        env.enable_checkpointing("30ms", storage=tmp_path / "checkpoints")
        numbers = numbers.map(FailsOnce(300, tmp_path / "failed"))
    numbers.rebalance().sink_to(fn.KafkaSink(kafka.servers, name, value="json", guarantee=guarantee))
    result = env.execute(workers)
    assert result.restarted == int(checkpoints)
    found = Counter(map(int, kafka.texts(name)))
    assert set(found) == set(range(400))
    if guarantee == "exactly_once":
        assert found.total() == 400


def test_a_record_keeps_key_time_and_headers_and_its_key_goes_where_kafkas_own_clients_put_it(
    kafka: Broker, topic: Topic, env: fn.Environment
) -> None:
    name = topic(7)
    # Of Kafka's own tests of its hash.
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    records = [fn.KafkaRecord("v", key, 1_234, "other", 5, 6, (("h", b"1"), ("n", None))) for key in hashes]
    env.from_collection([*records, fn.KafkaRecord(None, "21")]).sink_to(
        fn.KafkaSink(kafka.servers, name, key="text", value="text")
    )
    env.execute()
    found = kafka.read(name)
    assert len(found) == 5
    for message in found:
        key = (message.key() or b"").decode()
        assert message.partition() == (hashes[key] & 0x7FFFFFFF) % 7
        if message.value() is not None:
            assert (message.value(), message.timestamp()[1]) == (b"v", 1_234)
            assert message.headers() == [("h", b"1"), ("n", None)]


def test_nothing_can_be_seen_before_its_checkpoint_counts(kafka: Broker, topic: Topic, tmp_path: Path) -> None:
    name = topic(1)
    env = fn.Environment(buffer_timeout="5ms")
    env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
    passed = env.from_generator(lambda at: iter([(1, 1), *[None] * 10_000]) if at is None else iter([]))
    passed.uid("one").sink_to(fn.KafkaSink(kafka.servers, name, value="json")).uid("written")
    with env.execute_async() as job:
        while job.status().records < 1:
            time.sleep(0.01)
        assert kafka.read(name, "read_uncommitted") == []
        job.savepoint(tmp_path / "saved")
        while kafka.texts(name) != ["1"]:
            time.sleep(0.01)
        job.stop(drain=False)
        job.wait()


class Context:
    """Where a sink of a test runs."""

    operator, subtask, parallelism, worker = "sink", 0, 1, ""
    metrics: fn.metrics.Metrics


def opened(servers: str, topic: str, **options: Any) -> fn.KafkaSink:
    sink = fn.KafkaSink(servers, topic, value="json", **options)
    sink.open(Context())
    return sink


def prepared(sink: fn.KafkaSink, *values: int) -> Any:
    sink.write(list(values))
    sink.flush()
    return sink.prepare_commit()


def test_whoever_commits_what_was_prepared_and_however_often_it_is_there_once(kafka: Broker, topic: Topic) -> None:
    name = topic(2)
    sink = opened(kafka.servers, name)
    batches = [prepared(sink, 1, 2), prepared(sink, 3), prepared(sink, 4)]
    sink.commit(batches[0])
    sink.commit(batches[0])
    # It has crashed, and goes on in two others one after the other: all is told to both of them.
    for _ in range(2):
        other = opened(kafka.servers, name)
        for batch in batches:
            other.commit(batch)
        other.close()
    assert Counter(kafka.texts(name)) == Counter("1234")
    # The first one was only slow: it commits nothing any more.
    with pytest.raises(errors.KafkaTransactionError, match=f"topic '{name}' .*another run of the job has taken over"):
        sink.commit(batches[1])
    sink.close()
    assert Counter(kafka.texts(name)) == Counter("1234")


def test_one_that_stopped_in_the_middle_of_a_transaction_has_written_nothing_or_all(
    kafka: Broker, topic: Topic
) -> None:
    name = topic(1)
    sink = opened(kafka.servers, name)
    batch = prepared(sink, 1, 2)
    own = sink._own
    assert own is not None
    own._producer.begin_transaction()
    own._producer.produce(name, b"1")
    own._producer.flush()
    other = opened(kafka.servers, name)
    other.commit(batch)
    assert kafka.texts(name) == ["1", "2"]
    assert len(kafka.read(name, "read_uncommitted")) == 3, "what was written first is there, and taken back"
    with pytest.raises(confluent_kafka.KafkaException):
        own._producer.commit_transaction()
    other.close()
    sink.close()


def test_a_sink_that_is_fenced_while_it_writes_records_says_so(kafka: Broker, topic: Topic) -> None:
    name = topic(1)
    sink, other = opened(kafka.servers, name), opened(kafka.servers, name)
    batch = prepared(sink, *range(50))
    own = sink._own
    assert own is not None

    class TakenOver:
        """A producer whose transaction is taken over after the first records."""

        written = 0

        def __getattr__(self, attribute: str) -> Any:
            return getattr(producer, attribute)

        def produce(self, *arguments: Any, **options: Any) -> None:
            self.written += 1
            if self.written == 10:
                producer.flush()
                other.commit(batch)
            if self.written > 10:
                # The client learns of it from the broker's answer to a record.
                producer.flush()
            producer.produce(*arguments, **options)

    producer = own._producer
    own._producer = TakenOver()  # type: ignore[assignment]
    with pytest.raises(errors.KafkaTransactionError, match=f"topic '{name}' .*another run of the job has taken over"):
        sink.commit(batch)
    assert Counter(kafka.texts(name)) == Counter(map(str, range(50)))
    other.close()
    sink.close()


def test_a_mark_that_the_broker_has_forgotten_is_told_and_an_old_one_is_written_again(
    kafka: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(1)
    sink = opened(kafka.servers, name, name="old")
    batch = prepared(sink, 1)
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_consumer_groups([batch[0]])[batch[0]].result(60)
    other = opened(kafka.servers, name, name="old")
    with pytest.raises(errors.KafkaTransactionError, match=f"topic '{name}' .*offsets.retention.minutes") as caught:
        other.commit(batch)
    assert caught.value.topic == name
    monkeypatch.setattr(transaction_history, "FRESH_S", 0.0)
    seldom = opened(kafka.servers, name, name="old")
    assert seldom._own is not None
    admin.delete_consumer_groups([seldom._own.name])[seldom._own.name].result(60)
    other.commit(prepared(seldom, 2))
    assert kafka.texts(name) == ["2"]
    for each in (sink, other, seldom):
        each.close()


def test_a_transaction_that_takes_too_long_is_given_up_by_the_broker_and_told(kafka: Broker, topic: Topic) -> None:
    name = topic(1)
    sink = opened(kafka.servers, name, transaction_timeout="1s")
    batch = prepared(sink, 1)
    own = sink._own
    assert own is not None
    own._producer.begin_transaction()
    own._producer.produce(name, b"0")
    own._producer.flush()
    reader = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": "reader"})
    partition = confluent_kafka.TopicPartition(name, 0)
    while reader.get_watermark_offsets(partition)[1] < 2:  # the record, and the broker's mark that takes it back
        time.sleep(0.05)
    reader.close()

    class Begun:
        """A producer that has begun already."""

        def __getattr__(self, attribute: str) -> Any:
            return (lambda: None) if attribute == "begin_transaction" else getattr(producer, attribute)

    producer = own._producer
    own._producer = Begun()  # type: ignore[assignment]
    with pytest.raises(errors.KafkaTransactionError, match=f"topic '{name}' .*transaction_timeout helps"):
        sink.commit(batch)
    sink.close()
    other = opened(kafka.servers, name)
    other.commit(batch)
    assert kafka.texts(name) == ["1"]
    other.close()


def run(sink: fn.KafkaSink, record: Any = 1, workers: int = 0) -> None:
    env = fn.Environment()
    env.from_collection([record]).sink_to(sink)
    env.execute(workers)


def test_what_is_not_there_or_not_allowed_is_told_by_name(
    kafka: Broker, topic: Topic, closed_port: int, workers: int
) -> None:
    name = topic(1)
    login = kafka.login
    nowhere = f"127.0.0.1:{closed_port}"
    refused: list[tuple[fn.KafkaSink, type[errors.KafkaError], str]] = [
        (fn.KafkaSink(nowhere, "words", timeout="1s"), errors.KafkaUnreachableError, f"topic 'words' at '{nowhere}'"),
        (fn.KafkaSink(kafka.servers, "none-such"), errors.KafkaTopicError, "topic 'none-such' .* create it first"),
        (
            fn.KafkaSink(kafka.guests, name, config=login),
            errors.KafkaRightsError,
            f"topic '{name}' .* needs rights",
        ),
    ]
    for sink, kind, text in refused:
        with pytest.raises(kind, match=text) as caught:
            run(sink, b"x", workers)
        assert (caught.value.topic is not None, caught.value.operator) == (True, "KafkaSink")


def test_a_record_that_cannot_be_written_fails_before_a_checkpoint_has_it(kafka: Broker, topic: Topic) -> None:
    name = topic(1)
    with pytest.raises(errors.OperatorError, match=r"1 is int, not bytes: say how it is written, as by value='text'"):
        run(fn.KafkaSink(kafka.servers, name))
    with pytest.raises(errors.OperatorError, match="1 is int, not a text"):
        run(fn.KafkaSink(kafka.servers, name, value="text"))
    with pytest.raises(errors.OperatorError, match="JSON compliant"):
        run(fn.KafkaSink(kafka.servers, name, value="json"), float("nan"))
    with pytest.raises(
        errors.KafkaError, match=f"2000000 bytes cannot be written to topic '{name}'.*max.message.bytes"
    ):
        run(fn.KafkaSink(kafka.servers, name), b"x" * 2_000_000)
    small = topic(1, **{"max.message.bytes": "1000"})
    for guarantee in ("at_least_once", "exactly_once"):
        with pytest.raises(errors.KafkaError, match=f"topic '{small}', .*MSG_SIZE_TOO_LARGE"):
            run(fn.KafkaSink(kafka.servers, small, guarantee=guarantee), b"x" * 2_000)
    assert kafka.texts(name) + kafka.texts(small) == []


@pytest.mark.parametrize(
    "options",
    [{"topic": ""}, {"guarantee": "perhaps"}, {"name": ""}, {"key": 7}, {"config": {"transactional.id": "x"}}],
)
def test_settings_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        fn.KafkaSink(**{"servers": "localhost:9092", "topic": "a", **options})
