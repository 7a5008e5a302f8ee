"""Column types of Spark that rows of flownet do not have, and the types that stand for them.

| Spark | rows |
|---|---|
| ``map<k, v>`` | ``list[struct[map_key: k, map_value: v]]`` |
| ``variant`` | ``struct[variant_value: binary, variant_metadata: binary]`` |

The names of the fields say what they stand for, so a column keeps its meaning on every way through a job, under any
name and nested in others. Both sides of each line have the same buffers in Arrow: a batch is written with one schema
and read with the other.

Strings with a collation are refused, as flownet compares their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from ..errors import PlanError
from .session import arrow_schema


def readable_schema(frame_schema: StructType) -> pyarrow.Schema:
    """Return the Arrow schema of a DataFrame that a job reads.

    Raises
    ------
    PlanError
        A column has a type that would lose its meaning, or that Spark does not hand over.
    """
    for field in frame_schema.fields:
        _refuse_collations(field.name, field.name, field.dataType)
    for field in frame_schema.fields:
        try:
            arrow_schema(StructType([field]))
        except PySparkException as error:
            raise PlanError(
                f"from_spark: column {field.name!r} is of type {field.dataType.simpleString()}, which Spark does not "
                f"hand over as Arrow ({error}): cast it before, such as df.withColumn({field.name!r}, "
                f"df[{field.name!r}].cast('string'))"
            ) from error
    return arrow_schema(frame_schema)


def _refuse_collations(column: str, place: str, data_type: Any) -> None:
    if isinstance(data_type, ArrayType):
        _refuse_collations(column, f"{place}.element", data_type.elementType)
    elif isinstance(data_type, MapType):
        _refuse_collations(column, f"{place}.key", data_type.keyType)
        _refuse_collations(column, f"{place}.value", data_type.valueType)
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            _refuse_collations(column, f"{place}.{field.name}", field.dataType)
    elif isinstance(data_type, StringType) and getattr(data_type, "collation", _BINARY) != _BINARY:
        raise PlanError(
            f"from_spark: column {place!r} has the collation {data_type.collation}, and flownet compares the bytes of "
            "strings, so groups and joins would differ from Spark's: cast it before to the type with string in place "
            f"of {data_type.simpleString()!r}, by df.withColumn({column!r}, df[{column!r}].cast(...))"
        )


def to_rows(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Give a batch of Spark the types of rows."""
    return _reread(batch, rows_schema(batch.schema))


def to_spark(table: pyarrow.Table, schema: pyarrow.Schema) -> list[pyarrow.RecordBatch]:
    """Give rows the types of Spark.

    Raises
    ------
    TypeError
        A value does not fit, such as a key of a map that is null.
    """
    try:
        batches = table.cast(rows_schema(schema)).combine_chunks().to_batches()
        return [_reread(batch, schema) for batch in batches]
    except pyarrow.ArrowInvalid as error:
        raise TypeError(f"rows with the columns {table.schema.names} do not fit the types of Spark: {error}") from error


def rows_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return the types of rows that stand for those of Spark."""
    return _changed(schema, _rows_type)


def spark_schema(schema: pyarrow.Schema) -> pyarrow.Schema:
    """Return the types of Spark that those of rows stand for."""
    return _changed(schema, _spark_type)


def has_maps(data_type: pyarrow.DataType) -> bool:
    """Whether there are maps in values of a type."""
    return pyarrow.types.is_map(data_type) or any(has_maps(child.type) for child in _children(data_type))


def _reread(batch: pyarrow.RecordBatch, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.types == schema.types:
        return pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema)
    return pyarrow.ipc.read_record_batch(batch.serialize(), schema)


def _changed(schema: pyarrow.Schema, change: Callable[[pyarrow.Field], pyarrow.Field]) -> pyarrow.Schema:
    return pyarrow.schema([change(field) for field in schema])


def _rows_type(field: pyarrow.Field) -> pyarrow.Field:
    data_type = field.type
    if pyarrow.types.is_map(data_type):
        key, value = _rows_type(data_type.key_field), _rows_type(data_type.item_field)
        entry = pyarrow.struct([key.with_name(_MAP[0]), value.with_name(_MAP[1])])
        return field.with_type(pyarrow.list_(entry))
    if pyarrow.types.is_struct(data_type):
        names = [child.name for child in data_type]
        is_variant = names == ["value", "metadata"] and (data_type.field(1).metadata or {}).get(b"variant") == b"true"
        if is_variant:
            parts = zip(_VARIANT, data_type, strict=True)
            return field.with_type(pyarrow.struct([pyarrow.field(name, part.type) for name, part in parts]))
    return _with_children(field, _rows_type)


def _spark_type(field: pyarrow.Field) -> pyarrow.Field:
    data_type = field.type
    if pyarrow.types.is_list(data_type) and _names(data_type.value_type) == _MAP:
        key, value = (_spark_type(child) for child in data_type.value_type)
        return field.with_type(pyarrow.map_(key.type, value))
    if _names(data_type) == _VARIANT:
        value = pyarrow.field("value", data_type.field(0).type, nullable=False)
        metadata = pyarrow.field("metadata", data_type.field(1).type, nullable=False, metadata={"variant": "true"})
        return field.with_type(pyarrow.struct([value, metadata]))
    return _with_children(field, _spark_type)


def _with_children(field: pyarrow.Field, change: Callable[[pyarrow.Field], pyarrow.Field]) -> pyarrow.Field:
    """Change the fields inside of a field."""
    data_type = field.type
    if pyarrow.types.is_struct(data_type):
        return field.with_type(pyarrow.struct([change(child) for child in data_type]))
    if pyarrow.types.is_large_list(data_type):
        return field.with_type(pyarrow.large_list(change(data_type.value_field)))
    if pyarrow.types.is_list(data_type):
        return field.with_type(pyarrow.list_(change(data_type.value_field)))
    return field


def _children(data_type: pyarrow.DataType) -> list[pyarrow.Field]:
    return [data_type.field(at) for at in range(data_type.num_fields)]


def _names(data_type: pyarrow.DataType) -> tuple[str, ...]:
    return tuple(child.name for child in data_type) if pyarrow.types.is_struct(data_type) else ()


_MAP = ("map_key", "map_value")
_VARIANT = ("variant_value", "variant_metadata")
_BINARY = "UTF8_BINARY"
