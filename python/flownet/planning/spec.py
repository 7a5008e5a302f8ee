"""The types of a plan: settings of operators, as the planner in Rust reads them.

Written by ``tests/python/meta/plan_types.py`` from ``rust/flownet-runtime/src/spec``; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Clock = Literal["processing", "event"]
"""The clock that a timer or window follows."""


CalendarUnit = Literal["day", "week", "month"]
"""The unit of a calendar span."""


class WatermarksBounded(TypedDict):
    """The latest timestamp so far, minus the bound on out-of-orderness, minus one."""

    delay_ms: int


class WatermarksMap(TypedDict, total=False):
    """The way watermarks are generated: exactly one of these, with its settings."""

    bounded: WatermarksBounded


Watermarks = Literal["unordered", "own", "never"] | WatermarksMap
"""The way watermarks are generated."""


class Alignment(TypedDict):
    """The group that a source is aligned with, and the greatest drift."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


RateUnit = Literal["records", "bytes"]
"""Unit that a `RateLimit` counts."""


class RateLimit(TypedDict):
    """Highest rate of a source, or of one subtask of it."""

    per_second: float
    unit: RateUnit


class WindowGrid(TypedDict):
    """Windows of one size that begin at regular times."""

    size_ms: int
    slide_ms: int
    offset_ms: NotRequired[int]


class WindowCalendar(TypedDict):
    """Days, weeks or months of a time zone."""

    zone: str
    unit: CalendarUnit
    count: int
    offset_ms: NotRequired[int]


class WindowSession(TypedDict):
    """Records with no gap between them."""

    gap_ms: NotRequired[int | None]


class WindowAssignerMap(TypedDict, total=False):
    """Assigns windows to records: exactly one of these, with its settings."""

    grid: WindowGrid
    calendar: WindowCalendar
    session: WindowSession


WindowAssigner = Literal["global"] | WindowAssignerMap
"""Assigns windows to records."""


class TriggerWhenMap(TypedDict, total=False):
    """When results of a window are emitted: exactly one of these, with its settings."""

    count: int
    every: int


TriggerWhen = Literal["at_end", "never", "own"] | TriggerWhenMap
"""When results of a window are emitted."""


class TriggerSpec(TypedDict):
    """When results of a window are emitted."""

    when: TriggerWhen
    purges: NotRequired[bool]


class WindowSpec(TypedDict):
    """The windows, and the time of their results."""

    assign: WindowAssigner
    clock: NotRequired[Clock]
    trigger: NotRequired[TriggerSpec | None]
    lateness_ms: NotRequired[int]
    late_tag: NotRequired[str | None]
    with_key: NotRequired[bool]
    with_window: NotRequired[bool]
    is_whole: NotRequired[bool]


Field = int | str
"""Part of a record."""


class FoldSum(TypedDict):
    """Adds values."""

    field: Field | None


class FoldMin(TypedDict):
    """The least value."""

    field: Field | None


class FoldMax(TypedDict):
    """The greatest value."""

    field: Field | None


class FoldMean(TypedDict):
    """The sum divided by the number of values."""

    field: Field | None


class FoldMinBy(TypedDict):
    """The record with the least value."""

    field: Field | None


class FoldMaxBy(TypedDict):
    """The record with the greatest value."""

    field: Field | None


class FoldMap(TypedDict, total=False):
    """Folds the records of a key into one value: exactly one of these, with its settings."""

    sum: FoldSum
    min: FoldMin
    max: FoldMax
    mean: FoldMean
    min_by: FoldMinBy
    max_by: FoldMaxBy


Fold = Literal["reduce", "aggregate", "collect", "pairs", "count"] | FoldMap
"""Folds the records of a key into one value."""


InvalidUtf8 = Literal["strict", "replace", "ignore"]
"""Treatment of bytes that are not UTF-8 in text."""


LineFormat = Literal["text", "json", "csv"]
"""Format of the lines of a file."""


ProcessInputs = Literal["one", "two", "broadcast"]
"""Inputs of a process function."""


RowFormat = Literal["parquet", "csv", "json"]
"""Format of files of rows."""


