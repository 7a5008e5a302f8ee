"""Streaming dataflows in Python on a Rust exchange.

A dataflow is described on an `Environment` and run by ``execute()``, in this process or over worker processes that
exchange records under credit-based flow control.

>>> import flownet as fn
>>> env = fn.Environment(parallelism=2)
>>> counts = (
...     env.from_collection(["to be", "or not to be"])
...     .flat_map(str.split)
...     .key_by(lambda word: word)
...     .window(fn.Tumbling("5s"))
...     .count()
...     .collect()
... )
>>> result = env.execute()
>>> sorted(counts)
[('be', 2), ('not', 1), ('or', 1), ('to', 2)]
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from . import errors
from ._flownet import __version__
from .aggregate import AggregateFunction
from .collected import Collected
from .environment import Environment
from .errors import FlownetError
from .functions import (
    AsyncFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessContext,
    ProcessFunction,
    ProcessWindowFunction,
    RecordContext,
    Sink,
    TaskContext,
    TimerService,
    TransactionalSink,
    Window,
    WindowContext,
)
from .job import (
    CheckpointSummary,
    Job,
    JobResult,
    JobSample,
    JobStatus,
    RestartSummary,
    TaskReport,
    TaskSample,
    WorkerSample,
)
from .record_functions import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
)
from .state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OpenContext,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from .streams import (
    AllWindowedStream,
    AsOfJoin,
    BoundedJoin,
    ConnectedStreams,
    IntervalJoin,
    JoinedStreams,
    KeyedStream,
    Stream,
    StreamSink,
    WindowedStream,
)
from .trigger import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeEvictor,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from .watermark import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from .window import EndOfInput, Global, Session, Sliding, Tumbling

if TYPE_CHECKING:
    from .changes import Change, MaterializedTable, RowKind
    from .streams.changing import ChangeJoin, ChangeStream, KeyedChangeStream

__all__ = [
    "ReduceFunction",
    "MapFunction",
    "FlatMapFunction",
    "FilterFunction",
    "CoMapFunction",
    "CoFlatMapFunction",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AllWindowedStream",
    "AsOfJoin",
    "AsyncFunction",
    "BoundedJoin",
    "Change",
    "ChangeJoin",
    "ChangeStream",
    "CheckpointSummary",
    "CoProcessFunction",
    "Collected",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DeltaEvictor",
    "DeltaTrigger",
    "EndOfInput",
    "Environment",
    "EventTimeTrigger",
    "FlownetError",
    "Global",
    "IntervalJoin",
    "Job",
    "JobResult",
    "JobSample",
    "JobStatus",
    "JoinedStreams",
    "KeyedBroadcastProcessFunction",
    "KeyedChangeStream",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MaterializedTable",
    "OpenContext",
    "OutputTag",
    "ProcessContext",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "RecordContext",
    "ReducingState",
    "ReducingStateDescriptor",
    "RestartSummary",
    "RowKind",
    "Session",
    "Sink",
    "Sliding",
    "Stream",
    "StreamSink",
    "TaskContext",
    "TaskReport",
    "TaskSample",
    "TimeEvictor",
    "TimerService",
    "TransactionalSink",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "Tumbling",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "Window",
    "WindowContext",
    "WindowedStream",
    "WorkerSample",
    "__version__",
    "errors",
]

_LATER: Final = {
    **dict.fromkeys(("Change", "MaterializedTable", "RowKind"), ".changes"),
    **dict.fromkeys(("ChangeJoin", "ChangeStream", "KeyedChangeStream"), ".streams.changing"),
}
"""What not every program uses, by the module that is imported when it is."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name], __name__), name)
