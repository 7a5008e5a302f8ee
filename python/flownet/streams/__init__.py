"""Streams: what a dataflow is described with."""

from .all_windowed import AllWindowedStream
from .connected import ConnectedStreams
from .handle import StreamSink
from .joined import AsOfJoin, BoundedJoin, IntervalJoin, JoinedStreams
from .keyed import KeyedStream
from .stream import Stream
from .windowed import WindowedStream

__all__ = [
    "AllWindowedStream",
    "AsOfJoin",
    "BoundedJoin",
    "ConnectedStreams",
    "IntervalJoin",
    "JoinedStreams",
    "KeyedStream",
    "Stream",
    "StreamSink",
    "WindowedStream",
]
