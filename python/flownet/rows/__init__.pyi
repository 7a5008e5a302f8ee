"""The classes of rows that functions and methods return, each with the module that defines it."""

from .aggregates import Aggregate as Aggregate
from .collected import CollectedRows as CollectedRows
from .keyed import WindowedRows as WindowedRows
from .results import RowResults as RowResults

__all__: list[str]
