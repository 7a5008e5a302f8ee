"""A real broker of Kafka for the tests: one node, KRaft, on the JVM that Spark's tests need too.

Its jars come from Maven by Ivy, which PySpark brings; they are kept in Ivy's cache.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

VERSION = "4.1.0"
"""Of the broker."""

JAVA = "on Debian apt-get install openjdk-17-jre-headless"
PATIENCE_SECONDS = 120.0


def what_is_missing() -> str | None:
    """Say what a broker needs and this machine does not have."""
    if importlib.util.find_spec("pyspark") is None:
        return "needs PySpark, for the Ivy in it: pip install --group tools"
    java = shutil.which("java")
    if java is None:
        return f"needs Java 17 or later: {JAVA}"
    said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"needs Java 17 or later, not {said.splitlines()[0] if said else 'this one'}: {JAVA}"
    return None


class NoJars(Exception):
    """The jars of the broker are not in the cache, and could not be had."""


def jars(folder: Path) -> Path:
    """Bring the jars of the broker into a folder.

    Raises
    ------
    NoJars
        There is no way to them.
    """
    if (folder / "whole").exists():
        return folder
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    classpath = f"{Path(spec.origin).parent / 'jars'}/*"
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "org.apache.ivy.Main"]
    what = ["-dependency", "org.apache.kafka", "kafka_2.13", VERSION, "-types", "jar", "bundle", "-confs", "default"]
    to = ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
    brought = subprocess.run([*command, *what, *to], check=False, capture_output=True, text=True)
    if brought.returncode != 0 or not list(folder.glob("kafka_2.13-*.jar")):
        raise NoJars((brought.stdout + brought.stderr)[-2000:])
    (folder / "whole").touch()
    return folder


class Broker:
    """One node, which is broker and controller. Who comes without a password may do everything, ``guest`` nothing."""

    login: ClassVar[dict[str, str]] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "guest",
        "sasl.password": "secret",
    }
    """What the guest says of itself, as properties of a client."""

    def __init__(self, folder: Path, jars: Path, ports: list[int]) -> None:
        self.folder = folder
        self._classpath = f"{jars}/*"
        self._log = (folder / "log").open("w+")
        self.servers = f"127.0.0.1:{ports[0]}"
        self.guests = f"127.0.0.1:{ports[1]}"
        """Where one has to log in."""
        self._properties = folder / "server.properties"
        self._properties.write_text(_PROPERTIES.format(folder=folder, open=ports[0], guests=ports[1], control=ports[2]))
        form = ["kafka.tools.StorageTool", "format", "-t", "Zmxvd25ldC1mbG93bmV0LQ", "-c", str(self._properties)]
        subprocess.run(self._java(*form), check=True, stdout=self._log, stderr=self._log)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = self._java("kafka.Kafka", str(self._properties))
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            said = Path(self._log.name).read_text()[-4000:]
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(self.servers.split(":")[1]))) != 0:
                time.sleep(0.05)
                return False
        try:
            return bool(self._admin().list_topics(timeout=1).brokers)
        except confluent_kafka.KafkaException:
            return False

    def stop(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Kill it, for good."""
        self.stop()
        self._log.close()

    def _java(self, *arguments: str) -> list[str]:
        # Less of the compiler and of the collector: it lives for seconds. What it unpacks stays when it is killed.
        flags = ["-Xmx512m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
        return ["java", *flags, f"-Djava.io.tmpdir={self.folder}", "-cp", self._classpath, *arguments]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, topic: str, partitions: int = 2, **settings: str) -> str:
        """Make a topic."""
        admin = self._admin()  # which has to live until it has its answer
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_SECONDS)
        self._until_told(admin, topic, partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_SECONDS)
        self._until_told(admin, topic, partitions)

    def _until_told(self, admin: AdminClient, topic: str, partitions: int) -> None:
        """Wait until the broker tells of all partitions: its controller answers before the broker itself knows."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := admin.list_topics(topic, PATIENCE_SECONDS).topics[topic]).error or len(
            found.partitions
        ) < partitions:
            assert time.monotonic() < deadline, found.error or f"{topic!r} has {len(found.partitions)} partitions"
            time.sleep(0.01)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Delete what is before an offset."""
        at = confluent_kafka.TopicPartition(topic, partition, offset)
        admin = self._admin()
        next(iter(admin.delete_records([at]).values())).result(PATIENCE_SECONDS)

    def write(self, topic: str, values: Iterable[Any], **options: Any) -> None:
        """Write texts, by turns to all partitions unless told otherwise; a pair is of a timestamp and a text."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers, "linger.ms": 5})
        count = len(self._admin().list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions)
        for number, value in enumerate(values):
            timestamp_ms, text = value if isinstance(value, tuple) else (0, value)
            described = {"partition": number % count, "timestamp": timestamp_ms, **options}
            while True:
                try:
                    producer.produce(topic, text.encode(), **described)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[confluent_kafka.Message]:
        """Read a topic to where it ends now."""
        settings = {"bootstrap.servers": self.servers, "group.id": "reader", "isolation.level": isolation}
        consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions
            consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
            left, found = set(partitions), []
            while left:
                for message in consumer.consume(1000, 1.0):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    else:
                        assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                        left.discard(message.partition())
            return found
        finally:
            consumer.close()

    def texts(self, topic: str) -> list[str]:
        """The values of a topic, as far as they are committed."""
        return [(message.value() or b"").decode() for message in self.read(topic)]

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """The offsets that a group has committed, by partition."""
        settings = {"bootstrap.servers": self.servers, "group.id": group}
        consumer = confluent_kafka.Consumer(settings)
        try:
            partitions = consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions
            asked = [confluent_kafka.TopicPartition(topic, number) for number in partitions]
            found = consumer.committed(asked, PATIENCE_SECONDS)
            return {each.partition: each.offset for each in found if each.offset >= 0}
        finally:
            consumer.close()


_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=OPEN://127.0.0.1:{open},GUESTS://127.0.0.1:{guests},CONTROL://127.0.0.1:{control}
listener.security.protocol.map=OPEN:PLAINTEXT,GUESTS:SASL_PLAINTEXT,CONTROL:PLAINTEXT
inter.broker.listener.name=OPEN
controller.listener.names=CONTROL
sasl.enabled.mechanisms=PLAIN
listener.name.guests.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    user_guest="secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
"""
