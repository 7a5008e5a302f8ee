"""DataFrames as sources and results of dataflows: read and written by the tasks of the barrier stage themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ..api.functions import Sink
from ..errors import ConfigError, PlanError
from ..internal import config
from ..planning import spec
from ..planning.dataflow import Dataflow, DataflowOwner, Node, Origin
from ..rows.schemas import schema_of
from . import slots
from .cluster import Cluster
from .column_types import readable_schema, rows_schema, spark_schema, to_rows, to_spark
from .frame_input import FrameInput
from .result_frame import SparkResult
from .session import arrow_schema, is_connect
from .task_bridge import the_door

if TYPE_CHECKING:
    from .. import _flownet


def read(dataflow: Dataflow, frame: DataFrame, as_dicts: bool, is_ordered: bool) -> Node:
    """Add a source of the rows of a DataFrame, each a record.

    Raises
    ------
    PlanError
        A column is of a type that cannot go through a job.
    """
    _check(frame)
    readable_schema(frame.schema)
    node = dataflow.add({"from_iterable": {"makes_its_own": True}}, name="from_spark", is_bounded=True)
    _bind(node, frame, functools.partial(_own_share, node.id, as_dicts), is_ordered)
    return node


def read_rows(dataflow: Dataflow, frame: DataFrame, is_ordered: bool) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the rows of a DataFrame, as a stream of rows.

    Raises
    ------
    PlanError
        A column is of a type that rows cannot have.
    """
    _check(frame)
    schema = schema_of("from_spark", rows_schema(readable_schema(frame.schema)))
    kind: spec.RowsKind = {"from_arrow": {"schema": schema.planned(), "makes_its_own": True}}
    node = dataflow.add({"rows": kind}, name="from_spark", is_bounded=True)
    _bind(node, frame, functools.partial(_own_batches, node.id, pyarrow.schema(schema)), is_ordered)
    return node, schema


def _bind(node: Node, frame: DataFrame, share: Callable[[int, int], Any], is_ordered: bool) -> None:
    node.function = share
    node.host_input = FrameInput(frame, node.id, is_ordered)
    node.has_order = is_ordered


def _check(frame: DataFrame) -> None:
    if not hasattr(frame, "mapInArrow"):
        raise ConfigError(f"from_spark() takes a DataFrame of PySpark, not {type(frame).__name__}", setting="frame")
    if not frame.columns:
        raise ConfigError("from_spark() takes a DataFrame with at least one column", setting="frame")
    if frame.isStreaming:
        raise ConfigError(
            "from_spark() takes a DataFrame that ends, not a streaming one: bring its rows by flownet.spark.Inlet",
            setting="frame",
        )


def add_sink(dataflow: Dataflow, origins: tuple[Origin, ...], schema: str | StructType) -> SparkResult:
    """Add a sink of records, whose result is filled by a job inside Spark."""
    columns = columns_of(schema)
    node = dataflow.add("sink", inputs=origins, name="to_spark")
    result = SparkResult(columns, node.id)
    node.function, node.host_output = FrameSink(columns, node.id), result
    return result


