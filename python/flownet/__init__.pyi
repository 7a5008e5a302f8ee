"""The public names, each with the module that defines it. `flownet` loads a name from there when it is used."""

from . import errors as errors
from ._flownet import __version__ as __version__
from .api.aggregate import AggregateFunction as AggregateFunction
from .api.changes import Change as Change, MaterializedTable as MaterializedTable, RowKind as RowKind
from .api.collected import CollectedRecords as CollectedRecords
from .api.context import TaskContext as TaskContext
from .api.environment import Environment as Environment
from .api.functions import (
    AsyncFunction as AsyncFunction,
    CoProcessFunction as CoProcessFunction,
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction as KeyedCoProcessFunction,
    KeyedProcessFunction as KeyedProcessFunction,
    OutputTag as OutputTag,
    ProcessContext as ProcessContext,
    ProcessFunction as ProcessFunction,
    ProcessWindowFunction as ProcessWindowFunction,
    RecordContext as RecordContext,
    Sink as Sink,
    TimerService as TimerService,
    TransactionalSink as TransactionalSink,
    Window as Window,
    WindowContext as WindowContext,
)
from .api.job import Job as Job, Savepoint as Savepoint
from .api.metrics import (
    Counter as Counter,
    Gauge as Gauge,
    Histogram as Histogram,
    Meter as Meter,
    Metrics as Metrics,
    UserMetric as UserMetric,
)
from .api.results import Results as Results
from .api.rich_functions import (
    CoFlatMapFunction as CoFlatMapFunction,
    CoMapFunction as CoMapFunction,
    FilterFunction as FilterFunction,
    FlatMapFunction as FlatMapFunction,
    MapFunction as MapFunction,
    ReduceFunction as ReduceFunction,
)
from .api.trigger import (
    ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    CountEvictor as CountEvictor,
    CountTrigger as CountTrigger,
    DeltaEvictor as DeltaEvictor,
    DeltaTrigger as DeltaTrigger,
    EventTimeTrigger as EventTimeTrigger,
    ProcessingTimeTrigger as ProcessingTimeTrigger,
    PurgingTrigger as PurgingTrigger,
    TimeEvictor as TimeEvictor,
    Trigger as Trigger,
    TriggerContext as TriggerContext,
    TriggerResult as TriggerResult,
)
from .api.watermark import (
    WatermarkGenerator as WatermarkGenerator,
    WatermarkOutput as WatermarkOutput,
    WatermarkStrategy as WatermarkStrategy,
)
from .api.window import (
    EndOfInput as EndOfInput,
    Global as Global,
    Session as Session,
    Sliding as Sliding,
    Tumbling as Tumbling,
)
from .connectors.kafka import KafkaRecord as KafkaRecord, KafkaSink as KafkaSink, KafkaSource as KafkaSource
from .connectors.postgres import PostgresSink as PostgresSink
from .connectors.source import Source as Source, SplitReader as SplitReader
from .connectors.sqlite import SqliteSink as SqliteSink
from .errors import FlownetError as FlownetError
from .observation.log import LogEntry as LogEntry
from .observation.report import JobResult as JobResult, JobStatus as JobStatus
from .observation.ui import Ui as Ui, serve_ui as serve_ui
from .rows.aggregates import (
    Aggregate as Aggregate,
    collect as collect,
    count as count,
    count_distinct as count_distinct,
    first as first,
    last as last,
    max as max,
    mean as mean,
    min as min,
    quantile as quantile,
    std as std,
    sum as sum,
    var as var,
)
from .rows.batch_aggregate import BatchAggregate as BatchAggregate
from .rows.collected import CollectedRows as CollectedRows
from .rows.expressions import Expr as Expr, coalesce as coalesce, col as col, lit as lit, when as when
from .rows.keyed import KeyedRows as KeyedRows, WindowedRows as WindowedRows
from .rows.results import RowResults as RowResults
from .rows.stream import Rows as Rows
from .state import (
    AggregatingState as AggregatingState,
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    ListState as ListState,
    ListStateDescriptor as ListStateDescriptor,
    MapState as MapState,
    MapStateDescriptor as MapStateDescriptor,
    OpenContext as OpenContext,
    ReducingState as ReducingState,
    ReducingStateDescriptor as ReducingStateDescriptor,
    ValueState as ValueState,
    ValueStateDescriptor as ValueStateDescriptor,
)
from .streams.all_windowed import AllWindowedStream as AllWindowedStream
from .streams.changelog_stream import (
    ChangeJoin as ChangeJoin,
    ChangelogStream as ChangelogStream,
    KeyedChangelogStream as KeyedChangelogStream,
)
from .streams.connected import ConnectedStreams as ConnectedStreams
from .streams.handle import StreamSink as StreamSink
from .streams.joined import (
    AsOfJoin as AsOfJoin,
    BoundedJoin as BoundedJoin,
    IntervalJoin as IntervalJoin,
    JoinedStreams as JoinedStreams,
)
from .streams.keyed import KeyedStream as KeyedStream
from .streams.stream import Stream as Stream
from .streams.windowed import WindowedStream as WindowedStream

__all__: list[str]
