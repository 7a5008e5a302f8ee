"""Kafka: a source of the partitions of topics, and a sink whose records are there once.

Everything here needs the client of ``pip install 'flownet[kafka]'``, which is imported when a source or a sink is made.
"""

from .record import KafkaRecord
from .sink import KafkaSink
from .source import KafkaSource

__all__ = ["KafkaRecord", "KafkaSink", "KafkaSource"]