class RowsRank(TypedDict):
    """A ranking of rows."""

    by: str
    descending: bool
    count: int
    ties: bool
    window: WindowSpec


class RowsLate(TypedDict):
    """A side output for late rows."""

    tag: str
    schema: Any


class RowsJoinRegular(TypedDict):
    """All rows match."""


class RowsJoinInterval(TypedDict):
    """Rows that are near in event time."""

    lower_ms: int
    upper_ms: int


class RowsJoinAsOf(TypedDict):
    """Each row of the first input and the newest version of the second at its time."""

    keeps_unmatched: bool


class RowsJoinWindow(TypedDict):
    """Rows in one window."""

    window: WindowSpec


class RowsJoin(TypedDict, total=False):
    """The rule by which rows of one key match: exactly one of these, with its settings."""

    regular: RowsJoinRegular
    interval: RowsJoinInterval
    as_of: RowsJoinAsOf
    window: RowsJoinWindow


class RowsKindFromArrow(TypedDict):
    """Source: the batches of Arrow streams, which is the payload."""

    schema: Any
    makes_its_own: NotRequired[bool]
    repeatable: NotRequired[bool]
    time_column: NotRequired[str | None]


class RowsKindReadFiles(TypedDict):
    """Source: the rows of files, in splits that subtasks share."""

    schema: Any
    format: RowFormat


class RowsKindProject(TypedDict):
    """Projections and filters."""

    input: Any
    steps: Any


class RowsKindMapBatches(TypedDict):
    """A user's function of batches, which is the payload."""

    input: Any
    output: Any


class RowsKindAssignTimestamps(TypedDict):
    """Assigns times to rows, and generates watermarks."""

    input: Any
    column: str
    watermarks: Watermarks
    idle_after_ms: NotRequired[int | None]
    max_ahead_ms: NotRequired[int | None]


class RowsKindPartial(TypedDict):
    """By key, upstream of the exchange: partial aggregates of the rows of each key and slice."""

    input: Any
    keys: list[str]
    aggregates: Any
    window: NotRequired[WindowSpec | None]
    kept: NotRequired[list[str]]


class RowsKindAggregate(TypedDict):
    """By key, downstream of the exchange: merges partial aggregates, for each window or so far."""

    input: Any
    keys: list[str]
    aggregates: Any
    window: NotRequired[WindowSpec | None]
    kept: NotRequired[list[str]]


class RowsKindKeyRows(TypedDict):
    """By key, upstream of the exchange: single rows, for a downstream operator that stores them."""

    input: Any
    keys: list[str]
    carried: list[str]
    output: Any
    keeps_null_keys: bool
    rank: NotRequired[RowsRank | None]
    bundles: NotRequired[bool]


class RowsKindJoin(TypedDict):
    """By key, downstream of the exchange: pairs of matching rows of two inputs, side by side."""

    left: Any
    right: Any
    shown: list[str]
    output: Any
    by: RowsJoin
    late: NotRequired[list[RowsLate | None]]
    kept: list[str]


class RowsKindDeduplicate(TypedDict):
    """By key, downstream of the exchange: the first row of each key."""

    input: Any
    ttl_ms: NotRequired[int | None]
    clock: NotRequired[Clock]
    kept: list[str]


class RowsKindTopN(TypedDict):
    """By key, downstream of the exchange: the best rows of a window."""

    input: Any
    rank: RowsRank
    kept: list[str]


class RowsKindToObjects(TypedDict):
    """Converts rows to records that are objects."""

    input: Any
    as_dicts: NotRequired[bool]


class RowsKindToRows(TypedDict):
    """Converts records that are objects to rows."""

    output: Any


class RowsKindCollect(TypedDict):
    """Sink: to the process of the caller."""

    input: Any


class RowsKindWriteFiles(TypedDict):
    """Sink: into files of a folder, which get their final names when they are complete."""

    input: Any
    path: bytes
    format: RowFormat
    delimiter: NotRequired[str | None]
    header: NotRequired[str | None]
    partition_by: NotRequired[list[str]]


class RowsKindSink(TypedDict):
    """Sink: to a user's object, which is the payload."""

    input: Any
    format: str


