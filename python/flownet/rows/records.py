"""Records that are objects, as rows: what `Stream.to_rows` does not do in Rust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


def values_of(record: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """Find the values of a record by the names of the columns.

    Raises
    ------
    TypeError
        It is of a kind that has no columns.
    ValueError
        It is a sequence with another number of values.
    """
    if isinstance(record, Mapping):
        return tuple(map(record.get, names))
    if isinstance(record, Sequence) and not isinstance(record, str | bytes | bytearray):
        if len(record) != len(names):
            raise ValueError(f"it has {len(record)} values, where there are {len(names)} columns")
        return tuple(record)
    for name in names:
        if not hasattr(record, name):
            raise TypeError(
                f"it is of type {type(record).__name__} and has no {name!r}: rows are made of dicts, of tuples with a "
                "value for each column, and of objects with an attribute for each"
            )
    return tuple(getattr(record, name) for name in names)


def column(values: list[Any], schema: Any) -> pyarrow.RecordBatch:
    """Make a column of values that pyarrow knows: times, decimals, lists and structs.

    Raises
    ------
    ValueError
        One of them does not fit.
    """
    import pyarrow

    wanted = pyarrow.schema(schema)
    field = wanted.field(0)
    if _has_times(field.type):
        for value in values:
            if _mixes_times(value, field.type):
                raise ValueError(
                    f"column {field.name!r} is of type {field.type}, and {value!r:.100} does not fit: "
                    "a time with a zone and one without never mix"
                )
    try:
        return pyarrow.RecordBatch.from_arrays([pyarrow.array(values, field.type)], schema=wanted)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        shown = next((f", and {value!r:.100} does not fit" for value in values if not _fits(value, field.type)), "")
        raise ValueError(f"column {field.name!r} is of type {field.type}{shown}: {error}") from None


def _has_times(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return pyarrow.types.is_timestamp(kind) or any(_has_times(kind.field(at).type) for at in range(kind.num_fields))


def _mixes_times(value: Any, kind: pyarrow.DataType) -> bool:
    """Say whether a time has no zone where the column has one, or the other way round: pyarrow takes either for UTC."""
    import pyarrow

    if isinstance(value, datetime):
        return pyarrow.types.is_timestamp(kind) and (value.tzinfo is None) != (kind.tz is None)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    if isinstance(value, Mapping):
        return any(_mixes_times(value.get(field.name), field.type) for field in fields)
    if isinstance(value, list | tuple) and len(fields) == 1:
        return any(_mixes_times(one, fields[0].type) for one in value)
    return False


def _fits(value: Any, kind: pyarrow.DataType) -> bool:
    import pyarrow

    try:
        pyarrow.array([value], kind)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True
