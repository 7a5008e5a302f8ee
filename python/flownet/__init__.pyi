"""The public names, each with the module that defines it. `flownet` loads a name from there when it is used.

A program that describes a dataflow uses these. Classes that its methods return are in `flownet.streams`, `flownet.rows`
and `flownet.observation`.
"""

from . import (
    errors as errors,
    metrics as metrics,
    observation as observation,
    rows as rows,
    state as state,
    streams as streams,
    triggers as triggers,
)
from ._flownet import __version__ as __version__
from .api.aggregate import AggregateFunction as AggregateFunction
from .api.changes import Change as Change, MaterializedTable as MaterializedTable, RowKind as RowKind
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
from .api.rich_functions import (
    CoFlatMapFunction as CoFlatMapFunction,
    CoMapFunction as CoMapFunction,
    FilterFunction as FilterFunction,
    FlatMapFunction as FlatMapFunction,
    MapFunction as MapFunction,
    ReduceFunction as ReduceFunction,
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
from .observation.ui import serve_ui as serve_ui
from .rows.aggregates import (
    approx_count_distinct as approx_count_distinct,
    approx_quantile as approx_quantile,
    collect as collect,
    count as count,
    first as first,
    last as last,
    max as max,
    mean as mean,
    min as min,
    std as std,
    sum as sum,
    var as var,
)
from .rows.batch_aggregate import BatchAggregate as BatchAggregate
from .rows.expressions import Expr as Expr, coalesce as coalesce, col as col, lit as lit, when as when
from .rows.functions.several import (
    concat as concat,
    concat_ws as concat_ws,
    greatest as greatest,
    least as least,
)
from .rows.keyed import KeyedRows as KeyedRows
from .rows.stream import Rows as Rows
from .state import (
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    ListStateDescriptor as ListStateDescriptor,
    MapStateDescriptor as MapStateDescriptor,
    OpenContext as OpenContext,
    ReducingStateDescriptor as ReducingStateDescriptor,
    ValueStateDescriptor as ValueStateDescriptor,
)
from .streams.keyed import KeyedStream as KeyedStream
from .streams.stream import Stream as Stream

__all__: list[str]
