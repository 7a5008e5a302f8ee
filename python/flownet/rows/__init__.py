"""Streams of rows with a schema: columns in, columns out, and no Python object per row in between."""

from .aggregates import (
    Aggregate,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    min,
    quantile,
    std,
    sum,
    var,
)
from .batch_aggregate import BatchAggregate
from .collected import CollectedRows
from .keyed import KeyedRows, WindowedRows
from .stream import Rows

__all__ = [
    "Aggregate",
    "BatchAggregate",
    "CollectedRows",
    "KeyedRows",
    "Rows",
    "WindowedRows",
    "collect",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "std",
    "sum",
    "var",
]