def add_rows_sink(dataflow: Dataflow, origins: tuple[Origin, ...], schema: _flownet.RowSchema) -> SparkResult:
    """Add a sink of rows, whose result is filled by a job inside Spark.

    Raises
    ------
    PlanError
        A column is of a type that Spark has not.
    """
    try:
        columns = from_arrow_schema(spark_schema(pyarrow.schema(schema)), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise PlanError(f"to_spark: {error}") from error
    kind: spec.RowsKind = {"sink": {"input": schema.planned(), "format": "arrow"}}
    node = dataflow.add({"rows": kind}, inputs=origins, name="to_spark")
    result = SparkResult(columns, node.id)
    node.function, node.host_output = BatchSink(columns, node.id), result
    return result


def run(
    env: DataflowOwner, add: Callable[[Dataflow], SparkResult], workers: int | None, launch_timeout: Any
) -> DataFrame:
    """Run the dataflow of an environment and one sink more inside Spark, and return what that brings."""
    frames = [given.frame for given in env._dataflow.host_inputs()]
    spark = frames[0].sparkSession if frames else SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError("to_spark() found no Spark session: make one, or begin with env.from_spark(df)")
    if workers is None:
        workers = _usual_workers(spark, frames)
    limit = config.duration_us("launch_timeout", launch_timeout) / 1e6
    host = Cluster(spark, config.workers("workers", workers), None, limit)
    # Another call, or a job of the environment itself, runs the dataflow without this sink.
    dataflow = env._dataflow.branch()
    result = add(dataflow)
    with env._submit(dataflow, on=host) as job:
        job.wait()
    return result.frame


class FrameSink(Sink[Any]):
    """Gives records to Spark as rows: tuples, dicts by column name, or the value itself if there is one column.

    Parameters
    ----------
    columns
        Of the DataFrame.
    result
        Number of the result.
    """

    def __init__(self, columns: StructType, result: int) -> None:
        self._columns, self._result = columns, result

    def open(self, ctx: object) -> None:
        """Prepare the subtask."""
        self._schema = arrow_schema(self._columns)
        self._gathered = list[Any]()

    def write(self, records: list[Any]) -> None:
        """Gather rows; small batches would cost Spark more than the rows in them."""
        self._gathered += records
        if len(self._gathered) >= _ROWS_PER_BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand on what is gathered."""
        if self._gathered:
            rows, self._gathered = self._gathered, []
            the_door().give(self._result, to_batch(rows, self._schema))


class BatchSink(FrameSink):
    """The same of batches of rows."""

    def write(self, records: list[pyarrow.RecordBatch]) -> None:
        """Gather batches; small ones would cost Spark more than the rows in them."""
        self._gathered += records
        if sum(batch.num_rows for batch in self._gathered) >= _ROWS_PER_BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand on what is gathered."""
        if self._gathered:
            table, self._gathered = pyarrow.Table.from_batches(self._gathered), []
            for batch in to_spark(table, self._schema):
                the_door().give(self._result, batch)


def to_batch(rows: list[Any], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Turn rows into a batch, column by column.

    Raises
    ------
    TypeError
        A row does not fit; the message names it and the column.
    """
    try:
        if isinstance(rows[0], dict):
            columns: Iterable[Any] = [[row[name] for row in rows] for name in schema.names]
        elif isinstance(rows[0], tuple):
            columns = zip(*rows, strict=True)
        else:
            columns = [rows]
        arrays = [pyarrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
    except (pyarrow.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise TypeError(_misfit(rows, schema) or str(error)) from error


def _misfit(rows: list[Any], schema: pyarrow.Schema) -> str | None:
    """Find the first row that does not fit, and say why."""
    for row in rows:
        if isinstance(row, dict):
            missing = [name for name in schema.names if name not in row]
            if missing:
                return f"record {row!r:.200} has no {missing[0]!r}; the schema has the columns {schema.names}"
            values = [row[name] for name in schema.names]
        elif isinstance(row, tuple):
            values = list(row)
        else:
            values = [row]
        if len(values) != len(schema):
            return f"record {row!r:.200} has {len(values)} fields; the schema has {len(schema)}: {schema.names}"
        for value, field in zip(values, schema, strict=True):
            try:
                pyarrow.array([value], type=field.type)
            except (pyarrow.ArrowException, AttributeError, TypeError, ValueError) as error:
                return f"record {row!r:.200} does not fit column {field.name!r} of type {field.type}: {error}"
    return None


def _own_share(source: int, as_dicts: bool, subtask: int, subtasks: int) -> Iterable[Any]:
    return the_door().records(source, as_dicts)


def _own_batches(source: int, schema: pyarrow.Schema, subtask: int, subtasks: int) -> pyarrow.RecordBatchReader:
    # Spark says times in the zone of its session.
    batches = (to_rows(batch).cast(schema) for batch in the_door().batches(source))
    return pyarrow.RecordBatchReader.from_batches(schema, batches)


def columns_of(schema: str | StructType) -> StructType:
    """Read a schema.

    Raises
    ------
    ConfigError
        It is none, or has no columns.
    """
    try:
        columns: Any = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
        if not columns.fields:
            raise ConfigError("schema has no column", setting="schema", value=schema)
        arrow_schema(columns)
    except (PySparkException, AttributeError, TypeError) as error:
        # Where Spark says where the text goes wrong, its first line says what.
        reason = str(error).strip().partition("\n")[0]
        text = f"schema={schema!r} is no schema of Spark such as 'carrier string, flights long': {reason}"
        raise ConfigError(text, setting="schema", value=schema) from error
    return StructType(columns.fields)


def _usual_workers(spark: SparkSession, frames: Sequence[DataFrame]) -> int:
    """As many as Spark can run at once, at most one for each partition."""
    if is_connect(spark):
        raise PlanError("over Spark Connect nobody can count the free task slots: give to_spark(workers=...)")
    places = slots.count(spark)
    partitions = [frame.rdd.getNumPartitions() for frame in frames]
    return max(1, min(places, sum(partitions)) if frames else places)


_ROWS_PER_BATCH = 8192
