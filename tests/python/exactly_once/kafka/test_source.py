"""Topics of a real Kafka as sources: each record once, from where it was, and clear errors."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

import flownet as fn
from flownet import errors
from flownet.connectors.kafka import fetcher

from ..failures import FailsOnce, lines

if TYPE_CHECKING:
    from tests.python.conftest import Run

    from .broker import Broker

Topic = Callable[..., str]


def values(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def until(condition: Callable[[], Any]) -> None:
    while not condition():
        time.sleep(0.01)


def value_of(record: fn.KafkaRecord) -> Any:
    return record.value


def test_every_record_comes_once_with_all_that_it_has(
    run: Run, kafka: Broker, topic: Topic, env: fn.Environment
) -> None:
    name = topic(3)
    kafka.write(name, [(1_000 + number, text) for number, text in enumerate(values(500))])
    kafka.write(name, ["keyed"], key=b"k", headers=[("h", b"1"), ("n", None)], partition=2)
    source = fn.KafkaSource(kafka.servers, name, value="text", end="latest")
    found: list[fn.KafkaRecord] = run(env.from_source(source))
    assert sorted(record.value for record in found) == sorted([*values(500), "keyed"])
    assert all(isinstance(record, fn.KafkaRecord) for record in found)
    for partition in range(3):
        mine = [record for record in found if record.partition == partition]
        assert [record.offset for record in mine] == list(range(len(mine)))
    first = next(record for record in found if record.value == "4")
    assert first == fn.KafkaRecord("4", None, 1_004, name, 1, 1)
    keyed = next(record for record in found if record.value == "keyed")
    assert (keyed.key, keyed.headers) == (b"k", (("h", b"1"), ("n", None)))


def test_it_says_how_many_records_are_left_to_read(kafka: Broker, topic: Topic, tmp_path: Path) -> None:
    name, gate = topic(2), tmp_path / "gate"

    def held(record: Any, gate: str = str(gate)) -> Any:
        while not Path(gate).exists():
            time.sleep(0.001)
        return record

    kafka.write(name, ["x" * 100] * 20_000)
    env = fn.Environment(parallelism=1, status_interval="20ms", segment_size="1KiB", network_memory="1MiB")
    records = env.from_source(fn.KafkaSource(kafka.servers, name, value="text"))
    records.rebalance().map(held).filter(lambda _: False).print()
    with env.execute_async() as job:

        def read_and_left() -> tuple[int, int]:
            source = job.status().tasks[0]
            return source.records_in, source.source_lag_records or 0

        until(lambda: 0 < read_and_left()[1] == 20_000 - read_and_left()[0])
        gate.touch()
        until(lambda: read_and_left() == (20_000, 0))
        kafka.write(name, ["y"] * 10)
        until(lambda: read_and_left() == (20_010, 0))
        job.stop()
        job.wait()


def test_keys_and_values_are_read_as_they_are_said_to_be(kafka: Broker, topic: Topic, env: fn.Environment) -> None:
    name = topic(1)
    kafka.write(name, ['{"a": 1}'], key=b"7")
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers})
    producer.produce(name, None, b"8")
    producer.flush()
    source = fn.KafkaSource(kafka.servers, [name], key=int, value="json", end="latest")
    pairs = env.from_source(source).map(lambda record: (record.key, record.value)).collect()
    env.execute()
    assert list(pairs) == [(7, {"a": 1}), (8, None)]


def test_a_value_that_cannot_be_read_names_its_place(kafka: Broker, topic: Topic, env: fn.Environment) -> None:
    name = topic(1)
    kafka.write(name, ["1", "two"])
    env.from_source(fn.KafkaSource(kafka.servers, name, value=int, end="latest")).print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute()
    assert f"reading offset 1 of topic '{name}', partition 0" in str(caught.value)


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", 6), ("committed", 5), (1_002, 4), (datetime(1970, 1, 1, 0, 0, 1, 4000, UTC), 2), (9_999, 0)],
)
def test_a_job_begins_and_ends_where_it_is_told(start: Any, expected: int, kafka: Broker, topic: Topic) -> None:
    name = topic(2)
    kafka.write(name, [(1_000 + number, text) for number, text in enumerate(values(8))])
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": f"of-{name}"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(name, 1, 1)], asynchronous=False)
    consumer.close()
    env = fn.Environment()
    source = fn.KafkaSource(kafka.servers, name, value="text", start=start, end=1_006, group=f"of-{name}")
    found = env.from_source(source).map(value_of).collect()
    env.execute()
    assert sorted(found) == (["0", "2", "3", "4", "5"] if start == "committed" else values(6)[6 - expected :])


def test_the_latest_is_what_comes_after_the_start(kafka: Broker, topic: Topic, env: fn.Environment) -> None:
    name = topic(2)
    kafka.write(name, ["before"] * 4)
    found = env.from_source(fn.KafkaSource(kafka.servers, name, value="text", start="latest")).map(value_of).collect()
    with env.execute_async() as job:
        while job.status().state != "running":
            time.sleep(0.01)
        kafka.write(name, values(10))
        while len(found) < 10:
            time.sleep(0.01)
        job.stop()
        job.wait()
    assert sorted(found) == sorted(values(10))


def test_a_job_that_fails_reads_on_where_each_partition_was(
    kafka: Broker, topic: Topic, workers: int, tmp_path: Path
) -> None:
    name = topic(3)
    kafka.write(name, values(600))
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
    group = f"of-{name}"
    source = fn.KafkaSource(kafka.servers, name, value="text", end="latest", group=group)
    texts = env.from_source(source, rate_limit=1500).map(value_of)
    texts.map(FailsOnce("400", tmp_path / "failed")).write_text(tmp_path / "out")
    result = env.execute(workers)
    assert result.restarted == 1
    assert lines(tmp_path / "out") == sorted(values(600))
    assert kafka.committed(name, group) == {0: 200, 1: 200, 2: 200}, "Kafka's tools show where the job is"


def stop_half_way(describe: Callable[[fn.Environment], Any], folder: Path, parallelism: int) -> None:
    env = fn.Environment(parallelism=parallelism, max_parallelism=8, buffer_timeout="5ms")
    env.enable_checkpointing("20ms", storage=folder / "checkpoints")
    describe(env)
    with env.execute_async() as job:
        while job.status().records < 20:
            time.sleep(0.001)
        seen = job.status().checkpoints_made
        while job.status().checkpoints_made < seen + 2:
            time.sleep(0.001)
        job.stop(drain=False)
        job.wait()


def test_a_job_goes_on_with_other_subtasks_and_new_partitions_from_their_beginning(
    kafka: Broker, topic: Topic, tmp_path: Path
) -> None:
    name = topic(2)
    kafka.write(name, values(3_000))

    def describe(env: fn.Environment, end: Any = None, rate: int | None = 200) -> None:
        source = fn.KafkaSource(kafka.servers, name, value="text", start="committed", end=end, group=f"of-{name}")
        env.from_source(source, rate_limit=rate).map(value_of).write_text(tmp_path / "out")

    stop_half_way(describe, tmp_path, 1)
    assert 0 < len(lines(tmp_path / "out")) < 3_000
    assert sum(kafka.committed(name, f"of-{name}").values()) >= len(lines(tmp_path / "out"))
    kafka.grow(name, 4)
    kafka.write(name, values(100, "new"), partition=3)
    env = fn.Environment(parallelism=3, max_parallelism=8)
    env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
    describe(env, "latest", None)
    # The offsets of the checkpoint count, and not those that somebody else has committed since.
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.servers, "group.id": f"of-{name}"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(name, at, 90) for at in range(4)], asynchronous=False)
    consumer.close()
    env.execute()
    assert Counter(lines(tmp_path / "out")) == Counter([*values(3_000), *values(100, "new")])


def test_partitions_that_are_added_while_a_job_runs_are_read_from_their_beginning(
    kafka: Broker, topic: Topic, workers: int, tmp_path: Path
) -> None:
    name, out = topic(1), tmp_path / "out"
    kafka.write(name, values(100, "before"))
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    source = fn.KafkaSource(kafka.servers, name, value="text", start="latest", discovery="50ms")
    fails: FailsOnce[str] = FailsOnce("new20", tmp_path / "failed")
    env.from_source(source).map(value_of).map(fails).write_text(out)
    with env.execute_async(workers) as job:
        kafka.write(name, values(10, "first"))
        while len(lines(out)) < 10:
            time.sleep(0.01)
        kafka.grow(name, 3)
        for partition in (1, 2):
            kafka.write(name, values(50, "new" if partition == 1 else "other"), partition=partition)
        while len(lines(out)) < 110:
            time.sleep(0.01)
        job.stop(drain=False)
        assert job.wait().restarted == 1
    assert lines(out) == sorted([*values(10, "first"), *values(50, "new"), *values(50, "other")])


def test_of_transactions_only_what_is_committed_is_read_and_their_marks_end_nothing_early(
    kafka: Broker, topic: Topic, env: fn.Environment
) -> None:
    name = topic(1)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"of-{name}"})
    producer.init_transactions()
    for text, ends_well in [("a", True), ("b", False), ("c", True), ("d", False)]:
        producer.begin_transaction()
        producer.produce(name, text.encode())
        producer.flush()
        if ends_well:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    found = env.from_source(fn.KafkaSource(kafka.servers, name, value="text", end="latest")).map(value_of).collect()
    env.execute()
    assert list(found) == ["a", "c"]


def test_time_is_that_of_records_by_partition_and_idle_ones_hold_nobody_up(
    kafka: Broker, topic: Topic, workers: int
) -> None:
    name = topic(3)  # the last one stays empty
    kafka.write(name, [(1_000_000 + 1_000 * number, "fast") for number in range(20)], partition=0)
    kafka.write(name, [(1_000_000 + 10 * number, "slow") for number in range(20)], partition=1)
    env = fn.Environment(buffer_timeout="5ms")
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda record: record.timestamp_ms).with_idleness("5s")
    source = fn.KafkaSource(kafka.servers, name, value="text")
    records = env.from_source(source).assign_timestamps_and_watermarks(strategy)
    late = fn.OutputTag("late")
    windows = records.key_by(value_of).window(fn.Tumbling("1s")).side_output_late_data(late).count()
    found, too_late = windows.collect(), windows.side_output(late).collect()
    with env.execute_async(workers) as job:
        # Time goes on with the fast one when the others are idle; if all are, it stays.
        while len(found) + len(too_late) < 21:
            kafka.write(name, [(1_020_000, "fast")], partition=0)
            time.sleep(0.5)
        job.stop(drain=False)
        job.wait()
    assert Counter(found) == {("fast", 1): 20, ("slow", 20): 1}
    assert list(too_late) == []


def test_a_partition_that_is_far_ahead_is_held_back_and_loses_nothing(
    kafka: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "MOST_RECORDS", 50)
    name = topic(2)
    kafka.write(name, values(5_000, "a"), partition=0)
    kafka.write(name, values(5_000, "b"), partition=1)
    source = fn.KafkaSource(kafka.servers, name, value="text", end="latest")
    source.splits()
    one, other = (source.open((name, number), None) for number in range(2))
    most = 0
    found: list[str] = []
    while (batch := one.read()) is not None:
        found += [record.value for record in batch]
        most = max(most, len(other._queue))  # type: ignore[attr-defined]
    while (batch := other.read()) is not None:
        found += [record.value for record in batch]
    assert found == values(5_000, "a") + values(5_000, "b")
    assert 50 < most < 5_000, "it is paused, and what was under way is taken"
    one.close()
    other.close()


def test_what_retention_has_deleted_is_told_and_not_passed_over(kafka: Broker, topic: Topic, tmp_path: Path) -> None:
    name = topic(1)
    kafka.write(name, values(2_000))

    def describe(env: fn.Environment, rate: int | None = 100, **options: Any) -> None:
        source = fn.KafkaSource(kafka.servers, name, value="text", end="latest", **options)
        env.from_source(source, rate_limit=rate).map(value_of).write_text(tmp_path / "out")

    stop_half_way(describe, tmp_path, 1)
    kafka.truncate(name, 0, 1_999)
    for options, is_refused in [({}, True), ({"config": {"auto.offset.reset": "earliest"}}, False)]:
        env = fn.Environment(restart="none")
        env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
        describe(env, None, **options)
        if is_refused:
            with pytest.raises(errors.KafkaError, match=rf"topic '{name}' .*auto.offset.reset.*") as caught:
                env.execute()
            assert caught.value.topic == name
        else:
            env.execute()
    assert "1999" in lines(tmp_path / "out")


def test_what_is_not_there_or_not_allowed_is_told_before_anything_runs(
    kafka: Broker, topic: Topic, closed_port: int
) -> None:
    name = topic(1)
    login = kafka.login
    nowhere = f"127.0.0.1:{closed_port}"
    refused: list[tuple[fn.KafkaSource, type[errors.KafkaError], str]] = [
        (fn.KafkaSource(nowhere, "words", timeout="1s"), errors.KafkaUnreachableError, f"topic 'words' at '{nowhere}'"),
        (fn.KafkaSource(kafka.servers, "none-such"), errors.KafkaTopicError, "topic 'none-such' .* create it first"),
        (
            fn.KafkaSource(kafka.guests, name, config=login),
            errors.KafkaRightsError,
            f"topic '{name}' .* needs rights",
        ),
        (
            fn.KafkaSource(kafka.guests, name, config={**login, "sasl.password": "wrong"}, timeout="2s"),
            errors.KafkaError,
            f"topic '{name}'",
        ),
    ]
    for source, kind, text in refused:
        env = fn.Environment()
        env.from_source(source).print()
        with pytest.raises(kind, match=text) as caught:
            env.execute()
        assert caught.value.topic is not None


def test_a_broker_that_answers_no_more_fails_the_job(kafka: Broker, topic: Topic, workers: int) -> None:
    name = topic(1)
    kafka.write(name, ["a"])
    env = fn.Environment(buffer_timeout="5ms")
    found = env.from_source(fn.KafkaSource(kafka.servers, name, value="text", timeout="1s")).map(value_of).collect()
    with env.execute_async(workers) as job:
        while not found:
            time.sleep(0.01)
        os.kill(kafka.process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(errors.KafkaUnreachableError, match=f"topic '{name}' .*advertised.listeners") as caught:
                job.wait()
        finally:
            os.kill(kafka.process.pid, signal.SIGCONT)
    assert (caught.value.topic, caught.value.operator) == (name, "KafkaSource")


@pytest.mark.parametrize(
    "options",
    [
        {"servers": ""},
        {"servers": []},
        {"topics": []},
        {"topics": ["a", "a"]},
        {"value": "xml"},
        {"start": "later"},
        {"start": True},
        {"start": datetime(2026, 1, 1)},
        {"end": "earliest"},
        {"start": "committed"},
        {"group": ""},
        {"timeout": "1ms"},
        {"config": {"group.id": "x"}},
    ],
)
def test_settings_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        fn.KafkaSource(**{"servers": "localhost:9092", "topics": "a", **options})


def test_without_the_client_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    message = r"Kafka needs confluent_kafka: pip install 'flownet-streams\[kafka\]'"
    with pytest.raises(errors.FlownetError, match=message):
        fn.KafkaSource("localhost:9092", "words")
