"""Records that a topic of a real Kafka refuses: they are refused before a checkpoint counts them, and the job ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

import flownet as fn
from flownet import errors
from flownet.connectors.kafka.limits import batch_bytes

if TYPE_CHECKING:
    from .broker import Broker

Topic = Callable[..., str]

DAY_MS = 24 * 3600 * 1000


def checkpointed(folder: Path, **options: Any) -> fn.Environment:
    env = fn.Environment(**options)
    env.enable_checkpointing("50ms", storage=folder / "checkpoints")
    return env


def is_taken(producer: confluent_kafka.Producer, topic: str, record: fn.KafkaRecord) -> bool:
    refused = list[Any]()
    producer.produce(
        topic,
        record.value,
        record.key,
        headers=list(record.headers),
        on_delivery=lambda error, _: refused.append(error) if error else None,
    )
    assert producer.flush(60) == 0
    return not refused


@pytest.mark.parametrize("headers", [(), (("h", b"x" * 200), ("none", None))])
@pytest.mark.parametrize("key", [None, b"k" * 70])
def test_the_size_of_a_record_is_that_of_the_broker_to_the_byte(
    key: bytes | None, headers: tuple[tuple[str, bytes | None], ...], kafka: Broker, topic: Topic
) -> None:
    name = topic(1, **{"max.message.bytes": "1000"})
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers})
    sink = fn.KafkaSink(kafka.servers, name)
    sink.open(Context())
    for size in range(400, 1000):
        if batch_bytes((key, b"v" * size, 0, headers)) > 1000:
            break
    for value, fits in [(b"v" * (size - 1), True), (b"v" * size, False)]:
        record = fn.KafkaRecord(value, key, headers=headers)
        assert is_taken(producer, name, record) == fits
        if fits:
            sink.write([record])
        else:
            with pytest.raises(
                errors.KafkaError, match=f"1001 bytes cannot be written to topic '{name}', which takes 1000 bytes"
            ):
                sink.write([record])
    sink.close()


class Context:
    """Where a sink of a test runs."""

    operator, subtask, parallelism, worker = "sink", 0, 1, ""
    metrics: fn.metrics.Metrics


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_small_records_are_written_in_batches_that_the_topic_takes(
    guarantee: Any, kafka: Broker, topic: Topic, tmp_path: Path
) -> None:
    name = topic(1, **{"max.message.bytes": "1000"})
    env = checkpointed(tmp_path, restart="none")
    env.from_collection(list(range(5000))).sink_to(
        fn.KafkaSink(kafka.servers, name, value="json", guarantee=guarantee, config={"linger.ms": 50})
    )
    env.execute()
    assert sorted(map(int, kafka.texts(name))) == list(range(5000))


def refusals() -> list[tuple[dict[str, str], fn.KafkaRecord, str]]:
    now_ms = int(1000 * time.time())
    return [
        (
            {"max.message.bytes": "1000"},
            fn.KafkaRecord(b"x" * 2000),
            "a record of 20[0-9][0-9] bytes cannot be written to topic {topic}, which takes 1000 bytes .*; raise max",
        ),
        (
            {"cleanup.policy": "compact"},
            fn.KafkaRecord(b"x"),
            "a record without a key cannot be written to topic {topic}.*cleanup.policy=compact",
        ),
        (
            {"message.timestamp.after.max.ms": "1000"},
            fn.KafkaRecord(b"x", timestamp_ms=now_ms + DAY_MS),
            "topic {topic}, which takes none of more than 1000 ms in the future .*; raise message.timestamp.after",
        ),
        (
            {"message.timestamp.before.max.ms": "1000"},
            fn.KafkaRecord(b"x", timestamp_ms=now_ms - DAY_MS),
            "topic {topic}, which takes none of more than 1000 ms ago .*; raise message.timestamp.before",
        ),
    ]


def test_a_record_that_the_topic_never_takes_ends_the_job_before_a_checkpoint_counts_it(
    kafka: Broker, topic: Topic, tmp_path: Path, workers: int
) -> None:
    jobs = list[tuple[fn.Job, str, str]]()
    for number, (settings, record, text) in enumerate(refusals()):
        name = topic(1, **settings)
        env = checkpointed(tmp_path / str(number))
        env.from_collection([record]).sink_to(fn.KafkaSink(kafka.servers, name))
        jobs.append((env.execute_async(workers), name, text.format(topic=f"'{name}'")))
    for job, name, text in jobs:
        with job, pytest.raises(errors.KafkaError, match=text) as raised:
            job.wait()
        assert (raised.value.attempts, raised.value.topic) == (5, name)
        assert raised.value.code in {"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"}
        assert kafka.read(name, "read_uncommitted") == [], "nothing was committed, and refused then"


def test_a_topic_that_takes_such_records_gets_them(kafka: Broker, topic: Topic, tmp_path: Path) -> None:
    now_ms = int(1000 * time.time())
    larger = fn.KafkaRecord(b"x" * 2_000_000)
    cases: list[tuple[dict[str, str], fn.KafkaRecord, dict[str, Any]]] = [
        ({"max.message.bytes": "3000000"}, larger, {"message.max.bytes": 3_000_000}),
        ({"cleanup.policy": "compact"}, fn.KafkaRecord(b"x", b"key"), {}),
        (
            {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1000"},
            fn.KafkaRecord(b"x", timestamp_ms=now_ms + DAY_MS),
            {},
        ),
        # What a compressed batch takes is for the broker to say.
        ({"max.message.bytes": "1000"}, fn.KafkaRecord(b"x" * 2000), {"compression.type": "gzip"}),
    ]
    for number, (settings, record, config) in enumerate(cases):
        name = topic(1, **settings)
        env = checkpointed(tmp_path / str(number), restart="none")
        env.from_collection([record]).sink_to(fn.KafkaSink(kafka.servers, name, config=config))
        env.execute()
        assert len(kafka.texts(name)) == 1


class StopsBeforeCommit(fn.KafkaSink):
    """Fails where a checkpoint counts: what was prepared is in the checkpoint, and not written."""

    def commit(self, prepared: Any) -> None:
        (Path(self.marks) / "lineage").write_text(prepared[0])
        raise ConnectionResetError("stopped before the commit")

    marks = ""


def stop_before_commit(kafka: Broker, name: str, folder: Path) -> str:
    """Run a job that ends behind a checkpoint and before its commit. Return the name of the lineage."""
    sink = StopsBeforeCommit(kafka.servers, name, value="json")
    sink.marks = str(folder)
    env = checkpointed(folder, restart="none")
    env.from_collection([1, 2, 3]).uid("numbers").sink_to(sink).uid("sink")
    with pytest.raises(errors.FlownetError, match="stopped before the commit"):
        env.execute()
    return (folder / "lineage").read_text()


def resume(kafka: Broker, name: str, folder: Path) -> fn.observation.JobResult:
    env = checkpointed(folder)
    env.from_collection([1, 2, 3]).uid("numbers").sink_to(fn.KafkaSink(kafka.servers, name, value="json")).uid("sink")
    return env.execute()


def test_a_job_whose_marks_the_broker_has_deleted_ends_after_a_few_attempts(
    kafka: Broker, topic: Topic, tmp_path: Path
) -> None:
    name = topic(1)
    group = stop_before_commit(kafka, name, tmp_path)
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.delete_consumer_groups([group])[group].result(60)
    with pytest.raises(
        errors.KafkaTransactionError, match=r"has forgotten the mark .*begins anew in another"
    ) as raised:
        resume(kafka, name, tmp_path)
    assert (raised.value.attempts, raised.value.topic) == (5, name)
    assert kafka.texts(name) == []


def test_a_job_goes_on_if_another_producer_had_its_transactional_id_in_between(
    kafka: Broker, topic: Topic, tmp_path: Path
) -> None:
    name = topic(1)
    lineage = stop_before_commit(kafka, name, tmp_path)
    other = confluent_kafka.Producer({"bootstrap.servers": kafka.servers, "transactional.id": lineage})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(name, b"0")
    other.flush(60)
    resume(kafka, name, tmp_path)
    assert kafka.texts(name) == ["1", "2", "3"], "the transaction of the other one was aborted"
    with pytest.raises(confluent_kafka.KafkaException):
        other.commit_transaction(60)


class TellsLineage(fn.KafkaSink):
    """Writes the names of its lineages to a file."""

    told = ""

    def open(self, ctx: fn.TaskContext) -> None:
        super().open(ctx)
        assert self._own is not None
        with Path(self.told).open("a") as lines:
            lines.write(self._own.name + "\n")


def test_a_job_that_loses_its_transactional_id_while_it_runs_restarts_once_and_loses_nothing(
    kafka: Broker, topic: Topic, tmp_path: Path, workers: int
) -> None:
    name = topic(1)
    env = checkpointed(tmp_path)
    sink = TellsLineage(kafka.servers, name, value="json")
    sink.told = str(tmp_path / "told")
    env.from_collection(list(range(2000)), rate_limit=200).sink_to(sink)
    with env.execute_async(workers) as job:
        while job.status().records < 10:
            time.sleep(0.01)
        for lineage in Path(sink.told).read_text().split():
            other = confluent_kafka.Producer({"bootstrap.servers": kafka.servers, "transactional.id": lineage})
            other.init_transactions(60)
            del other
        result = job.wait()
    assert result is not None
    assert result.restarted == 1
    assert sorted(map(int, kafka.texts(name))) == list(range(2000))


@pytest.mark.timeout(600)  # Five attempts, with the pauses of the broker between them.
def test_a_job_whose_offsets_were_deleted_ends_after_a_few_attempts(
    kafka: Broker, topic: Topic, tmp_path: Path, workers: int
) -> None:
    name = topic(1)
    kafka.write(name, map(str, range(2000)))

    def build(env: fn.Environment, rate: int | None) -> None:
        source = fn.KafkaSource(kafka.servers, name, value="text", end="latest")
        env.from_source(source, rate_limit=rate).map(lambda record: record.value).write_text(tmp_path / "out")

    env = checkpointed(tmp_path, restart="none")
    build(env, 500)
    with env.execute_async(workers) as job:
        while job.status().records < 100:
            time.sleep(0.01)
        job.stop(drain=False)
        job.wait()
    kafka.truncate(name, 0, 1999)
    env = checkpointed(tmp_path)
    build(env, None)
    with pytest.raises(errors.KafkaError, match=rf"topic '{name}' .*auto.offset.reset") as raised:
        env.execute(workers)
    assert (raised.value.attempts, raised.value.topic) == (5, name)
