"""Integers in files of lines that an inferred column of floats does not hold: they are refused, and not rounded.

pyarrow infers float64 for integers beyond 64 bits, and for a column of integers and fractions. float64 has integers of
up to 2^53 exactly, and few of those above.

I1. Each value of an inferred float64 column is a number that the file has, or the shortest text of that float64.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow

_EXACT: Final = 2.0**53
_INTEGER: Final = re.compile(r"[+-]?\d{16,}")
_IN_JSON: Final = re.compile(rb"(?<![\w.+-])-?\d{16,}(?![\d.eE])")


def loses_digits(text: str) -> bool:
    """Say whether a text is an integer that float64 does not hold."""
    if not _INTEGER.fullmatch(text):
        return False
    # Of so many digits Python refuses to make an int.
    exact, rounded = Decimal(text), float(text)
    if rounded in (float("inf"), float("-inf")):
        return True
    return Decimal(rounded) != exact and Decimal(repr(rounded)) != exact


def advice(text: str, *, has_texts: bool) -> str:
    """Describe the lost digits of an integer in a column of floats, and name types that hold it.

    Parameters
    ----------
    text
        The integer.
    has_texts
        Whether a column of texts takes it.
    """
    fits = len(text.lstrip("+-").lstrip("0")) <= 38
    types = ["'decimal128(38, 0)' if all are integers of up to 38 digits"] if fits else []
    types += ["'utf8'"] if has_texts else []
    types += ["'float64' to have it rounded"]
    shown = text if len(text) <= 60 else f"{text[:60]}..."
    return f"{shown} would lose digits; name a type in schema=: {', or '.join(types)}"


def large_floats(column: pyarrow.Array | pyarrow.ChunkedArray) -> bool:
    """Say whether a column has floats that may stand for integers which float64 does not hold."""
    import pyarrow
    from pyarrow import compute, types

    if isinstance(column, pyarrow.ChunkedArray):
        return any(map(large_floats, column.chunks))
    if types.is_struct(column.type):
        return any(map(large_floats, column.flatten()))
    if types.is_list(column.type):
        return large_floats(column.flatten())
    if not types.is_float64(column.type):
        return False
    return bool(compute.any(compute.greater_equal(compute.abs(column), _EXACT)).as_py())


def first_in_texts(texts: pyarrow.Array) -> tuple[int, str] | None:
    """Find the first integer among texts that float64 does not hold, and its place."""
    from pyarrow import compute

    # pyarrow, too, reads numbers without the white space around them.
    texts = compute.utf8_trim_whitespace(texts)
    long = compute.match_substring_regex(texts, r"^[+-]?\d{16,}$")
    for place in compute.indices_nonzero(compute.fill_null(long, False)).to_pylist():
        text = texts[place].as_py()
        if loses_digits(text):
            return place, text
    return None


def first_in_lines(data: bytes, fields: pyarrow.StructType) -> tuple[int, str, str] | None:
    """Find in lines of JSON the first integer of a float64 field that does not hold it: its line, the field, and it.

    Parameters
    ----------
    data
        The lines, which are valid.
    fields
        The types of the fields of each line.
    """
    before = -1
    for match in _IN_JSON.finditer(data):
        if match.start() < before or not loses_digits(match.group().decode()):
            continue
        start = data.rfind(b"\n", 0, match.start()) + 1
        end = data.find(b"\n", match.end())
        before = end if end >= 0 else len(data)
        # The digits may be within a text, or of a field of another type.
        line = json.loads(data[start:before], parse_int=_Digits)
        for name, text in _floats_in(line, fields, ""):
            if loses_digits(text):
                return data.count(b"\n", 0, start), name, text
    return None


class _Digits(str):
    """An integer as it is written."""

    __slots__ = ()


def _floats_in(value: Any, data_type: pyarrow.DataType, name: str) -> Iterator[tuple[str, str]]:
    """List the integers in fields of float64, with the names of these fields."""
    from pyarrow import types

    if isinstance(value, _Digits):
        if types.is_float64(data_type):
            yield name, value
    elif isinstance(value, dict) and types.is_struct(data_type):
        for field in data_type:
            if field.name in value:
                yield from _floats_in(value[field.name], field.type, f"{name}.{field.name}" if name else field.name)
    elif isinstance(value, list) and types.is_list(data_type):
        for item in value:
            yield from _floats_in(item, data_type.value_type, name)
