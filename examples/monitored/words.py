"""Words by way of Kafka: one job writes them, another counts them by window.

docker compose up --build    # in this folder: both jobs, Kafka, Prometheus, Grafana; see docs/operations/deploy.md

Or one by one, beside a Kafka with the topics words and counts:

BROKERS=localhost:9092 flownet run words:feed
BROKERS=localhost:9092 flownet run words:counts -r checkpoints -s 5 --ui
"""

from __future__ import annotations

import itertools
import os

import flownet as fn

BROKERS = os.environ.get("BROKERS", "kafka:9092")
A_SECOND = 1_000
TEXT = """
to be or not to be that is the question whether tis nobler in the mind to suffer
the slings and arrows of outrageous fortune or to take arms against a sea of troubles
"""


def words(subtask: int, parallelism: int) -> itertools.cycle[str]:
    """Say the same again and again, in each subtask."""
    return itertools.cycle(TEXT.split())


def feed() -> fn.Environment:
    """Write words to Kafka, without end."""
    env = fn.Environment(name="feed")
    records = env.from_iterable(words, rate_limit=A_SECOND).map(lambda word: fn.KafkaRecord(word, key=word))
    records.sink_to(fn.KafkaSink(BROKERS, "words", key="text", value="text", guarantee="at_least_once"))
    return env


def counted(found: tuple[str, fn.Window, int]) -> fn.KafkaRecord:
    """Make a record of how often a word came in a window."""
    word, window, count = found
    return fn.KafkaRecord({"word": word, "from_ms": window.start_ms, "count": count}, key=word)


def counts() -> fn.Environment:
    """Count words by five seconds of the times that Kafka has for them."""
    env = fn.Environment(name="counts", parallelism=2)
    source = fn.KafkaSource(BROKERS, "words", value="text", group="counts")
    by_time = fn.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner(
        lambda record: record.timestamp_ms
    )
    records = env.from_source(source).uid("words").assign_timestamps_and_watermarks(by_time.with_idleness("10s"))
    windows = records.map(lambda record: record.value).key_by(str).window(fn.Tumbling("5s"))
    results = windows.with_window().count().uid("counts").map(counted)
    results.sink_to(fn.KafkaSink(BROKERS, "counts", key="text", value="json")).uid("written")
    return env
