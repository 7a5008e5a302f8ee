"""Kafka: a source of the partitions of topics, and a sink whose records are there once.

The client comes with ``pip install 'flownet-streams[kafka]'``. It is imported when a source or a sink is made.
"""

from .record import KafkaRecord
from .sink import KafkaSink
from .source import KafkaSource

__all__ = ["KafkaRecord", "KafkaSink", "KafkaSource"]
