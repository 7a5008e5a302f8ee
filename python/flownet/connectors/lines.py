"""Records as lines of files, beside plain text: JSON and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..internal.numpy_scalars import json_default


class JsonLine:
    """Makes a line of JSON of a record."""

    def __init__(self, default: Callable[[Any], Any] | None) -> None:
        self._default = default

    def __call__(self) -> Callable[[Any], str]:
        """Begin, in a subtask."""
        # What JSON has no number for, as NaN, would make a file that others cannot read.
        return json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_default(self._default)).encode


class CsvLine:
    """Makes a line of CSV of a record."""

    def __init__(self, columns: list[str] | None, delimiter: str) -> None:
        self._columns = columns
        self._delimiter = delimiter

    def header(self) -> str:
        """Return the line of the names."""
        return self._begin()(self._columns)

    def __call__(self) -> Callable[[Any], str]:
        """Begin, in a subtask."""
        line, columns = self._begin(), self._columns
        names = frozenset(columns or ())

        def of(record: Any) -> str:
            if isinstance(record, Mapping):
                if columns is None:
                    raise TypeError("a mapping needs write_csv(columns=...), which says the order of its values")
                if unknown := record.keys() - names:
                    raise ValueError(f"it has {min(map(repr, unknown))}, which is none of the columns")
                return line([record[name] for name in columns])
            if isinstance(record, str | bytes) or not isinstance(record, Iterable):
                raise TypeError(f"a row is a tuple, a list or a mapping, not {type(record).__name__}")
            values = list(record)
            if columns is not None and len(values) != len(columns):
                raise ValueError(f"it has {len(values)} values for {len(columns)} columns")
            return line(values)

        return of

    def _begin(self) -> Callable[[Any], str]:
        # With either letter of the line's end in a value, the value is quoted.
        writer = csv.writer(_EchoFile(), delimiter=self._delimiter, lineterminator="\r\n")
        write: Any = writer.writerow
        return lambda values: write(values)[:-2]


class _EchoFile:
    """A file that hands back what it is given: ``writerow`` returns what ``write`` does."""

    def write(self, text: str) -> str:
        return text
