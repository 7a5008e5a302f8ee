"""Files with a line of JSON for each row, by pyarrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .. import _flownet
from .line_blocks import BLOCK_BYTES, Block, Fault, LineError, blocks, first_bad
from .lost_digits import advice, first_in_lines, large_floats
from .text_values import Texts
from .unify import type_name, widened

if TYPE_CHECKING:
    import pyarrow

_TEXTS = Texts(dates=True)

_MOST_LEVELS = 60
"""Lists and objects within one another: Arrow's interface takes 64, and the stack of pyarrow's parser some thousand."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """A line of JSON for each row."""

    @property
    def endings(self) -> tuple[str, ...]:
        """Those that pyarrow unpacks by their names are among them."""
        return ("jsonl", "ndjson", "json", "jsonl.gz", "ndjson.gz", "json.gz")

    def read(
        self, path: str, schema: pyarrow.Schema, columns: list[str], *, is_inferred: bool
    ) -> Iterator[pyarrow.RecordBatch]:
        """Read columns of a file; those that a line has not are null.

        Parameters
        ----------
        path
            The file.
        schema
            Of all columns that are known.
        columns
            Those that are wanted.
        is_inferred
            Whether a field that the schema has not is an error; else it is left out.

        Raises
        ------
        LineError
            A line is not JSON, does not fit the schema, or has an object that has no such field; or an inferred field
            of floats has an integer that would lose digits.
        """
        import pyarrow

        # Where no column of the lines is wanted, one of them says how many rows there are.
        columns = columns or schema.names[:1]
        refuses_others = is_inferred
        if is_inferred and len(columns) < len(schema) and not any(map(_has_struct, map(schema.field, columns))):
            # Nothing that is wanted can gain a field.
            refuses_others = False
        if not refuses_others:
            schema = pyarrow.schema([schema.field(name) for name in columns])
        for block in blocks(path, _cut):
            if not block.data.isspace():
                batch = self._parsed(block, schema, columns, refuse_others=refuses_others)
                if is_inferred:
                    _refuse_lost_digits(block, pyarrow.struct(list(batch.schema)), batch)
                yield batch

    def infer(self, path: str, most_bytes: int) -> pyarrow.Schema:
        """Infer names and types from the beginning of a file.

        Raises
        ------
        LineError
            A line is not JSON, or a field is a number, say, in one line and a text in another; or a field of floats has
            an integer that would lose digits.
        """
        import pyarrow

        known, read = pyarrow.struct([]), 0
        for block in blocks(path, _cut, min(most_bytes, BLOCK_BYTES)):
            if not block.data.isspace():
                try:
                    table = _table(block.data)
                    found = _inferred(block.data, table)
                except ValueError as error:
                    raise _fault(block, lambda data: _inferred(data, _table(data))) from error
                _refuse_lost_digits(block, found, table)
                wider = widened(known, found, is_text)
                if wider is None:
                    schema = pyarrow.schema(list(known))
                    raise _fault(block, partial(_table, schema=schema), schema)
                known = wider
            read += len(block.data)
            if read >= most_bytes:
                break
        return pyarrow.schema(list(known))

    def refuse(self, schema: object) -> None:
        """Lines say what their values are called."""

    def may_be_empty(self) -> bool:
        """No lines are no rows."""
        return True

    def _parsed(
        self, block: Block, schema: pyarrow.Schema, columns: list[str], *, refuse_others: bool
    ) -> pyarrow.RecordBatch:

        def parse(data: bytes) -> pyarrow.RecordBatch:
            table = _table(data, _TEXTS.schema(schema), refuse_others=refuse_others).combine_chunks()
            (batch,) = table.to_batches()
            return next(_TEXTS.values([batch], schema, columns))

        try:
            return parse(block.data)
        except ValueError as error:
            raise _fault(block, parse, schema) from error


def is_text(data_type: pyarrow.DataType) -> bool:
    """Say whether values of an inferred type are texts in JSON."""
    from pyarrow import types

    return bool(types.is_string(data_type) or types.is_timestamp(data_type))


def _refuse_lost_digits(block: Block, fields: pyarrow.StructType, parsed: pyarrow.RecordBatch | pyarrow.Table) -> None:
    """Refuse integers that a field of floats, whose type was inferred, does not hold."""
    if not any(map(large_floats, parsed.columns)):
        return
    found = first_in_lines(block.data, fields)
    if found is not None:
        line, name, text = found
        raise LineError(block.line + line, f"field {name!r}, inferred as float64: {advice(text, has_texts=False)}")


def _cut(data: bytes, is_last: bool) -> tuple[int, bool, Fault | None]:
    end = len(data) if is_last else data.rfind(b"\n") + 1
    fault = _flownet.json_fault(data[:end], _MOST_LEVELS)
    return end, False, None if fault is None else (fault[0], *fault)


def _table(data: bytes, schema: pyarrow.Schema | None = None, *, refuse_others: bool = False) -> pyarrow.Table:
    import pyarrow.json

    if schema is None:
        parse = None
    else:
        others = "error" if refuse_others else "ignore"
        parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    # A block that is parsed is one of pyarrow's too.
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data))
    return pyarrow.json.read_json(pyarrow.BufferReader(data), read_options=options, parse_options=parse)


def _inferred(data: bytes, table: pyarrow.Table) -> pyarrow.DataType:
    """Infer the fields of some lines, which are parsed, as those of a struct.

    Texts that all are times with a zone are times in UTC.
    """
    import pyarrow

    found = pyarrow.struct(list(table.schema))
    as_texts = _without_times(found)
    if as_texts == found:
        return found
    texts = _table(data, pyarrow.schema(list(as_texts)))
    return pyarrow.struct([(field.name, _zoned(texts[field.name].combine_chunks(), field.type)) for field in found])


def _without_times(data_type: pyarrow.DataType) -> pyarrow.DataType:
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(data_type):
        return pyarrow.string()
    if types.is_struct(data_type):
        return pyarrow.struct([field.with_type(_without_times(field.type)) for field in data_type])
    if types.is_list(data_type):
        return pyarrow.list_(_without_times(data_type.value_type))
    return data_type


def _zoned(texts: pyarrow.Array, data_type: pyarrow.DataType) -> pyarrow.DataType:
    """Say what an inferred type is, by the texts that it was inferred from."""
    import pyarrow
    from pyarrow import compute, types

    if types.is_struct(data_type):
        parts = zip(texts.flatten(), data_type, strict=True)
        return pyarrow.struct([(field.name, _zoned(part, field.type)) for part, field in parts])
    if types.is_list(data_type):
        return pyarrow.list_(_zoned(texts.flatten(), data_type.value_type))
    if not types.is_timestamp(data_type):
        return data_type
    have_zone = compute.match_substring_regex(texts, r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$")
    if not compute.any(have_zone).as_py():
        return data_type
    return pyarrow.timestamp(data_type.unit, "UTC") if compute.all(have_zone).as_py() else pyarrow.string()


def _has_struct(field: pyarrow.Field) -> bool:
    from pyarrow import types

    if types.is_list(field.type):
        return _has_struct(field.type.value_field)
    return bool(types.is_struct(field.type))


def _fault(block: Block, parse: Callable[[bytes], object], schema: pyarrow.Schema | None = None) -> LineError:
    """Find the line and the column of an error."""
    lines = [line + b"\n" for line in block.data.removesuffix(b"\n").split(b"\n")]
    starts = [0]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line))

    def parse_some(data: bytes) -> None:
        if not data.isspace():
            parse(data)

    bad = first_bad(parse_some, block.data, starts)
    if bad is None:
        return LineError(block.line, "it cannot be read")
    return LineError(block.line + bad, _explained(lines[bad], parse_some, schema))


def _explained(line: bytes, parse: Callable[[bytes], object], schema: pyarrow.Schema | None) -> str:
    """Say why a line cannot be read."""
    import pyarrow

    try:
        found = pyarrow.struct(list(_table(line).schema))
    except ValueError as error:
        return _reason(error)
    if schema is not None:
        if other := _other_field(found, pyarrow.struct(list(schema)), ""):
            return f"there is a field {other!r}, which no line has that types were inferred from"
        for field in schema:
            try:
                next(
                    _TEXTS.values(
                        _table(line, _TEXTS.schema(pyarrow.schema([field]))).to_batches(), pyarrow.schema([field]), None
                    )
                )
            except ValueError as error:
                said = str(error)
                if said.startswith("column "):
                    return said
                return f"column {field.name!r}, which is {type_name(field.type)}: {_reason(error)}"
    try:
        parse(line)
    except ValueError as error:
        return _reason(error)
    return "it does not go with the lines before"


def _other_field(found: pyarrow.DataType, known: pyarrow.DataType, path: str) -> str | None:
    from pyarrow import types

    if types.is_list(found) and types.is_list(known):
        return _other_field(found.value_type, known.value_type, path)
    if not types.is_struct(found) or not types.is_struct(known):
        return None
    fields = {field.name: field.type for field in known}
    for field in found:
        place = f"{path}.{field.name}" if path else field.name
        if field.name not in fields:
            return place
        if other := _other_field(field.type, fields[field.name], place):
            return other
    return None


def _reason(error: ValueError) -> str:
    """Leave out what pyarrow says of places, which are those within a block."""
    return re.sub(r" in row \d+$", "", str(error).removeprefix("JSON parse error: "))
