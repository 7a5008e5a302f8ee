"""The classes of streams, each with the module that defines it.

Modules of `flownet.streams` and `flownet.rows` name classes of each other by ``streams.KeyedStream`` and
``rows.Rows``: a method of `Stream` returns a `KeyedStream`, which is a `Stream`, so imports would form a ring.
"""

from .all_windowed import AllWindowedStream as AllWindowedStream
from .changelog_stream import (
    ChangeJoin as ChangeJoin,
    ChangelogStream as ChangelogStream,
    KeyedChangelogStream as KeyedChangelogStream,
)
from .collected import CollectedRecords as CollectedRecords
from .connected import ConnectedStreams as ConnectedStreams
from .handle import StreamSink as StreamSink
from .joined import (
    AsOfJoin as AsOfJoin,
    BoundedJoin as BoundedJoin,
    IntervalJoin as IntervalJoin,
    JoinedStreams as JoinedStreams,
)
from .keyed import KeyedStream as KeyedStream
from .results import Results as Results
from .stream import Stream as Stream
from .windowed import WindowedStream as WindowedStream

__all__: list[str]
