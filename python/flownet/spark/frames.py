"""DataFrames as sources and results of dataflows: read and written by the tasks of the barrier stage themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from .. import config
from ..dataflow import Dataflow, Node, Origin, Owner
from ..errors import ConfigError, PlanError
from ..functions import Sink
from ..rows.schemas import schema_of
from . import slots
from .cluster import Cluster
from .door import the_door
from .session import arrow_schema, is_connect

if TYPE_CHECKING:
    from .. import _flownet


def read(dataflow: Dataflow, frame: DataFrame, as_dicts: bool) -> Node:
    """Add a source of the rows of a DataFrame, each a record."""
    _check(frame)
    return dataflow.add(
        "from_iterable",
        name="from_spark",
        function=functools.partial(_own_share, as_dicts),
        settings={"makes_its_own": True},
        host_input=frame,
        is_bounded=True,
    )


def read_rows(dataflow: Dataflow, frame: DataFrame) -> tuple[Node, _flownet.RowSchema]:
    """Add a source of the rows of a DataFrame, as a stream of rows.

    Raises
    ------
    PlanError
        A column is of a type that rows cannot have.
    """
    _check(frame)
    try:
        found = arrow_schema(frame.schema)
    except PySparkException as error:
        raise PlanError(f"from_spark: {error}") from error
    schema = schema_of("from_spark", found)
    settings = {"from_arrow": {"schema": schema.planned(), "makes_its_own": True}}
    share = functools.partial(_own_batches, pyarrow.schema(schema))
    node = dataflow.add("rows", name="from_spark", function=share, settings=settings, host_input=frame, is_bounded=True)
    return node, schema


def _check(frame: DataFrame) -> None:
    if not hasattr(frame, "mapInArrow"):
        raise ConfigError(f"from_spark() takes a DataFrame of PySpark, not {type(frame).__name__}", setting="frame")
    if not frame.columns:
        raise ConfigError("from_spark() takes a DataFrame with at least one column", setting="frame")


def write(
    env: Owner, origins: tuple[Origin, ...], schema: str | StructType, workers: int | None, launch_timeout: Any
) -> DataFrame:
    """Run the dataflow inside Spark and return the records of a stream as a DataFrame."""
    columns = columns_of(schema)

    def end(dataflow: Dataflow) -> None:
        dataflow.add("sink", inputs=origins, function=FrameSink(columns), name="to_spark")

    return _run(env, columns, end, workers, launch_timeout)


def write_rows(
    env: Owner, origins: tuple[Origin, ...], schema: _flownet.RowSchema, workers: int | None, launch_timeout: Any
) -> DataFrame:
    """Run the dataflow inside Spark and return rows as a DataFrame.

    Raises
    ------
    PlanError
        A column is of a type that Spark has not.
    """
    try:
        columns = from_arrow_schema(pyarrow.schema(schema), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise PlanError(f"to_spark: {error}") from error

    def end(dataflow: Dataflow) -> None:
        settings = {"sink": {"input": schema.planned(), "format": "arrow"}}
        dataflow.add("rows", inputs=origins, settings=settings, function=BatchSink(columns), name="to_spark")

    return _run(env, columns, end, workers, launch_timeout)


def _run(
    env: Owner, columns: StructType, end: Callable[[Dataflow], None], workers: int | None, launch_timeout: Any
) -> DataFrame:
    inputs = env._dataflow.host_inputs()
    spark = inputs[0].sparkSession if inputs else SparkSession.getActiveSession()
    if spark is None:
        raise ConfigError("to_spark() found no Spark session: make one, or begin with env.from_spark(df)")
    if workers is None:
        workers = _usual_workers(spark, inputs[0] if inputs else None)
    limit = config.duration_us("launch_timeout", launch_timeout) / 1e6
    host = Cluster(spark, config.workers("workers", workers), None, limit, result=columns)
    # Another call, or a job of the environment itself, runs the dataflow without this sink.
    dataflow = env._dataflow.branch()
    end(dataflow)
    with env._submit(dataflow, on=host) as job:
        job.wait()
    return host.result()


class FrameSink(Sink[Any]):
    """Gives records to Spark as rows: tuples, dicts by column name, or the value itself if there is one column.

    Parameters
    ----------
    columns
        Of the DataFrame.
    """

    def __init__(self, columns: StructType) -> None:
        self._columns = columns

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
            the_door().give(to_batch(rows, self._schema))


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
            for batch in table.cast(self._schema).combine_chunks().to_batches():
                the_door().give(batch)


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


def _own_share(as_dicts: bool, subtask: int, subtasks: int) -> Iterable[Any]:
    return the_door().records(as_dicts)


def _own_batches(schema: pyarrow.Schema, subtask: int, subtasks: int) -> pyarrow.RecordBatchReader:
    # Spark says times in the zone of its session.
    return pyarrow.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in the_door().batches()))


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


def _usual_workers(spark: SparkSession, frame: DataFrame | None) -> int:
    """As many as Spark can run at once, at most one for each partition."""
    if is_connect(spark):
        raise PlanError("over Spark Connect nobody can count the free task slots: give to_spark(workers=...)")
    places = slots.count(spark)
    return max(1, places if frame is None else min(places, frame.rdd.getNumPartitions()))


_ROWS_PER_BATCH = 8192
