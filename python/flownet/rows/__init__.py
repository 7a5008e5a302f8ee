"""Streams of rows with a schema: columns in, columns out, and no Python object per row in between."""

from .aggregates import Aggregate, count, first, last, max, mean, min, std, sum, var
from .collected import CollectedRows
from .keyed import KeyedRows, WindowedRows
from .stream import Rows

__all__ = [
    "Aggregate",
    "CollectedRows",
    "KeyedRows",
    "Rows",
    "WindowedRows",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "std",
    "sum",
    "var",
]
