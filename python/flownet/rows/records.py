"""Records that are objects, as rows: what `Stream.to_rows` does not do in Rust."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    field, (_, kind, _) = wanted.field(0), schema.fields()[0]
    mixes_times = _mixing_times(field.type)
    if mixes_times and any(map(mixes_times, values)):
        shown = next(filter(mixes_times, values))
        raise ValueError(
            f"column {field.name!r} is of type {kind}, and {shown!r:.100} does not fit: "
            "a time with a zone and one without never mix"
        )
    try:
        return pyarrow.RecordBatch.from_arrays([pyarrow.array(values, field.type)], schema=wanted)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        shown = next((f", and {value!r:.100} does not fit" for value in values if not _fits(value, field.type)), "")
        raise ValueError(f"column {field.name!r} is of type {kind}{shown}: {error}") from None


def _mixing_times(kind: pyarrow.DataType) -> Callable[[Any], bool] | None:
    """Make what says of a value whether a time in it has no zone where the column has one, or the other way round.

    pyarrow takes either for UTC. None: there are no such times in the column.
    """
    import pyarrow

    if pyarrow.types.is_timestamp(kind):
        is_naive = kind.tz is None
        return lambda value: isinstance(value, datetime) and (value.tzinfo is None) != is_naive
    fields = [kind.field(at) for at in range(kind.num_fields)]
    checks = {field.name: check for field in fields if (check := _mixing_times(field.type))}
    if not checks:
        return None
    if pyarrow.types.is_struct(kind):
        return lambda value: (
            isinstance(value, Mapping) and any(check(value.get(name)) for name, check in checks.items())
        )
    (check,) = checks.values()
    return lambda value: isinstance(value, list | tuple) and any(map(check, value))


def _fits(value: Any, kind: pyarrow.DataType) -> bool:
    import pyarrow

    try:
        pyarrow.array([value], kind)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True
