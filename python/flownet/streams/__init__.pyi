"""The classes of streams that methods return, each with the module that defines it."""

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
from .results import Results as Results
from .windowed import WindowedStream as WindowedStream

__all__: list[str]
