"""Topics of Kafka as a source: partitions are splits, and where each is read on from is in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...errors import ConfigError
from ..source import Source, SplitReader
from .client import LOG, Broker, Duration, broker, client, partitions, topic_names
from .fetcher import Fetcher, Partition
from .record import Format, KafkaRecord, reader

if TYPE_CHECKING:
    import confluent_kafka

Start = Literal["earliest", "latest", "committed"] | datetime | int
"""Where a partition begins: at its oldest or behind its newest record, where the group was, or at a time."""

Split = tuple[str, int]
"""A topic and the number of a partition."""

Position = tuple[int, int | None]
"""The offset of the record to read next, and the one to end before, if there is one."""


class Bounds(NamedTuple):
    """What a run found of a partition when it listed it."""

    first: int
    """The oldest record that there is."""
    begin: int
    """Where a job begins."""
    end: int | None
    """Where it ends, if it does."""


class KafkaSource(Source[KafkaRecord]):
    """Reads topics of Kafka, each record as a `KafkaRecord`. Pass an instance to `Environment.from_source`.

    Each partition is a split: it is read by one subtask, in its order, and has watermarks of its own. Where the job
    goes on from is in its checkpoints and nowhere else. With ``group`` it is committed to Kafka too when a checkpoint
    counts, so that Kafka's own tools show how far behind the job is. Of transactions only what is committed is read.

    Needs the client of ``pip install 'flownet-streams[kafka]'``.

    Parameters
    ----------
    servers
        ``"host:port"`` of one or several brokers.
    topics
        One or several.
    key, value
        What keys and values are: ``"bytes"``, ``"text"`` in UTF-8, ``"json"``, or a function of the bytes. What a
        record does not have is None. Default: ``"bytes"``.
    start
        Where a job begins that has no checkpoint: ``"earliest"``; ``"latest"``, behind what is there when it is
        submitted; ``"committed"``, where ``group`` was, or at the earliest of partitions for which it has nothing; or a
        time, a ``datetime`` with a time zone or milliseconds since 1970-01-01 UTC, at whose first record it begins.
        A partition that is added later is read from its oldest record. Default: ``"earliest"``.
    end
        Where it ends: ``"latest"``, at what is there when the job is submitted; or a time, at whose first record it
        ends. None: never. Default: None.
    group
        The consumer group for which offsets are committed, and which ``start="committed"`` goes by. None: none.
        Partitions are never dealt out by it. Default: None.
    discovery
        How often to look for partitions that are added while the job runs, ``"1min"`` or a ``timedelta``; None: not
        before it is started the next time. With ``end`` it is not looked for any. Default: ``"1min"``.
    timeout
        How long no broker may answer before the job fails, ``"30s"`` or a ``timedelta``. Default: ``"30s"``.
    config
        Further properties of librdkafka, such as ``security.protocol`` and ``sasl.username``.

    Raises
    ------
    ConfigError
        A value does not fit.
    FlownetError
        The client is not installed.
    KafkaUnreachableError, KafkaTopicError, KafkaRightsError, KafkaError
        When the job is submitted, or while it runs: no broker answers, a topic is not there, the user may not read it,
        or offsets of the checkpoint are not there any more.

    Examples
    --------
    >>> words = fn.KafkaSource("localhost:9092", "words", value="text", end="latest")  # doctest: +SKIP
    >>> lines = env.from_source(words).map(lambda record: record.value)  # doctest: +SKIP
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str],
        *,
        key: Format = "bytes",
        value: Format = "bytes",
        start: Start = "earliest",
        end: Literal["latest"] | datetime | int | None = None,
        group: str | None = None,
        discovery: Duration | None = "1min",
        timeout: Duration = "30s",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        client()
        self._broker: Broker = broker("KafkaSource", servers, config, timeout, _OWNED)
        self._topics = topic_names("KafkaSource", "topics", topics)
        self._key, self._value = reader("key", key), reader("value", value)
        self._start = _time("start", start, ("earliest", "latest", "committed"))
        self._end = None if end is None else _time("end", end, ("latest",))
        named: object = group
        if named is not None and not (isinstance(named, str) and named):
            raise ConfigError(f"KafkaSource(group={group!r}): must be a name", setting="group", value=group)
        if start == "committed" and group is None:
            raise ConfigError("KafkaSource(start='committed'): needs a group", setting="group", value=None)
        self._group = group
        self.discovery_interval = None if end is not None else discovery
        self._bounds: dict[Split, Bounds] = {}
        self._fetcher: Fetcher | None = None

    def _name_of(self, split: Split) -> str:
        """Name a partition for people."""
        topic, partition = split
        return f"partition {partition} of topic {topic!r}"

    def splits(self) -> list[Split]:
        """List the partitions, and find out where each begins and ends."""
        self._bounds = {}
        return self.discover()

    def discover(self) -> list[Split]:
        """List the partitions again, and find out of those that are new where they begin."""
        library = client()
        consumer = self._consumer()
        try:
            found = [
                library.TopicPartition(topic, number)
                for topic in self._topics
                for number in partitions(self._broker, consumer, topic)
            ]
            for topic in self._topics:
                new = [each for each in found if each.topic == topic and (topic, each.partition) not in self._bounds]
                try:
                    self._bounds = self._bounds | (self._find_bounds(consumer, new) if new else {})
                except library.KafkaException as error:
                    raise self._broker.failed(error, "find offsets of", topic) from error
        finally:
            consumer.close()
        return [(each.topic, each.partition) for each in found]

    def position_of_new(self, split: Split) -> Position:
        """Begin with the oldest record: when the partition came into being the job was under way."""
        bounds = self._bounds[split]
        return bounds.first, bounds.end

    def open(self, split: Split, position: Position | None) -> SplitReader[KafkaRecord]:
        """Begin to read a partition."""
        # None of those that came while the job ran: they have a position, and no end.
        bounds = self._bounds.get(split)
        if position is not None:
            offset, end = position
        elif bounds is not None:
            offset, end = bounds.begin, None
        else:
            raise LookupError(f"partition {split!r} was not listed")
        if end is None and bounds is not None:
            # It may go on from a run that had no end.
            end = bounds.end
        if self._fetcher is None or self._fetcher.is_closed:
            self._fetcher = Fetcher(self._broker, self._consumer(ends=self._end is not None))
        return Partition(self._fetcher, split, offset, end, (self._key, self._value))

    def checkpointed(self, positions: list[tuple[Split, Position]]) -> None:
        """Tell Kafka how far the job is. It is no more than told: what cannot be is logged."""
        if self._group is None or not positions:
            return
        library = client()
        offsets = [library.TopicPartition(*split, position[0]) for split, position in positions]
        if self._fetcher is not None and not self._fetcher.is_closed:
            self._fetcher.commit(offsets)
            return
        consumer = self._consumer()
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except library.KafkaException as error:
            LOG.warning("%s", self._broker.failed(error, f"commit offsets of group {self._group!r} for"))
        finally:
            consumer.close()

    def _find_bounds(
        self, consumer: confluent_kafka.Consumer, found: list[confluent_kafka.TopicPartition]
    ) -> dict[Split, Bounds]:
        timeout_s = self._broker.timeout_s
        marks = {each: consumer.get_watermark_offsets(each, timeout_s) for each in found}
        begins = self._offsets(consumer, self._start, marks)
        ends = None if self._end is None else self._offsets(consumer, self._end, marks)
        return {
            (each.topic, each.partition): Bounds(
                marks[each][0], max(begins[each], marks[each][0]), None if ends is None else ends[each]
            )
            for each in found
        }

    def _offsets(
        self,
        consumer: confluent_kafka.Consumer,
        place: str | int,
        marks: dict[confluent_kafka.TopicPartition, tuple[int, int]],
    ) -> dict[confluent_kafka.TopicPartition, int]:
        """Find the offset of a place in each partition, given where each begins and ends."""
        if place in ("earliest", "latest"):
            return {each: marks[each][place == "latest"] for each in marks}
        library, timeout_s = client(), self._broker.timeout_s
        if place == "committed":
            asked = consumer.committed(list(marks), timeout_s)
        else:
            asked = [library.TopicPartition(each.topic, each.partition, place) for each in marks]
            asked = consumer.offsets_for_times(asked, timeout_s)
        offsets = {}
        for each in asked:
            if each.error is not None:
                raise library.KafkaException(each.error)
            nothing = marks[each][place != "committed"]
            offsets[each] = each.offset if each.offset >= 0 else nothing
        return offsets

    def _consumer(self, ends: bool = False) -> confluent_kafka.Consumer:
        ours: dict[str, Any] = {
            "group.id": self._group or "flownet",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": ends,
            "on_commit": _told,
        }
        consumer: confluent_kafka.Consumer = client().Consumer(self._broker.settings(ours, _DEFAULTS))
        return consumer

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_fetcher": None}


def _told(error: confluent_kafka.KafkaError | None, offsets: list[confluent_kafka.TopicPartition]) -> None:
    error = error or next((each.error for each in offsets if each.error is not None), None)
    if error is not None:
        LOG.warning("offsets could not be committed, so Kafka's tools show a lag that is not there: %s", error)


def _time(setting: str, given: Any, words: tuple[str, ...]) -> str | int:
    if isinstance(given, datetime) and given.tzinfo is not None:
        return round(given.timestamp() * 1000)
    is_number = isinstance(given, int) and not isinstance(given, bool) and given >= 0
    if is_number or (isinstance(given, str) and given in words):
        return given  # type: ignore[no-any-return]
    listed = ", ".join(map(repr, words))
    raise ConfigError(
        f"KafkaSource({setting}={given!r:.60}): must be {listed}, a datetime with a time zone, or milliseconds",
        setting=setting,
        value=given,
    )


_OWNED = (
    "group.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "on_commit",
)

_DEFAULTS = {
    # What a checkpoint refers to and the broker has deleted must not be passed over in silence.
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # Fetched ahead for each partition; the client's own default is 64 MiB.
    "queued.max.messages.kbytes": 8 << 10,
    "fetch.wait.max.ms": 100,
}
