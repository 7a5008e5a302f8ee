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

from ._flownet import __version__

if TYPE_CHECKING:
    from . import errors
    from .api.aggregate import AggregateFunction
    from .api.changes import Change, MaterializedTable, RowKind
    from .api.collected import CollectedRecords
    from .api.context import TaskContext
    from .api.environment import Environment
    from .api.functions import (
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
        TimerService,
        TransactionalSink,
        Window,
        WindowContext,
    )
    from .api.job import Job, Savepoint
    from .api.metrics import Counter, Gauge, Histogram, Meter, Metrics, UserMetric
    from .api.results import Results
    from .api.rich_functions import (
        CoFlatMapFunction,
        CoMapFunction,
        FilterFunction,
        FlatMapFunction,
        MapFunction,
        ReduceFunction,
    )
    from .api.trigger import (
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
    from .api.watermark import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
    from .api.window import EndOfInput, Global, Session, Sliding, Tumbling
    from .connectors.kafka import KafkaRecord, KafkaSink, KafkaSource
    from .connectors.postgres import PostgresSink
    from .connectors.source import Source, SplitReader
    from .connectors.sqlite import SqliteSink
    from .errors import FlownetError
    from .observation.log import LogEntry
    from .observation.report import (
        CheckpointPart,
        CheckpointSummary,
        CheckpointUnderWay,
        JobResult,
        JobStatus,
        OperatorReport,
        RestartSummary,
        TaskReport,
    )
    from .observation.sample import JobSample, TaskSample, WorkerSample
    from .observation.ui import Ui, serve_ui
    from .rows.aggregates import (
        Aggregate,
        collect,
        count,
        count_distinct,
        first,
        last,
        max,
        mean,
        min,
        quantile,
        std,
        sum,
        var,
    )
    from .rows.batch_aggregate import BatchAggregate
    from .rows.collected import CollectedRows
    from .rows.expressions import Expr, coalesce, col, lit, when
    from .rows.keyed import KeyedRows, WindowedRows
    from .rows.results import RowResults
    from .rows.stream import Rows
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
    from .streams.all_windowed import AllWindowedStream
    from .streams.changelog_stream import ChangeJoin, ChangelogStream, KeyedChangelogStream
    from .streams.connected import ConnectedStreams
    from .streams.handle import StreamSink
    from .streams.joined import AsOfJoin, BoundedJoin, IntervalJoin, JoinedStreams
    from .streams.keyed import KeyedStream
    from .streams.stream import Stream
    from .streams.windowed import WindowedStream

__all__ = [
    "Aggregate",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AllWindowedStream",
    "AsOfJoin",
    "AsyncFunction",
    "BatchAggregate",
    "BoundedJoin",
    "Change",
    "ChangeJoin",
    "ChangelogStream",
    "CheckpointPart",
    "CheckpointSummary",
    "CheckpointUnderWay",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "CollectedRecords",
    "CollectedRows",
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
    "Expr",
    "FilterFunction",
    "FlatMapFunction",
    "FlownetError",
    "Global",
    "IntervalJoin",
    "Job",
    "JobResult",
    "JobSample",
    "JobStatus",
    "JoinedStreams",
    "KafkaRecord",
    "KafkaSink",
    "KafkaSource",
    "KeyedBroadcastProcessFunction",
    "KeyedChangelogStream",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedRows",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "LogEntry",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MaterializedTable",
    "OpenContext",
    "OperatorReport",
    "OutputTag",
    "PostgresSink",
    "ProcessContext",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "RecordContext",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RestartSummary",
    "Results",
    "RowKind",
    "RowResults",
    "Rows",
    "Savepoint",
    "Session",
    "Sink",
    "Sliding",
    "Source",
    "SplitReader",
    "SqliteSink",
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
    "Ui",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "Window",
    "WindowContext",
    "WindowedRows",
    "WindowedStream",
    "WorkerSample",
    "__version__",
    "coalesce",
    "col",
    "collect",
    "count",
    "count_distinct",
    "errors",
    "first",
    "last",
    "lit",
    "max",
    "mean",
    "min",
    "quantile",
    "serve_ui",
    "std",
    "sum",
    "var",
    "when",
    "Counter",
    "Gauge",
    "Histogram",
    "Meter",
    "Metrics",
    "UserMetric",
]

_HOMES: Final = {
    ".api.aggregate": ("AggregateFunction",),
    ".api.changes": (
        "Change",
        "MaterializedTable",
        "RowKind",
    ),
    ".api.collected": ("CollectedRecords",),
    ".api.context": ("TaskContext",),
    ".api.environment": ("Environment",),
    ".errors": ("FlownetError",),
    ".api.functions": (
        "AsyncFunction",
        "CoProcessFunction",
        "KeyedBroadcastProcessFunction",
        "KeyedCoProcessFunction",
        "KeyedProcessFunction",
        "OutputTag",
        "ProcessContext",
        "ProcessFunction",
        "ProcessWindowFunction",
        "RecordContext",
        "Sink",
        "TimerService",
        "TransactionalSink",
        "Window",
        "WindowContext",
    ),
    ".api.job": (
        "Job",
        "Savepoint",
    ),
    ".connectors.kafka": (
        "KafkaRecord",
        "KafkaSink",
        "KafkaSource",
    ),
    ".api.metrics": (
        "Counter",
        "Gauge",
        "Histogram",
        "Meter",
        "Metrics",
        "UserMetric",
    ),
    ".connectors.postgres": ("PostgresSink",),
    ".api.rich_functions": (
        "CoFlatMapFunction",
        "CoMapFunction",
        "FilterFunction",
        "FlatMapFunction",
        "MapFunction",
        "ReduceFunction",
    ),
    ".observation.log": ("LogEntry",),
    ".connectors.source": (
        "Source",
        "SplitReader",
    ),
    ".api.results": ("Results",),
    ".rows.aggregates": (
        "Aggregate",
        "collect",
        "count",
        "count_distinct",
        "first",
        "last",
        "max",
        "mean",
        "min",
        "quantile",
        "std",
        "sum",
        "var",
    ),
    ".rows.batch_aggregate": ("BatchAggregate",),
    ".rows.collected": ("CollectedRows",),
    ".rows.expressions": ("Expr", "coalesce", "col", "lit", "when"),
    ".rows.keyed": ("KeyedRows", "WindowedRows"),
    ".rows.results": ("RowResults",),
    ".rows.stream": ("Rows",),
    ".connectors.sqlite": ("SqliteSink",),
    ".observation.report": (
        "CheckpointPart",
        "CheckpointSummary",
        "CheckpointUnderWay",
        "JobResult",
        "JobStatus",
        "OperatorReport",
        "RestartSummary",
        "TaskReport",
    ),
    ".observation.sample": (
        "JobSample",
        "TaskSample",
        "WorkerSample",
    ),
    ".state": (
        "AggregatingState",
        "AggregatingStateDescriptor",
        "ListState",
        "ListStateDescriptor",
        "MapState",
        "MapStateDescriptor",
        "OpenContext",
        "ReducingState",
        "ReducingStateDescriptor",
        "ValueState",
        "ValueStateDescriptor",
    ),
    ".streams.all_windowed": ("AllWindowedStream",),
    ".streams.connected": ("ConnectedStreams",),
    ".streams.handle": ("StreamSink",),
    ".streams.joined": (
        "AsOfJoin",
        "BoundedJoin",
        "IntervalJoin",
        "JoinedStreams",
    ),
    ".streams.keyed": ("KeyedStream",),
    ".streams.stream": ("Stream",),
    ".streams.windowed": ("WindowedStream",),
    ".streams.changelog_stream": (
        "ChangeJoin",
        "ChangelogStream",
        "KeyedChangelogStream",
    ),
    ".api.trigger": (
        "ContinuousEventTimeTrigger",
        "ContinuousProcessingTimeTrigger",
        "CountEvictor",
        "CountTrigger",
        "DeltaEvictor",
        "DeltaTrigger",
        "EventTimeTrigger",
        "ProcessingTimeTrigger",
        "PurgingTrigger",
        "TimeEvictor",
        "Trigger",
        "TriggerContext",
        "TriggerResult",
    ),
    ".observation.ui": ("Ui", "serve_ui"),
    ".api.watermark": (
        "WatermarkGenerator",
        "WatermarkOutput",
        "WatermarkStrategy",
    ),
    ".api.window": (
        "EndOfInput",
        "Global",
        "Session",
        "Sliding",
        "Tumbling",
    ),
}
"""Everything, by the module that is imported when somebody asks for it: a worker describes no dataflow."""

_LATER: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "errors"})
