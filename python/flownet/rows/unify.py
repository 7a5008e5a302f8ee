"""Unify the schemas of several files: columns are matched by name, types are widened without loss.

`read_parquet`, `read_csv` and `read_json` call it before a job starts.

I1. A value keeps its meaning under the unified type, or the cast of its batch fails (`fitted`); none is rounded or cut.
I2. A column that one file has is in the unified schema. Files without it have nulls there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ..errors import InputError, PlanError
from .schemas import schema_of

if TYPE_CHECKING:
    import pyarrow

_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_UNITS = ("s", "ms", "us", "ns")


def unify_schemas(
    method: str,
    schemas: Iterable[tuple[str, pyarrow.Schema]],
    wanted: list[str] | None,
    way_out: str,
    is_text: Callable[[pyarrow.DataType], bool] | None = None,
) -> pyarrow.Schema:
    """Unify the schemas of files.

    Parameters
    ----------
    method
        The method that users call.
    schemas
        The path and the schema of each file.
    wanted
        The columns that are read; others may be of any types. None for all.
    way_out
        Ends the text of an error.
    is_text
        As of `widened`.

    Raises
    ------
    InputError
        A column has types in two files that no type holds without loss, or a file has two columns of one name.
    """
    import pyarrow

    fields: dict[str, pyarrow.Field] = {}
    origins: dict[str, str] = {}
    files = 0
    for path, schema in schemas:
        _check_names(method, path, schema)
        for name in schema.names:
            field = schema.field(name)
            there = fields.get(name)
            found = plain_type(field.type)
            if there is None:
                fields[name] = pyarrow.field(name, found, field.nullable or files > 0)
                origins[name] = path
                continue
            wider = widened(there.type, found, is_text)
            if wider is None:
                if wanted is None or name in wanted:
                    raise _conflict(method, name, (there.type, origins[name]), (found, path), way_out)
                continue
            if wider != there.type:
                origins[name] = path
            fields[name] = pyarrow.field(name, wider, there.nullable or field.nullable)
        files += 1
        for name in fields.keys() - schema.names:
            fields[name] = fields[name].with_nullable(True)
    return pyarrow.schema(list(fields.values()))


def plain_type(data_type: pyarrow.DataType) -> pyarrow.DataType:
    """Map the layouts of one kind of value to one type: texts, bytes, lists, dictionaries and the like."""
    import pyarrow
    from pyarrow import types

    if types.is_large_string(data_type) or types.is_string_view(data_type):
        return pyarrow.string()
    if types.is_large_binary(data_type) or types.is_binary_view(data_type):
        return pyarrow.binary()
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if _is_list(data_type):
        item = data_type.value_field
        return pyarrow.list_(pyarrow.field("item", plain_type(item.type), item.nullable))
    if types.is_struct(data_type):
        return pyarrow.struct([field.with_type(plain_type(field.type)) for field in data_type])
    if types.is_float16(data_type):
        return pyarrow.float32()
    if types.is_date64(data_type):
        return pyarrow.timestamp("ms")
    return data_type


def widened(
    one: pyarrow.DataType, other: pyarrow.DataType, is_text: Callable[[pyarrow.DataType], bool] | None = None
) -> pyarrow.DataType | None:
    """Return the narrowest type that holds the values of both; None if there is none.

    Parameters
    ----------
    one, other
        Types, as `plain_type` has them.
    is_text
        Says of which types the values are texts in the file, so that they can be read as such. Default: None, of texts.
    """
    import pyarrow
    from pyarrow import types

    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_struct(one) and types.is_struct(other):
        return _structs(one, other, is_text)
    if types.is_list(one) and types.is_list(other):
        item = widened(one.value_type, other.value_type, is_text)
        nullable = one.value_field.nullable or other.value_field.nullable
        return None if item is None else pyarrow.list_(pyarrow.field("item", item, nullable))
    if types.is_decimal(one) and types.is_decimal(other):
        return _decimals(one, other)
    if _is_number(one) and _is_number(other):
        return _numbers(one, other)
    wider = _times(one, other)
    are_texts = is_text is not None and is_text(one) and is_text(other)
    return pyarrow.string() if wider is None and are_texts else wider


def fitted(column: pyarrow.Array, wanted: pyarrow.DataType) -> pyarrow.Array:
    """Cast a column to a type that `widened` has returned for its own.

    Raises
    ------
    ValueError
        A value does not fit, such as an integer above 2^53 where the type is float64.
    """
    import pyarrow.compute
    from pyarrow import types

    given = column.type
    if given == wanted:
        return column
    if types.is_null(given):
        return pyarrow.nulls(len(column), wanted)
    if types.is_dictionary(given):
        return fitted(column.cast(given.value_type), wanted)
    if types.is_run_end_encoded(given):
        return fitted(pyarrow.compute.run_end_decode(column), wanted)
    if types.is_struct(wanted):
        there = {field.name: part for field, part in zip(given, column.flatten(), strict=True)}
        parts = [
            fitted(there[field.name], field.type) if field.name in there else pyarrow.nulls(len(column), field.type)
            for field in wanted
        ]
        return pyarrow.StructArray.from_arrays(parts, fields=list(wanted), mask=column.is_null())
    if types.is_list(wanted):
        # A mask is of whole lists only.
        column = pyarrow.concat_arrays([column.cast(pyarrow.list_(given.value_type))])
        items = fitted(column.values, wanted.value_type)
        return pyarrow.ListArray.from_arrays(column.offsets, items, type=wanted, mask=column.is_null())
    return column.cast(wanted)


def type_name(data_type: pyarrow.DataType) -> str:
    """Name a type as users write it; as Arrow does if rows cannot have it."""
    import pyarrow

    try:
        return schema_of("", pyarrow.schema([("it", data_type)])).fields()[0][1]
    except PlanError:
        return str(data_type)


def _structs(
    one: pyarrow.StructType, other: pyarrow.StructType, is_text: Callable[[pyarrow.DataType], bool] | None
) -> pyarrow.DataType | None:
    import pyarrow

    theirs = {field.name: field for field in other}
    fields = []
    for field in one:
        match = theirs.pop(field.name, None)
        kind = field.type if match is None else widened(field.type, match.type, is_text)
        if kind is None:
            return None
        fields.append(pyarrow.field(field.name, kind, match is None or field.nullable or match.nullable))
    return pyarrow.struct([*fields, *(field.with_nullable(True) for field in theirs.values())])


def _numbers(one: pyarrow.DataType, other: pyarrow.DataType) -> pyarrow.DataType | None:
    import pyarrow
    from pyarrow import types

    if types.is_floating(one) and types.is_floating(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if types.is_floating(one) or types.is_floating(other):
        small = min(one.bit_width, other.bit_width) <= 16 and pyarrow.float32() in (one, other)
        return pyarrow.float32() if small else pyarrow.float64()
    if types.is_signed_integer(one) == types.is_signed_integer(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    unsigned, signed = (other, one) if types.is_signed_integer(one) else (one, other)
    bits = max(2 * unsigned.bit_width, signed.bit_width)
    return {16: pyarrow.int16(), 32: pyarrow.int32(), 64: pyarrow.int64()}.get(bits)


def _decimals(one: pyarrow.DataType, other: pyarrow.DataType) -> pyarrow.DataType | None:
    import pyarrow

    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pyarrow.decimal128(precision, scale) if precision <= 38 else None


def _times(one: pyarrow.DataType, other: pyarrow.DataType) -> pyarrow.DataType | None:
    import pyarrow
    from pyarrow import types

    if one.id != other.id and not (types.is_time(one) and types.is_time(other)):
        return None
    if types.is_timestamp(one):
        if (one.tz is None) != (other.tz is None) or _zone(one.tz) != _zone(other.tz):
            return None
        return pyarrow.timestamp(_finer(one.unit, other.unit), one.tz)
    if types.is_duration(one):
        return pyarrow.duration(_finer(one.unit, other.unit))
    if types.is_time(one):
        unit = _finer(one.unit, other.unit)
        return pyarrow.time32(unit) if unit in ("s", "ms") else pyarrow.time64(unit)
    return None


def _zone(zone: str | None) -> str | None:
    return "UTC" if zone in _UTC else zone


def _finer(one: str, other: str) -> str:
    return max(one, other, key=_UNITS.index)


def _is_number(data_type: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(data_type) or types.is_floating(data_type))


def _is_list(data_type: pyarrow.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type))


def _check_names(method: str, path: str, schema: pyarrow.Schema) -> None:
    """Refuse names that tell no columns apart, and those that Arrow's interface would cut."""
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        shown = ", ".join(map(repr, names))
        raise InputError(f"{method}(): {path}: two columns are called {twice!r}; there are {shown}", path=path)
    for name in _all_names(schema):
        if "\0" in name:
            raise InputError(
                f"{method}(): {path}: the name {name!r} has a zero byte, which no column can have", path=path
            )


def _all_names(fields: Iterable[pyarrow.Field]) -> Iterator[str]:
    from pyarrow import types

    for field in fields:
        yield field.name
        kind = field.type
        while _is_list(kind):
            kind = kind.value_type
        if types.is_struct(kind):
            yield from _all_names(kind)


def _conflict(
    method: str,
    name: str,
    one: tuple[pyarrow.DataType, str],
    other: tuple[pyarrow.DataType, str],
    way_out: str,
) -> InputError:
    return InputError(
        f"{method}(): column {name!r} is {type_name(other[0])} in {other[1]} and {type_name(one[0])} in {one[1]}, "
        f"and no type holds both without loss; {way_out}",
        path=other[1],
    )
