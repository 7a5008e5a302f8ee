"""Values that files of lines have as texts, which pyarrow does not read as `write_json` and `write_csv` write them.

Those are bytes and durations, and in JSON dates and times.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class Texts:
    """What is read as texts, and made of these."""

    dates: bool
    """Whether dates and times are among them."""

    def schema(self, schema: pyarrow.Schema) -> pyarrow.Schema:
        """Say as what columns are read."""
        import pyarrow

        return pyarrow.schema([field.with_type(self._read_as(field.type)) for field in schema])

    def values(
        self, batches: Iterable[pyarrow.RecordBatch], schema: pyarrow.Schema, wanted: list[str] | None
    ) -> Iterator[pyarrow.RecordBatch]:
        """Make batches of these columns, all of None, of what was read so.

        Raises
        ------
        ValueError
            A text is no value of the type of its column.
        """
        import pyarrow

        names = schema.names if wanted is None else wanted
        for batch in batches:
            columns = []
            for name in names:
                try:
                    columns.append(self._values(batch.column(name), schema.field(name).type))
                except ValueError as error:
                    raise ValueError(f"column {name!r}: {error}") from error
            yield pyarrow.RecordBatch.from_arrays(columns, names=names)

    def _read_as(self, data_type: pyarrow.DataType) -> pyarrow.DataType:
        import pyarrow

        if self._made_by(data_type) is not None:
            return pyarrow.string()
        if pyarrow.types.is_struct(data_type):
            return pyarrow.struct([field.with_type(self._read_as(field.type)) for field in data_type])
        if pyarrow.types.is_list(data_type):
            return pyarrow.list_(data_type.value_field.with_type(self._read_as(data_type.value_type)))
        return data_type

    def _values(self, column: pyarrow.Array, data_type: pyarrow.DataType) -> pyarrow.Array:
        import pyarrow

        made_by = self._made_by(data_type)
        if made_by is not None:
            return made_by(column, data_type)
        if self._read_as(data_type) == data_type:
            return column
        if pyarrow.types.is_struct(data_type):
            parts = [self._values(part, field.type) for part, field in zip(column.flatten(), data_type, strict=True)]
            return pyarrow.StructArray.from_arrays(parts, fields=list(data_type), mask=column.is_null())
        if column.offset:
            # A mask is of whole lists only.
            column = pyarrow.concat_arrays([column])
        items = self._values(column.values, data_type.value_type)
        return pyarrow.ListArray.from_arrays(column.offsets, items, type=data_type, mask=column.is_null())

    def _made_by(self, data_type: pyarrow.DataType) -> Callable[[Any, Any], Any] | None:
        import pyarrow

        types = pyarrow.types
        if types.is_date(data_type) or types.is_timestamp(data_type):
            # pyarrow reads "...Z" from JSON as if it had no zone; a cast refuses a text that has one too many or none.
            return _dates if self.dates else None
        if types.is_time(data_type):
            return _times if self.dates else None
        if types.is_duration(data_type):
            return _durations
        if types.is_binary(data_type) or types.is_fixed_size_binary(data_type):
            return _bytes
        return None


def _dates(texts: Any, data_type: Any) -> Any:
    return texts.cast(data_type)


def _times(texts: Any, data_type: Any) -> Any:
    import pyarrow
    from pyarrow import compute

    # Times are read from texts only as times of a day.
    of_a_day = compute.binary_join_element_wise("1970-01-01T", texts, "")
    return of_a_day.cast(pyarrow.timestamp("ns")).cast(data_type)


def _durations(texts: Any, data_type: Any) -> Any:
    """Of ISO 8601, in seconds."""
    import pyarrow
    from pyarrow import compute

    # None at all has another form.
    given = compute.if_else(compute.equal(texts, "P0D"), "PT0S", texts)
    seconds = compute.replace_substring_regex(given, r"^(-?)PT(\d+(\.\d+)?)S$", r"\1\2")
    other = texts.filter(compute.equal(seconds, texts))
    if len(other):
        raise ValueError(f"{other[0].as_py()!r} is no duration, such as 'PT1.5S'")
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[data_type.unit]
    a_second = pyarrow.scalar(10**digits, pyarrow.decimal128(digits + 1))
    ticks = compute.multiply(seconds.cast(pyarrow.decimal128(20, digits)), a_second)
    return ticks.cast(pyarrow.int64()).cast(data_type)


def _bytes(texts: Any, data_type: Any) -> Any:
    """Of two hexadecimal digits each."""
    import pyarrow

    return pyarrow.array([None if text is None else _unhex(text) for text in texts.to_pylist()], data_type)


def _unhex(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not bytes, two hexadecimal digits each") from error