class RowsKind(TypedDict, total=False):
    """Kind of an operator on rows: exactly one of these, with its settings."""

    from_arrow: RowsKindFromArrow
    read_files: RowsKindReadFiles
    project: RowsKindProject
    map_batches: RowsKindMapBatches
    assign_timestamps: RowsKindAssignTimestamps
    partial: RowsKindPartial
    aggregate: RowsKindAggregate
    key_rows: RowsKindKeyRows
    join: RowsKindJoin
    deduplicate: RowsKindDeduplicate
    top_n: RowsKindTopN
    to_objects: RowsKindToObjects
    to_rows: RowsKindToRows
    collect: RowsKindCollect
    write_files: RowsKindWriteFiles
    sink: RowsKindSink


class FromIterable(TypedDict):
    """Source: the items of an iterator, which is the payload."""

    makes_its_own: NotRequired[bool]
    tells_splits: NotRequired[bool]


class FromScript(TypedDict):
    """Source: records and event time from a script, which is the payload."""

    timestamps: NotRequired[bool]


class ReadText(TypedDict):
    """Source: the lines of files, which are distributed to the subtasks."""

    paths: list[bytes]
    errors: NotRequired[InvalidUtf8]
    splits: NotRequired[list[object]]


class SocketText(TypedDict):
    """Source: the lines that a server sends."""

    host: str
    port: int
    errors: NotRequired[InvalidUtf8]


class MapAsync(TypedDict):
    """One record for each, or any number, from asynchronous calls, several of which run at a time."""

    capacity: int
    timeout_ms: NotRequired[int | None]
    ordered: NotRequired[bool]
    flat: NotRequired[bool]


class AssignTimestamps(TypedDict):
    """Assigns times to records, and generates watermarks."""

    watermarks: Watermarks
    idle_after_ms: NotRequired[int | None]
    alignment: NotRequired[Alignment | None]
    max_ahead_ms: NotRequired[int | None]


class Window(TypedDict):
    """By key: folds the records of a window into one value."""

    fold: Fold
    window: WindowSpec


class Process(TypedDict):
    """By key: a function with state and timers."""

    inputs: NotRequired[ProcessInputs]


class IntervalJoin(TypedDict):
    """By key: joins records of two inputs that are near in event time."""

    lower_ms: int
    upper_ms: int
    late_tags: NotRequired[list[str | None]]


class AsOfJoin(TypedDict):
    """By key: joins records of the first input with the newest version of the second at their time."""

    keeps_unmatched: NotRequired[bool]
    late_tags: NotRequired[list[str | None]]


class ProcessAll(TypedDict):
    """A function with side outputs."""

    inputs: NotRequired[ProcessInputs]


class IterationHead(TypedDict):
    """Begin of an iteration: takes the records of its input, and those that its end feeds back."""

    iteration: int


class IterationTail(TypedDict):
    """End of an iteration."""

    iteration: int
    memory_bytes: int
    disk_bytes: int


class Print(TypedDict):
    """Sink: to standard output."""

    prefix: NotRequired[str | None]


class WriteFiles(TypedDict):
    """Sink: lines to files in a folder."""

    path: bytes
    format: NotRequired[LineFormat]
    header: NotRequired[str | None]


class Custom(TypedDict):
    """A kind that only the chain factory of an embedding engine knows."""

    name: str
    settings: dict[str, str]


class OperatorKindMap(TypedDict, total=False):
    """Kind of one operator: exactly one of these, with its settings."""

    from_iterable: FromIterable
    from_script: FromScript
    read_text: ReadText
    socket_text: SocketText
    map_async: MapAsync
    assign_timestamps: AssignTimestamps
    fold: Fold
    window: Window
    process: Process
    interval_join: IntervalJoin
    as_of_join: AsOfJoin
    process_all: ProcessAll
    iteration_head: IterationHead
    iteration_tail: IterationTail
    print: Print
    write_files: WriteFiles
    rows: RowsKind
    custom: Custom


OperatorKind = (
    Literal["from_collection", "from_source", "map", "flat_map", "filter", "collect", "sink"] | OperatorKindMap
)
"""Kind of one operator."""
