"""A job from Kafka to Kafka that is killed; run by ``flownet run`` again and again."""

from __future__ import annotations

import os

import flownet as fn

SERVERS, INPUT, OUTPUT, RATE, PARALLELISM = (
    os.environ.get(f"CHAOS_{name}", "") for name in ("SERVERS", "INPUT", "OUTPUT", "RATE", "PARALLELISM")
)


def kafka_to_kafka() -> fn.Environment:
    """Every word with how often it has come so far: each number once."""
    env = fn.Environment(
        parallelism=int(PARALLELISM),
        max_parallelism=32,
        buffer_timeout="5ms",
        restart="fixed:10000:20ms",
        heartbeat_timeout="30s",
    )
    source = fn.KafkaSource(SERVERS, INPUT, value="text", end="latest", group=f"of-{INPUT}")
    words = env.from_source(source, rate_limit=RATE or None).map(lambda record: record.value)
    counts = words.key_by(lambda word: word).count()
    written = counts.map(lambda pair: fn.KafkaRecord(f"{pair[0]} {pair[1]}", key=pair[0]))
    written.sink_to(fn.KafkaSink(SERVERS, OUTPUT, key="text", value="text", name="chaos"))
    return env
